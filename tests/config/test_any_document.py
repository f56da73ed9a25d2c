"""Whatever a file holds, reading it gives a configuration or a ConfigError, and nothing unresolved is enabled."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.config import read_config
from mcp_hub.config.keys import ENTRY_KEYS, ROOT_KEYS, ROOTS
from mcp_hub.errors import ConfigError

TEXTS = st.one_of(
    st.sampled_from(
        ["x", "stdio", "http", "sse", "remote", "https://x.example/mcp", "http://[", "client", "call", "10s"]
    ),
    st.sampled_from(
        ["${UNSET}", "a${SET}b", "${", "$${SET}", "${file:x}", "${file:\0}", "${env:}", "{env:UNSET}", "~", ""]
    ),
    st.text(max_size=8),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
ENTRIES = st.dictionaries(st.sampled_from(sorted(ENTRY_KEYS)) | TEXTS, VALUES, max_size=6)
TARGETS = st.sampled_from([{"command": "x"}, {"url": "https://x.example/mcp"}, {"tools_dir": "."}, {}])
SERVED = st.builds(lambda entry, target: {**entry, **target}, ENTRIES, TARGETS)
LISTS = st.dictionaries(TEXTS, SERVED | VALUES, max_size=3) | st.lists(SERVED | VALUES, max_size=3)
DOCUMENTS = st.one_of(
    VALUES,
    st.builds(
        lambda root, entries, more: {**more, root: entries},
        st.sampled_from(ROOTS),
        LISTS,
        st.dictionaries(st.sampled_from(sorted(ROOT_KEYS)) | TEXTS, VALUES, max_size=3),
    ),
)


def _read(text: str | bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        path.chmod(0o600)
        try:
            loaded = read_config(path, {"SET": "${UNSET}"}, Path(directory))
        except ConfigError as error:
            assert str(error)
            return
    for server in loaded.config.servers:
        assert server.enabled is (server.disabled_reason is None) or not server.enabled
        if server.enabled:
            values = [server.command, server.url, *server.args]
            assert not any(value and "{UNSET}" in value.replace("a${UNSET}b", "") for value in values)
    assert all(warning.isprintable() for warning in loaded.warnings)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(DOCUMENTS)
def test_any_json_document(document: Any) -> None:
    _read(json.dumps(document), "servers.json")


@settings(derandomize=True, max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_any_yaml_document(document: Any) -> None:
    _read(json.dumps(document, ensure_ascii=False), "servers.yaml")


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.text(alphabet="servers:{}[]\"'\\,\n\t -&*!#|>%@`?<=.a1\x00\ud800é", max_size=40),
    st.sampled_from(["s.yaml", "s.json", "s.toml", "s"]),
)
def test_any_text(text: str, name: str) -> None:
    _read(text, name)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.sampled_from(["s.yaml", "s.json", "s.toml", "s"]))
def test_any_bytes(content: bytes, name: str) -> None:
    _read(content, name)
