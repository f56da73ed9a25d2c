"""Whatever a file holds, reading it gives a configuration or a ConfigError, and nothing unresolved is enabled."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.config.dialect import ROOT_KEYS, ROOTS
from mcp_hub.config.entry_keys import ENTRY_KEYS
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.text import printable

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
        lambda root, entries, extra: {**extra, root: entries},
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
        except ConfigError:
            return
    for server in loaded.config.servers:
        if server.enabled:
            assert server.disabled_reason is None
            secrets = [value.get_secret_value() for value in (*server.env.values(), *server.headers.values())]
            values = [server.command or "", server.url or "", *server.args, *secrets]
            # What was expanded is not expanded again; apart from that, nothing that looks like a variable is left.
            assert not any("{UNSET}" in value.replace("a${UNSET}b", "") for value in values)
    assert all(printable(warning, 10_000) == warning for warning in loaded.warnings)


@given(DOCUMENTS)
@example({"servers": {}, "blacklist": {"x": 1}})
def test_any_json_document_loads_or_raises_a_configuration_error(document: Any) -> None:
    _read(json.dumps(document), "servers.json")


@given(DOCUMENTS)
def test_any_yaml_document_loads_or_raises_a_configuration_error(document: Any) -> None:
    _read(json.dumps(document, ensure_ascii=False), "servers.yaml")


@given(
    st.text(alphabet="servers:{}[]\"'\\,\n\t -&*!#|>%@`?<=.a1\x00\ud800é", max_size=40),
    st.sampled_from(["s.yaml", "s.json", "s.toml", "s"]),
)
def test_any_text_loads_or_raises_a_configuration_error(text: str, name: str) -> None:
    _read(text, name)


@given(st.binary(max_size=40), st.sampled_from(["s.yaml", "s.json", "s.toml", "s"]))
def test_any_bytes_load_or_raise_a_configuration_error(content: bytes, name: str) -> None:
    _read(content, name)
