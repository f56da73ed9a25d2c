"""One reading for the check and for the execution: no request means one thing to the hub and another behind it.

A real hub on a real socket, in front of a process that writes down what it gets. Raw bytes in, its record out.
"""

from __future__ import annotations

import base64
import json

import pytest

from mcp_hub.errors import HEADER_MISMATCH, INVALID_PARAMS, PARSE_ERROR
from tests.downstream.raw_http import ENVELOPE, Response, initialized
from tests.fuzz.listening import META, MODERN_LINES, OPEN, SHUT, Front, call

pytestmark = pytest.mark.anyio


async def both(front: Front, body: str, meta: str) -> list[Response]:
    """The answers in the handshake era and in the modern one."""
    session = await initialized(front)  # type: ignore[arg-type]
    return [await front.post(session, body), await front.post(MODERN_LINES, meta)]


# --- members of JSON -------------------------------------------------------------------------------------------

SPELLINGS = [
    "Name",
    "NAME",
    "nAme",
    "ｎａｍｅ",
    "Arguments",
    "ARGUMENTS",
    "argument\u017f",
    "_Meta",
    "Uri",
    "Ref",
    "TaskId",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_second_spelling_of_a_known_member_is_refused(front: Front, spelling: str) -> None:
    member = f'"{spelling}":{json.dumps(SHUT) if spelling[:1].lower() == "n" else "{}"},'
    for answer in await both(front, call(member), call(member, META)):
        assert answer.code == INVALID_PARAMS
    assert front.called() == []


@pytest.mark.parametrize("spelling", ["progresstoken", "ProgressToken", "io.modelcontextprotocol/protocolversion"])
async def test_a_second_spelling_of_an_envelope_key_is_refused(front: Front, spelling: str) -> None:
    envelope = json.dumps({**ENVELOPE, spelling: 1})
    for answer in await both(front, call(meta=json.dumps({spelling: 1})), call(meta=envelope)):
        assert answer.code == INVALID_PARAMS
    assert front.called() == []


@pytest.mark.parametrize("again", [f'"name":"{SHUT}",', f'"n\\u0061me":"{SHUT}",', f'"\\u006eame":"{SHUT}",'])
async def test_the_last_of_duplicate_members_counts_for_the_check_and_for_the_call(front: Front, again: str) -> None:
    last = [call(again), call(again, META)]
    answers = await both(front, *last)
    assert [answer.code for answer in answers] == [INVALID_PARAMS, HEADER_MISMATCH]
    assert front.called() == []
    first = f'{again}"name":"{OPEN}",'
    for answer in await both(front, call(name=first), call(meta=META, name=first)):
        assert "result" in answer.json
    assert [params["name"] for params in front.called()] == ["echo", "echo"]


async def test_duplicate_members_reach_a_server_as_one(front: Front) -> None:
    body = call('"arguments":{"text":"first","fixed":"theirs"},"__proto__":{"name":"meta"},')
    answers = await both(front, body, call('"arguments":{"text":"first"},', META))
    assert ["result" in answer.json for answer in answers] == [True, True]
    for params in front.called():
        assert params["arguments"] == {"text": "x", "fixed": "ours"}
        assert params["name"] == "echo"
    assert front.called()[0]["__proto__"] == {"name": "meta"}


async def test_of_duplicate_methods_and_ids_the_last_one_is_answered(front: Front) -> None:
    session = await initialized(front)  # type: ignore[arg-type]
    text = f'{{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{{"name":"{OPEN}"}},"method":"ping"}}'
    answer = await front.post(session, text)
    assert answer.json == {"jsonrpc": "2.0", "id": 2, "result": {}}
    answer = await front.post(session, '{"jsonrpc":"2.0","id":3,"Method":"tools/call","method":"ping","Id":4}')
    assert answer.json == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert front.called() == []


@pytest.mark.parametrize("key", ["Fixed", "FIXED", "fi\\u0078ed", "ﬁxed", "_fixed"])
async def test_no_spelling_of_a_preset_argument_reaches_the_server(front: Front, key: str) -> None:
    session = await initialized(front)  # type: ignore[arg-type]
    body = call().replace('"text":"x"', f'"text":"x","{key}":"theirs"')
    assert "result" in (await front.post(session, body)).json
    assert [params["arguments"] for params in front.called()] == [{"text": "x", "fixed": "ours"}]


@pytest.mark.parametrize(
    "body",
    [
        call().encode("utf-16"),
        call().encode("utf-16-le"),
        call().encode("utf-32"),
        b"\xef\xbb\xbf" * 2 + call().encode(),
        call().encode() + call().encode(),
        call().encode() + b"\0",
        call().replace('"x"', "1e400").encode(),
        call().replace('"x"', "NaN").encode(),
        call().replace('"x"', "'x'").encode(),
        call().replace('"x"', "0x10").encode(),
        b"/**/" + call().encode(),
        call().encode()[:-1] + b",}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
async def test_input_that_some_parsers_refuse_as_json_is_refused(front: Front, body: bytes) -> None:
    session = await initialized(front)  # type: ignore[arg-type]
    for lines in (session, MODERN_LINES):
        answer = await front.post(lines, body)
        assert (answer.status, answer.code) == (400, PARSE_ERROR)
    assert front.called() == []


@pytest.mark.parametrize(
    "overlong", [b"up__ech\xc1\xaf", b"up__ech\xe0\x81\xaf", b"up__echo\xff", b"up__\xed\xa0\x80echo"]
)
async def test_invalid_utf_8_is_never_another_spelling_of_a_name(front: Front, overlong: bytes) -> None:
    session = await initialized(front)  # type: ignore[arg-type]
    answer = await front.post(session, call().encode().replace(OPEN.encode(), overlong))
    assert answer.code == INVALID_PARAMS
    assert front.called() == []


# --- header against body ---------------------------------------------------------------------------------------


def sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Mcp-Method", ["tools/list"]),
        ("Mcp-Method", ["TOOLS/CALL"]),
        ("Mcp-Method", ["tools/call", "tools/call"]),
        ("Mcp-Method", ["tools/call, tools/list"]),
        ("Mcp-Method", []),
        ("Mcp-Name", [SHUT]),
        ("Mcp-Name", [OPEN, SHUT]),
        ("Mcp-Name", [OPEN, OPEN]),
        ("Mcp-Name", [OPEN.upper()]),
        ("Mcp-Name", [OPEN + "\xa0"]),
        ("Mcp-Name", [sentinel(SHUT)]),
        ("Mcp-Name", [sentinel(OPEN)[:-2]]),
        ("Mcp-Name", [sentinel(OPEN).replace("?base64?", "?BASE64?")]),
        ("Mcp-Name", [sentinel(OPEN).replace("?base64?", "?base64?=")]),
        ("Mcp-Name", [sentinel(sentinel(OPEN))]),
        ("Mcp-Name", []),
        ("MCP-Protocol-Version", ["2026-07-28", "2026-07-28"]),
        ("MCP-Protocol-Version", ["2026-07-28", "2025-11-25"]),
        ("MCP-Protocol-Version", []),
    ],
)
async def test_headers_that_contradict_the_body_are_refused(front: Front, name: str, values: list[str]) -> None:
    for spelled in (name, name.lower(), name.upper()):
        lines = [line for line in MODERN_LINES if line[0] != name] + [(spelled, value) for value in values]
        answer = await front.post(lines, call(meta=META))
        assert (answer.status, answer.code) == (400, HEADER_MISMATCH)
    assert front.called() == []


async def test_headers_that_spell_the_same_value_differently_are_accepted(front: Front) -> None:
    for value in (OPEN, f"  {OPEN}\t", sentinel(OPEN)):
        lines = [line for line in MODERN_LINES if line[0] != "Mcp-Name"] + [("mcp-nAME", value)]
        assert "result" in (await front.post(lines, call(meta=META))).json
    assert len(front.called()) == 3


async def test_a_batch_of_modern_requests_does_not_bypass_the_header_check(front: Front) -> None:
    session = await initialized(front, version="2025-03-26")  # type: ignore[arg-type]
    batch = f"[{call(meta=META)}]"
    answer = await front.post(MODERN_LINES, batch)
    assert (answer.status, answer.json["id"]) == (400, None)
    assert front.called() == []
    (inner,) = (await front.post(session, f"[{call(f'{chr(34)}Name{chr(34)}:1,')}]")).json
    assert inner["error"]["code"] == INVALID_PARAMS
    (refused,) = (await front.post(session, f"[{call(name=f'{chr(34)}name{chr(34)}:{json.dumps(SHUT)},')}]")).json
    assert refused["error"]["code"] == INVALID_PARAMS
    assert front.called() == []
