"""Rules see all that any parser could read in arguments, and only what matters in a file's content."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pydantic_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.catalog import Route
from mcp_hub.policy import Call
from mcp_hub.policy.guard import GuardBlocked, GuardSettings, UrlGuard
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.argument_readings import MAX_LEVELS, AmbiguousArguments, argument_texts
from tests.tiers import EXAMPLES

ROUTE = Route("s", TOOLS, "t")
STRING: dict[str, Any] = {"type": "string"}
NULLABLE = {"anyOf": [STRING, {"type": "null"}]}
SCHEMAS: dict[str, Any] = {
    "unknown": None,
    "any": {},
    "a string": STRING,
    "a string or null": NULLABLE,
    "a string by reference": {"$ref": "#/$defs/text"},
    "a list": {"type": "array", "items": STRING},
    "both": {"anyOf": [STRING, {"type": "array", "items": STRING}]},
}
PLAIN = ("a string", "a string or null", "a string by reference")


def verdict(arguments: dict[str, Any], of_argument: Any) -> str | None:
    """The rule by which the guard refuses a call, for a tool with one argument `x` of this schema."""
    schema = {"type": "object", "properties": {"x": of_argument}, "$defs": {"text": STRING}}
    listed = None if of_argument is None else {"name": "t", "inputSchema": schema}
    guard = UrlGuard(GuardSettings(tools=("*",), deny_urls=("example.org/private",)), {}, lambda route, caller: listed)
    call = Call(TOOLS.act_method, "t", ROUTE, {"name": "t", "arguments": arguments}, "handshake", Envelope())

    async def succeed(call: Call) -> dict[str, Any]:
        assert call.params["arguments"] is arguments
        return {}

    with contextlib.suppress(GuardBlocked):
        asyncio.run(guard(call, succeed))  # type: ignore[arg-type]
    return call.refused_by


# --- nothing gets past ---------------------------------------------------------------------------------------

URLS = ["https://huggingface.co/datasets/x", "hf.co/spaces/x", "hf://datasets/a/b", "https://example.org/private/x"]
OTHER = ["file:///etc/passwd", "view-source:https://example.com", "data:text/html,<p>x"]


def quoted(text: str, mask: int) -> str:
    """A text of JSON, with an escape for the characters at the bits of a mask."""
    is_escaped = [mask >> number % 24 & 1 for number in range(len(text))]
    chars = (
        f"\\u{ord(char):04x}" if bit else json.dumps(char)[1:-1] for char, bit in zip(text, is_escaped, strict=True)
    )
    return f'"{"".join(chars)}"'


@st.composite
def holding(draw: st.DrawFn, url: str) -> str:
    """A text that a lenient parser reads as a list or an object with the URL in it, or in a text in it."""
    for _ in range(draw(st.integers(1, 3))):
        inner = quoted(url, draw(st.integers(0, 2**24 - 1)))
        shape = draw(
            st.sampled_from([
                "[{}]", '{{"a": {}}}', '["b", [{}]]', '{{"c": {{"d": [0, {}]}}}}', '{{"e": {}, "e": "f"}}', "[NaN, {}]",
                "[{},]", "[{}] trailing", "// c\n[{}]", "/* it's */ [{}]", '[1e400, "\\ud800", {}]', "{{g: {}}}", "[{}",
            ])
        )  # fmt: skip
        url = draw(st.sampled_from(["", " ", "\r\n\t", "\ufeff", "\xa0"])) + shape.format(inner)
        url = url if url.lstrip("\ufeff\xa0").lstrip().startswith(("[", "{", '"', "/")) else f"[{url}]"
    return url


@pytest.mark.parametrize("kind", SCHEMAS)
@given(data=st.data())
@settings(max_examples=4 * EXAMPLES)
def test_no_encoding_of_a_forbidden_url_in_texts_gets_past_the_guard(kind: str, data: st.DataObject) -> None:
    text = data.draw(holding(data.draw(st.sampled_from(URLS + OTHER))))
    assert verdict({"x": text}, SCHEMAS[kind]) is not None


def strings_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_of(inner)


PARSERS: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "json of bytes": lambda text: json.loads(text.encode("utf-8", "surrogatepass")),
    "json, not strict": lambda text: json.loads(text, strict=False),
    "json, stripped": lambda text: json.loads(text.strip()),
    "jiter": pydantic_core.from_json,
    "msgspec": msgspec.json.decode,
}
PIECES = st.sampled_from([
    *'[]{},:"\\/x', '"a"', '"b": ', "\\u0061", "\\ud83d", "\\ude00", "\\ud800", "NaN", "-Infinity", "1e400", "9" * 5000,
    "null", "\x01", "\n", " ", "\ufeff", "\xa0", "é", '"\\"c\\""', '{"a":"1","a":"2"}', '["d"]', "\ud800",
])  # fmt: skip


@given(body=st.lists(PIECES, max_size=12).map("".join), frame=st.sampled_from(["[{}]", '{{"k":{}}}', "{}", '["{}"]']))
@settings(max_examples=40 * EXAMPLES)
def test_rules_see_every_text_that_a_parser_reads_in_a_text(body: str, frame: str) -> None:
    text = frame.format(body)
    try:
        seen = {found.text for found in argument_texts({"x": text}, {"properties": {"x": STRING}})}
    except AmbiguousArguments:
        return
    for parse in PARSERS.values():
        with contextlib.suppress(ValueError, TypeError, RecursionError, msgspec.MsgspecError):
            assert {found for found in strings_of(parse(text)) if found} - {text} <= seen


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": [[[]] * 500] * 500},
        {"x": json.dumps([[[]] * 500] * 500)},
        {"x": "[" * 5_000_000 + '"' * 2_000_000},
        {"x": "[" * 100_000 + "]" * 100_000},
        {"x": "[1" + "\\" * 5_000_000},
        {"x": '["' + "\\u005c" * 500_000 + 'u0066"'},
    ],
    ids=["members", "members of a text", "open lists", "nested lists", "backslashes", "escapes"],
)
def test_arguments_beyond_the_bounds_are_refused_in_linear_time(arguments: dict[str, Any]) -> None:
    # A quadratic reading of these would take hours.
    assert verdict(arguments, STRING) in ("guard: ambiguous arguments", "guard: too many URLs to check")


def test_texts_inside_of_each_other_are_refused_beyond_a_bound() -> None:
    text = "https://example.com"
    for level in range(1, MAX_LEVELS + 3):
        text = json.dumps([text])
        assert (verdict({"x": text}, STRING) is None) is (level <= MAX_LEVELS)


# --- what may pass -------------------------------------------------------------------------------------------

NO_HOSTS = st.characters(exclude_characters=".:\u3002\uff0e\uff61")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(NO_HOSTS, max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(NO_HOSTS, max_size=8), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("kind", PLAIN)
@given(value=JSON_VALUES, indent=st.sampled_from([None, 2]))
@settings(max_examples=8 * EXAMPLES)
def test_json_without_urls_always_passes_as_plain_text(kind: str, value: Any, indent: int | None) -> None:
    assert verdict({"x": json.dumps(value, indent=indent)}, SCHEMAS[kind]) is None


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize(
    ("text", "passes_as"),
    [
        (r'{"about": "see https:\u002f\u002fhuggingface.co\u002fdatasets\u002fx, a list"}', PLAIN),
        (r'{"repository": {"url": "git+https://github.com/x/x.git"}}', PLAIN),
        (r'{"a": 1, "a": 2}', PLAIN),
        (r'{"homepage": "https://hugging\u0066ace.co/datasets/x"}', ()),
        (r'{"homepage": "huggingface.co\u002fdatasets/x"}', ()),
        (r'{"start": "\u0066ile:///etc/passwd"}', ()),
        (r'["\ud835\udc21uggingface.co/datasets/x"] // bold', ()),
        ('["https://example.com", {"url": "http://example.com"}]', SCHEMAS),
        ('"A quoted title" of a book', SCHEMAS),
        ("[a link](https://example.com), {braces}", SCHEMAS),
    ],
)
def test_only_urls_count_in_a_text_that_the_schema_calls_a_string(kind: str, text: str, passes_as: Any) -> None:
    assert (verdict({"x": text}, SCHEMAS[kind]) is None) is (kind in passes_as)


def test_a_string_that_is_declared_to_hold_json_is_read_as_json() -> None:
    declared = {**STRING, "contentMediaType": "application/json"}
    assert verdict({"x": '{"a": 1, "a": 2}'}, declared) == "guard: ambiguous arguments"


def test_members_of_an_argument_for_urls_accept_only_web_pages() -> None:
    assert verdict({"x": {"url": {"first": ["gopher://example.com"]}}}, {}) == "guard: scheme gopher"
    assert verdict({"x": '{"url": {"first": ["gopher://example.com"]}}'}, {}) == "guard: scheme gopher"
    assert verdict({"x": {"first": ["gopher://example.com"]}}, {}) is None
