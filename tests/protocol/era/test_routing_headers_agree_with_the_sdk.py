"""Every rule of `mcp_hub.protocol.routing_headers` against `mcp.shared.inbound`, so that a new SDK release shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcp_hub.errors import HEADER_MISMATCH, INVALID_PARAMS
from mcp_hub.protocol import era, routing_headers

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["", " a", "a ", "=?base64?YQ==?=", "=?base64??=", "=?base64?=", "a\tb", "é", "42", "42.0", "true"]
    ),
)
HEADER_VALUES = st.one_of(
    TEXTS.map(routing_headers.encode_value),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=12),
    st.sampled_from(
        ["=?base64?YQ?=", "=?base64?YR==?=", "=?base64?/w==?=", "=?base64?!!?=", "=?base64?", "42.00", "4.5"]
    ),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(10**4400), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.one_of(SCALARS, st.dictionaries(st.sampled_from(["a", "b"]), SCALARS), st.lists(SCALARS, max_size=2)),
)
TOKENS = st.one_of(
    st.sampled_from(["Region", "region", "Tenant", "x-1"]), st.sampled_from(["", "a b", "é", "a:b", 1, None, True])
)


def _property(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "b", "c"]), below, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"], None]),
            "x-mcp-header": TOKENS,
            "properties": st.one_of(named, st.just([])),
            "items": below,
            "anyOf": st.lists(below, max_size=2),
            "$defs": named,
            "default": st.just({"x-mcp-header": "data"}),
            "enum": st.just([{"x-mcp-header": "data"}]),
        },
    )


SCHEMAS = st.recursive(st.one_of(st.booleans(), st.none(), _property(st.none())), _property, max_leaves=8)
SOUND = st.fixed_dictionaries(
    {
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "a": st.builds(
                    lambda kind: {"type": kind, "x-mcp-header": "A"}, st.sampled_from(["string", "integer"])
                ),
                "b": st.just(
                    {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "Deep"}}},
                ),
                "c": st.just({"type": "boolean", "x-mcp-header": "C"}),
            },
        )
    }
)


@given(TEXTS)
def test_a_header_value_is_encoded_as_by_the_sdk_and_decodes_to_itself(value: str) -> None:
    encoded = routing_headers.encode_value(value)
    assert encoded == inbound.encode_header_value(value)
    assert routing_headers.decode_value(encoded) == inbound.decode_header_value(encoded) == value


@given(st.one_of(st.none(), HEADER_VALUES))
def test_any_header_is_decoded_as_the_sdk_does(value: str | None) -> None:
    try:
        expected = inbound.decode_header_value(value)
    except ValueError:
        expected = None  # the SDK fails on a sentinel with bytes beyond ASCII in it
    assert routing_headers.decode_value(value) == expected


@given(st.one_of(SCHEMAS, SOUND))
def test_annotations_are_found_valid_and_mapped_as_the_sdk_does(schema: Any) -> None:
    invalid = inbound.find_invalid_x_mcp_header(schema) is not None
    assert (routing_headers.invalid_annotation(schema) is not None) == invalid
    assert routing_headers.param_map(schema) == (None if invalid else inbound.x_mcp_header_map(schema))


@given(SOUND, ARGUMENTS)
def test_argument_headers_are_emitted_as_the_sdk_does(schema: Any, arguments: dict[str, Any]) -> None:
    paths = routing_headers.param_map(schema)
    emitted = routing_headers.emit("tools/call", {"name": "n", "arguments": arguments}, paths)
    expected = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)
    assert emitted == {"Mcp-Method": "tools/call", "Mcp-Name": "n", **expected}


@given(
    st.one_of(SOUND, SCHEMAS),
    ARGUMENTS,
    st.lists(st.tuples(st.sampled_from(["Mcp-Param-A", "mcp-param-deep", "MCP-PARAM-C"]), HEADER_VALUES), max_size=3),
    st.booleans(),
)
def test_argument_headers_are_checked_as_the_sdk_does(
    schema: Any, arguments: dict[str, Any], lines: list[tuple[str, str]], honest: bool
) -> None:
    if honest:
        lines = [*inbound.mcp_param_headers(routing_headers.param_map(schema) or {}, arguments).items()]
    folded: dict[str, list[str]] = {}
    for name, value in lines:
        folded.setdefault(name.lower(), []).append(value)
    try:
        expected = inbound.validate_mcp_param_headers(schema, arguments, _Lines(lines))
    except ValueError:
        return  # as above
    error = routing_headers.check_params(folded, arguments, schema)
    assert (error.code if error else None) == (expected.code if expected else None)


class _Lines(dict[str, str]):
    """A mapping that yields its header lines one by one, as the headers of a web framework do."""

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        super().__init__(lines)
        self._lines = lines

    def items(self) -> Any:
        return self._lines


METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", "x/y"])
NAMES = st.one_of(st.none(), st.integers(), TEXTS)
VERSIONS = st.sampled_from([era.LATEST_MODERN, era.LATEST_MODERN, era.LATEST_HANDSHAKE, None, 7])


@st.composite
def _requests(draw: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Generates a request and its headers, which are correct or altered in a few places."""
    method, name, version = draw(METHODS), draw(NAMES), draw(VERSIONS)
    meta: dict[str, Any] = {era.VERSION_KEY: version, era.CAPABILITIES_KEY: {}}
    meta.pop(draw(st.sampled_from([era.VERSION_KEY, era.CAPABILITIES_KEY, "", "", ""])), None)
    params: Any = {"_meta": meta, routing_headers.NAME_KEYS.get(method, "name"): name}
    params = draw(st.sampled_from([params, params, params, None, [], {"_meta": None}]))
    lines = [("MCP-Protocol-Version", str(version)), ("Mcp-Method", method)]
    if isinstance(name, str):
        lines.append(("Mcp-Name", routing_headers.encode_value(name)))
    if draw(st.booleans()) and lines:
        lines.pop(draw(st.integers(0, len(lines) - 1)))
    if draw(st.booleans()):
        lines.append((draw(st.sampled_from(["mcp-name", "MCP-METHOD", "mcp-protocol-version"])), draw(HEADER_VALUES)))
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, lines


