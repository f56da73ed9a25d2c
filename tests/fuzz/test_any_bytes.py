"""Runs every target on many texts of bytes, the same ones each time; each detects a planted fault."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_hub.catalog import names
from mcp_hub.config import config_files
from mcp_hub.downstream import dispatcher, streamable
from mcp_hub.downstream.admission import Gate
from mcp_hub.protocol.frames import decode
from mcp_hub.security import url_rules
from mcp_hub.security.redaction import Redactor
from mcp_hub.transport.http1 import MessageMachine
from mcp_hub.transport.http1.client_response import HttpResponse
from mcp_hub.transport.lines import LineReader
from mcp_hub.transport.peer import Peer
from mcp_hub.transport.sse_codec import SseParser
from tests.fuzz import targets
from tests.fuzz.targets import answers, bodies, frames, redacted, sockets
from tests.tiers import EXAMPLES

FACTORS = {"configuration": 8, "bodies": 8, "sockets": 8, "readers": 40}
"""Factors of EXAMPLES: low where one input takes long, high where most of them are refused; 20 for the others."""


def texts(target: str) -> st.SearchStrategy[bytes]:
    """Generates a seed or a short start, followed by tokens and single bytes."""
    module = targets.load(target)
    piece = st.one_of(st.sampled_from(module.TOKENS), st.binary(min_size=1, max_size=3))
    start = st.one_of(st.sampled_from(module.SEEDS), st.binary(max_size=6))
    return st.builds(lambda first, pieces: first + b"".join(pieces), start, st.lists(piece, max_size=24))


@pytest.mark.parametrize("name", targets.NAMES)
def test_no_input_of_a_fuzz_target_violates_its_invariants(name: str) -> None:
    module = targets.load(name)

    @settings(database=None, max_examples=EXAMPLES * FACTORS.get(name, 20), suppress_health_check=list(HealthCheck))
    @given(texts(name))
    def run(data: bytes) -> None:
        targets.run(module, data)

    for seed in module.SEEDS:
        targets.run(module, seed)
    run()


# --- each target detects its planted fault ---------------------------------------------------------------------

_PARAMS = len('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{')
_NAME = bodies.TOKENS.index(b'"Name":"up__echo",')
WITH_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
FAULTS: dict[str, tuple[object, str, object, bytes]] = {
    "lines": (LineReader, "rest", lambda self: None, b"\x05\x00rest"),
    "frames": (frames, "salvage_id", lambda head, tail=b"": 8, b'\xff{"id":7,"result":{"id":8}}'),
    "events": (SseParser, "_remember_id", lambda self: None, b"\x00\x00id: 1\ndata: x\n\n"),
    "exposed_names": (names, "_ILLEGAL", re.compile(r"[^A-Za-z0-9_.-]"), b"\x01aget.page"),
    "configuration": (config_files, "printable", lambda text: text, b'\x01{"a"\x00'),
    "gate": (Gate, "_forwarded", lambda self, forwarded: None, b"\x00\x02\x00\x01\x00\x03\x01\x00"),
    "urls": (url_rules, "_HUBS", (), b"\x00https://hf.co/datasets"),
    "redacted": (Redactor, "text", lambda self, text: text, b"\x00" + redacted.FORMS[0]),
    "conversation": (Peer, "failed", lambda self, request_id, error: None, b"\x06\x01"),
    "sockets": (
        streamable,
        "decode_exactly",
        lambda body: decode(body.replace(b'"x"', b'"y"')),
        b"\x00" + sockets.SIZED,
    ),
    "answers": (HttpResponse, "feed", lambda self, piece: None, b"\x00\x00\x00" + answers.SIZED),
    "readers": (MessageMachine, "on_body", lambda self, piece: None, b"\x00\x00" + WITH_BODY),
    "bodies": (dispatcher, "ambiguous_member", lambda params: None, bytes([1, 1, 0, _PARAMS, 1, _NAME, 0])),
}
"""(owner, attribute, replacement, bytes): the target must fail for the bytes once the attribute is replaced."""


@pytest.mark.parametrize("name", targets.NAMES)
def test_each_fuzz_target_detects_its_planted_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = targets.load(name)
    owner, attribute, fault, data = FAULTS[name]
    module.target(data)
    monkeypatch.setattr(owner, attribute, fault)
    with pytest.raises(AssertionError):
        module.target(data)


def test_a_recorded_fuzz_input_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "crash-1"
    path.write_bytes(targets.load("lines").SEEDS[0])
    argv = [sys.executable, "-m", "tests.fuzz.guided", "--target", "lines", "--reproduce", str(path)]
    assert subprocess.run(argv, timeout=60, check=False).returncode == 0
