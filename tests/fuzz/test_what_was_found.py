"""What fuzzing has found, each as the shortest text that showed it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.protocol.frames import FrameError, decode_exactly, encode, salvage_id
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.transport.peer import Peer
from tests.fakes.offers import nothing_offered
from tests.fuzz.targets import conversation


def test_values_with_lone_surrogates_or_nan_are_written_as_json() -> None:
    written = encode({"\ud800": [float("inf"), float("nan")], "a": 1.5})
    strict = json.loads(written, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert strict == {"\ud800": [None, None], "a": 1.5}


@pytest.mark.parametrize("number", [b"1e400", b"-1e999", b"NaN", b"-Infinity", b"1.7976931348623157e309"])
def test_a_number_that_would_be_forwarded_as_null_is_refused(number: bytes) -> None:
    with pytest.raises(FrameError):
        decode_exactly(b'{"a":' + number + b"}")
    with pytest.raises(FrameError):
        decode_exactly(b'{"bad":"\xff","a":' + number + b"}")
    assert decode_exactly(b'{"a":1e308,"b":1.5,"c":' + b"9" * 30 + b"}")["a"] == 1e308


@pytest.mark.parametrize(
    ("head", "tail", "found"),
    [
        (b'{"params":{"id":8},"id":7,"result":', b"", 7),
        (b'{"_meta":{"id":8},"result":"x', b"", None),
        (b'{"jsonrpc":"2.0","id":12', b'3,"result":""}', None),
        (b'{"x":"{","id":5,"result":', b"", 5),
        (b'[{"id":5,"result":1}', b"", None),
        (b'{"result":{"a":1,"id":5}', b'{"result":{"a":1,"id":5}', None),
        (b'{"result":"', b'","id":9,"jsonrpc":"2.0"}', 9),
        (b'{"result":"', b',\\"id\\":9}"}', None),
    ],
)
def test_an_id_is_read_only_if_it_is_top_level_and_complete(head: bytes, tail: bytes, found: object) -> None:
    assert salvage_id(head, tail) == found


@pytest.mark.parametrize(
    "text",
    [
        "https://huggingface.co/data\udc96sets/x",
        "https://huggingface.co/\ud800datasets",
        "x%20y.hf.space",
        "\\a@x.hf.space",
    ],
)
def test_a_guarded_url_is_refused_in_every_form_that_clients_normalise(text: str) -> None:
    assert UrlRules().refuses(text) == "huggingface"


def test_an_error_about_a_file_contains_none_of_its_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_bytes(b'{"a": \x1b]0;x}')
    path.chmod(0o600)
    with pytest.raises(ConfigError) as raised:
        read_config(path, {}, tmp_path)
    assert all(line.isprintable() for line in str(raised.value).split("\n"))


@pytest.mark.anyio
async def test_a_response_abandoned_before_it_began_leaves_no_state() -> None:
    # A coroutine that nobody awaits is a warning, and warnings are errors.
    line = conversation.Line()
    peer = Peer(line, notified=lambda method, params, cause: None, requested=nothing_offered, lost=lambda error: None)
    peer.received({"id": 1, "method": "ping"})
    await peer.close()
    async with asyncio.timeout(60):
        while peer._background:
            await asyncio.sleep(0)
    assert line.sent == []
