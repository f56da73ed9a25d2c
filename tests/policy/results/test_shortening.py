"""What of a result above the limit is passed on."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import Item, Route
from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.config.entry_rules import PostProcessStep
from mcp_hub.config.models import Server
from mcp_hub.errors import ResultTooLarge, ToolFailed
from mcp_hub.policy import Call
from mcp_hub.policy.long_results import (
    META_KEY,
    LongResults,
    shortened_content,
    shortened_values,
    without_lone_surrogates,
)
from mcp_hub.policy.shape_result import WHOLE, ShapeResult
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE

Json = dict[str, Any]

NOTE = 1024
"""Bytes by which a shortened result may exceed its limit, for the note that says where the rest is."""
TEXTS = st.text(max_size=4000) | st.text("ab \n\u00e9\U0001f600", max_size=4000)
HALVES = st.text(st.characters(), max_size=500) | st.just("\u00e9\ud800" * 200)
BLOCKS = (
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.builds(lambda size: {"type": "image", "mimeType": "image/png", "data": "A" * size}, st.integers(0, 4000))
    | st.builds(lambda text: {"type": "resource", "resource": {"uri": "x:y", "text": text}}, TEXTS)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=40,
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS | st.builds(lambda text: {"type": "text", "text": text}, HALVES), max_size=5)},
    optional={
        "structuredContent": st.dictionaries(st.text(max_size=8), VALUES, max_size=5),
        "isError": st.booleans(),
        "_meta": st.builds(lambda size: {"own": "m" * size}, st.integers(0, 3000)),
    },
)


async def shaped(result: Json, *, schema: Json | None = None, store: LongResults | None = None, **rules: Any) -> Json:
    """What ShapeResult makes of the result of a call of a modern client."""
    server = Server(id="a", namespace="", transport="stdio", command="x", **rules)

    async def function(name: str, call: Json, value: Json, options: Json) -> Json | None:
        raise AssertionError(f"{name} is not called here")

    async def upstream(call: Call) -> Json:
        return result

    listed: Json = {"name": "t"} if schema is None else {"name": "t", "outputSchema": schema}
    policy = ShapeResult({"a": server}, store or LongResults(lambda: 0.0), function, lambda route, caller: listed)
    call = Call("tools/call", "a__t", Route("a", TOOLS, "t"), {"name": "t"}, "modern", Envelope())
    return await policy(call, upstream)


@given(blocks=st.lists(BLOCKS, max_size=5), room=st.integers(1, 6000))
def test_only_texts_are_cut_and_all_blocks_together_fit_the_limit(blocks: list[Json], room: int) -> None:
    shortened, size, _ = shortened_content(blocks, room)
    assert size <= room
    assert len(encode(shortened)) <= room + 2
    originals = {json.dumps(block) for block in blocks}
    assert all(json.dumps(block) in originals for block in shortened if block["type"] != "text"), (
        "only texts are ever cut"
    )


@given(result=RESULTS, limit=st.integers(1, 6000))
def test_a_result_is_never_longer_than_the_limit_and_always_valid(result: Json, limit: int) -> None:
    short = anyio.run(lambda: shaped(result, max_result_bytes=limit))
    if len(encode(result)) <= limit:
        assert short is result
        return
    assert len(encode(short)) <= limit + NOTE
    json.dumps(short, ensure_ascii=False).encode()  # no half of a character
    assert json.loads(encode(short)) == short
    assert short.get("isError", False) == result.get("isError", False)
    assert short.get("structuredContent", result.get("structuredContent")) == result.get("structuredContent")
    assert [block["type"] for block in short["content"][-2:]] == ["text", "resource_link"]


def test_many_small_blocks_together_stay_within_the_limit() -> None:
    blocks = [{"type": "text", "text": "x"}] * 5000
    short = anyio.run(lambda: shaped({"content": blocks}, max_result_bytes=64 * 1024))
    assert len(encode(short)) <= 64 * 1024 + NOTE


def test_blocks_left_out_after_a_long_text_are_named_and_small_images_stay() -> None:
    blocks: list[Json] = [
        {"type": "text", "text": "word " * 1000},
        {"type": "image", "mimeType": "image/png", "data": "A" * 5000},
        {"type": "text", "text": "behind"},
        {"type": "resource", "resource": {"uri": "x:y", "mimeType": "text/csv", "text": "1,2\n" * 1000}},
        {"type": "image", "mimeType": "image/gif", "data": "AA=="},
    ]
    shortened, _, _ = shortened_content(blocks, 2000)
    assert [block["type"] for block in shortened] == ["text", "text", "text", "image"]
    assert shortened[0]["text"].endswith("word")
    assert "image/png" in shortened[1]["text"]
    assert "text/csv" in shortened[2]["text"]
    assert shortened[3] == blocks[4]


@given(value=VALUES, room=st.integers(64, 4000))
def test_shorter_values_keep_their_types_and_members(value: Any, room: int) -> None:
    def alike(long: Any, short: Any) -> bool:
        if isinstance(long, dict):
            return long.keys() == short.keys() and all(alike(long[key], short[key]) for key in long)
        if isinstance(long, list):
            return len(short) <= len(long) and all(map(alike, long, short))
        return bool(long.startswith(short)) if isinstance(long, str) else long is short or long == short

    for shorter in shortened_values(value, room):
        assert len(encode(shorter)) <= room
        assert type(shorter) is type(value)
        assert alike(value, shorter)


ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "string"}}, "total": {"type": "integer"}},
    "required": ["rows", "total"],
}


def rows(count: int) -> Json:
    return {"content": [], "structuredContent": {"rows": ["y" * 50] * count, "total": count}}


@pytest.mark.anyio
async def test_structured_content_within_the_limit_is_kept_whole_beside_long_texts() -> None:
    result = {**rows(30), "content": [{"type": "text", "text": "x" * 5000}]}
    for schema in (ROWS, None):
        short = await shaped(result, schema=schema, max_result_bytes=2000)
        assert short["structuredContent"] == result["structuredContent"]
        assert short["content"][0]["text"] == "x" * len(short["content"][0]["text"])


@pytest.mark.anyio
async def test_structured_content_with_a_schema_is_shortened_within_it() -> None:
    short = await shaped(rows(1000), schema=ROWS, max_result_bytes=4000)
    structured = short["structuredContent"]
    assert structured["total"] == 1000
    assert 20 < len(structured["rows"]) < 80
    assert set(structured["rows"]) == {"y" * 50}


@pytest.mark.anyio
async def test_structured_content_without_a_schema_or_of_an_error_is_left_out() -> None:
    assert "structuredContent" not in await shaped(rows(1000), max_result_bytes=4000)
    error = {**rows(1000), "isError": True}
    short = await shaped(error, schema=ROWS, max_result_bytes=4000)
    assert "structuredContent" not in short
    assert short["isError"] is True


@pytest.mark.anyio
async def test_unshortenable_structured_content_is_kept_or_refused_and_readable_as_a_resource() -> None:
    strict = {**ROWS, "properties": {"rows": {"type": "array", "minItems": 100}}}
    result = rows(100)
    size = len(encode(result["structuredContent"]))
    assert (await shaped(result, schema=strict, max_result_bytes=size * 2 // WHOLE))["structuredContent"] == result[
        "structuredContent"
    ]
    store = LongResults(lambda: 0.0)
    with pytest.raises(ResultTooLarge) as refused:
        await shaped(result, schema=strict, store=store, max_result_bytes=size // (WHOLE + 1))
    uri = next(word for word in refused.value.message.replace(",", " ").split() if store.owns(word))
    page = store.read(uri, SOLE)
    assert page is not None
    assert json.loads(page["contents"][0]["text"]) == result["structuredContent"]


@pytest.mark.anyio
async def test_a_value_with_too_many_members_is_not_shortened() -> None:
    many = {str(number): 1 for number in range(300_000)}
    assert list(shortened_values(many, 2000)) == []


@pytest.mark.anyio
async def test_a_long_meta_is_read_in_pages_too() -> None:
    store = LongResults(lambda: 0.0)
    result = {"content": [{"type": "text", "text": "hello"}], "_meta": {"own": "m" * 9000}}
    short = await shaped(result, store=store, max_result_bytes=1000)
    assert short["content"][0]["text"] == "hello"
    assert list(short["_meta"]) == [META_KEY]
    facts = short["_meta"][META_KEY]
    last = store.read(f"{facts['uri']}/{facts['pages']}", SOLE)
    assert last is not None
    assert json.loads(last["contents"][0]["text"]) == {"_meta": result["_meta"]}


@pytest.mark.anyio
async def test_an_input_request_of_the_server_is_not_shortened() -> None:
    question = {"resultType": "input_required", "inputRequests": {"x": {"params": {"message": "y" * 5000}}}}
    steps = (PostProcessStep(step="json"), PostProcessStep(step="shaping:any"))
    assert await shaped(question, max_result_bytes=100, postprocess=steps) is question


@pytest.mark.parametrize(
    "step",
    [
        PostProcessStep(step="json", arguments={"path": "a..b"}),
        PostProcessStep(step="json", arguments={"path": "a[x]"}),
        PostProcessStep(step="json", arguments={"path": 3}),
        PostProcessStep(step="json", arguments={"path": "a[0]"}),
        PostProcessStep(step="json", arguments={"path": "a.missing"}),
        PostProcessStep(step="json", arguments={"paht": "a"}),
        PostProcessStep(step="truncate", arguments={"max_char": 3}),
        PostProcessStep(step="truncate", arguments={"max_chars": -1}),
        PostProcessStep(step="select_text", arguments={"x": 1}),
    ],
    ids=str,
)
@pytest.mark.anyio
async def test_a_step_with_wrong_arguments_withholds_the_result(step: PostProcessStep) -> None:
    with pytest.raises(ToolFailed) as failed:
        await shaped({"content": [], "structuredContent": {"a": "text"}}, postprocess=(step,))
    assert step.step in failed.value.message


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        ({"a": {"b": [1, {"c": "x"}]}}, "a.b[1].c", "x"),
        ([[1, 2], [3]], "[0][1]", "2"),
        ({"a b": {"\u00e9": None}}, "a b.\u00e9", "null"),
        ({"n": 10**25}, "", '{"n":10000000000000000000000000}'),
    ],
)
@pytest.mark.anyio
async def test_select_json_takes_a_part_of_the_first_json_text(value: Any, path: str, found: str) -> None:
    texts = [{"type": "text", "text": text} for text in ("no JSON", json.dumps(value))]
    step = PostProcessStep(step="json", arguments={"path": path})
    result = await shaped({"content": texts}, postprocess=(step,))
    assert [block["text"] for block in result["content"]] == [found]


@pytest.mark.anyio
async def test_select_json_leaves_an_error_of_the_server_unchanged() -> None:
    error = {"content": [{"type": "text", "text": "no such file"}], "isError": True}
    assert await shaped(error, postprocess=(PostProcessStep(step="json", arguments={"path": "a"}),)) == error


def test_a_tool_with_changed_results_lists_no_output_schema() -> None:
    wire = {"name": "t", "inputSchema": {}, "outputSchema": ROWS}
    for step, stays in (("truncate", True), ("json", False), ("select_text", False), ("shaping:any", False)):
        server = Server(id="a", namespace="", transport="stdio", command="x", postprocess=(PostProcessStep(step=step),))
        policy = ShapeResult({"a": server}, LongResults(lambda: 0.0), None, lambda route, caller: wire)  # type: ignore[arg-type]
        (item,) = policy.shape([Item(Route("a", TOOLS, "t"), "t", wire)])
        assert ("outputSchema" in item.wire) is stays
    assert "outputSchema" in wire


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (0, ["… (13 more characters)"]),
        (5, ["hello", "… (8 more characters)"]),
        (7, ["hello", "wo… (6 more characters)"]),
        (13, ["hello", "world", "!!!"]),
    ],
)
@pytest.mark.anyio
async def test_truncate_states_how_much_text_is_missing(most: int, shown: list[str]) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AA=="}
    blocks = [{"type": "text", "text": text} for text in ("hello", "world", "!!!")]
    step = PostProcessStep(step="truncate", arguments={"max_chars": most})
    result = await shaped({"content": [*blocks, image]}, postprocess=(step,))
    assert [block["text"] for block in result["content"][:-1]] == shown
    assert result["content"][-1] == image


def tokens_of(result: Json) -> int:
    """The tokens of what of a result is shown: without the note and the link behind it."""
    return sum(estimate_tokens(block["text"]) for block in result["content"][:-2] if block["type"] == "text")


LIMIT = {"max_result_tokens": 200}


@pytest.mark.anyio
async def test_a_result_above_its_token_limit_states_what_is_left_out_and_its_uri() -> None:
    store = LongResults(lambda: 0.0)
    records = [{"id": number, "name": f"user {number}"} for number in range(500)]
    text = json.dumps(records)
    short = await shaped({"content": [{"type": "text", "text": text}]}, store=store, settings=LIMIT)
    first_records = json.loads(short["content"][0]["text"])
    assert first_records == records[: len(first_records)]
    assert 150 < tokens_of(short) <= 200
    assert f"{len(first_records)} of 500 items" in short["content"][1]["text"]
    facts = short["_meta"][META_KEY]
    assert facts["tokens"] == estimate_tokens(text)
    pages = [store.read(f"{facts['uri']}/{page}", SOLE) for page in range(1, facts["pages"] + 1)]
    assert "".join(page["contents"][0]["text"] for page in pages if page is not None) == text


@pytest.mark.anyio
async def test_images_count_no_tokens_and_a_short_result_is_untouched() -> None:
    image: Json = {"type": "image", "mimeType": "image/png", "data": "A" * 50_000}
    result = {"content": [image, {"type": "text", "text": "word " * 150}]}
    assert await shaped(result, settings=LIMIT) is result
    long = {"content": [image, {"type": "text", "text": "word " * 1500}]}
    short = await shaped(long, settings=LIMIT)
    assert short["content"][0] is image
    assert tokens_of(short) <= 200


@pytest.mark.anyio
async def test_byte_and_token_limits_apply_together_and_structured_content_stays_valid() -> None:
    result: Json = {**rows(1000), "content": [{"type": "text", "text": json.dumps(rows(1000))}]}
    short = await shaped(result, schema=ROWS, settings=LIMIT, max_result_bytes=100_000)
    assert len(encode(short)) <= 100_000 + NOTE
    assert tokens_of(short) <= 200
    assert short["structuredContent"]["total"] == 1000
    assert estimate_tokens(encode(short["structuredContent"]).decode()) <= 220
    tight = await shaped(result, schema=ROWS, settings={"max_result_tokens": 10_000}, max_result_bytes=4000)
    assert len(encode(tight)) <= 4000 + NOTE


@given(result=RESULTS, limit=st.integers(1, 400))
def test_no_result_exceeds_its_token_limit_and_all_are_valid(result: Json, limit: int) -> None:
    short = anyio.run(lambda: shaped(result, settings={"max_result_tokens": limit}))
    assert json.loads(encode(short)) == json.loads(encode(without_lone_surrogates(short)))
    if short is not result:
        assert tokens_of(short) <= limit
        assert short.get("isError", False) == result.get("isError", False)