@given(_requests())
def test_a_request_is_refused_for_its_headers_exactly_when_the_sdk_refuses_it(
    request: tuple[dict[str, Any], list[tuple[str, str]]],
) -> None:
    message, lines = request
    try:
        expected = _sdk_verdict(message, lines)
    except ValueError:
        return  # the check of the SDK raises for a broken sentinel
    error = routing_headers.check(lines, message, None)
    assert (error.code if error else None) == expected


def _sdk_verdict(message: dict[str, Any], lines: list[tuple[str, str]]) -> int | None:
    if inbound.find_duplicated_routing_header(lines) is not None:
        return HEADER_MISMATCH
    verdict = inbound.classify_inbound_request(message, headers={name.lower(): value for name, value in lines})
    if isinstance(verdict, inbound.InboundModernRoute):
        return None
    # Whether a well-formed version is one we speak is not the headers' business: `era.read_envelope` says that.
    return verdict.code if verdict.code in (HEADER_MISMATCH, INVALID_PARAMS) else None


@pytest.mark.parametrize("surrogate", ["\ud800", "a\udfff"])
def test_a_name_with_a_lone_surrogate_is_sent_without_its_header(surrogate: str) -> None:
    assert routing_headers.emit("tools/call", {"name": surrogate}) == {"Mcp-Method": "tools/call"}


def test_an_invalid_annotation_in_a_deeply_nested_schema_is_found() -> None:
    schema: dict[str, Any] = {"x-mcp-header": "deep"}
    for _ in range(50_000):
        schema = {"items": schema}
    assert routing_headers.invalid_annotation(schema) is not None
