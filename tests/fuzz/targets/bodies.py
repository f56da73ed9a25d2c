"""HTTP requests to the app: any headers and any body get a valid answer, and an upstream gets only what was checked.

The app, the dispatcher, the hub and the process behind it are real; what that process has been asked is read from its
own record. What it should have been asked is worked out anew here, by the standard library.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.downstream.raw_http import ENVELOPE
from tests.fuzz.front import ARGUMENTS, CALL, JSON, OPEN_TOOLS, Answer, front
from tests.fuzz.supply import Supply, split

TOKENS = (
    *(
        b'"name":"up__meta",',
        b'"name":"up__crash",',
        b'"Name":"up__echo",',
        b'"n\\u0061me":"up__meta",',
        b'"id":2,',
        b'"Id":2,',
    ),
    *(
        b'"method":"ping",',
        b'"Method":"tools/call",',
        b'"arguments":{"text":"y"},',
        b'"Arguments":{},',
        b'"__proto__":{"name":"x"},',
    ),
    *(
        b'"jsonrpc":"1.0",',
        b'"jsonrpc":"2.0",',
        b'"params":{},',
        b'"_meta":{},',
        b'"_Meta":{},',
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b'"',
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xc0\xaf",
        b"\xff",
        b"\0",
        b"\\u0000",
        b"\\ud800",
        b"NaN",
        b"1e400",
        b"9" * 30,
        b" ",
        b"\n",
    ),
    *(
        b"null",
        b"true",
        b'"progressToken":1,',
        b'"progresstoken":1,',
        b"tools/list",
        b"up__echo",
        b"up__meta",
        b"up__crash",
        b"2.0",
    ),
)
SEEDS = tuple(bytes([kind, 0, 0, 0]) for kind in range(8)) + tuple(
    bytes([kind, edits, 0, 70, 3, 1, 0, 20, 0, 9, header, 1, value])
    for kind in (0, 1, 2)
    for edits in (1, 2)
    for header in range(8)
    for value in range(3)
)

_MODERN = [(b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", b"tools/call"), (b"mcp-name", b"up__echo")]
HEADERS = (
    *(b"host", b"content-type", b"accept", b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"),
    *(b"content-length", b"origin", b"authorization", b"last-event-id", b"mcp-param-text", b"x-forwarded-for"),
)
VALUES = (
    *(
        b"",
        b"localhost",
        b"evil.example",
        b"application/json",
        b"text/plain",
        b"text/event-stream",
        b"*/*;q=0",
        b"2026-07-28",
    ),
    *(
        b"2025-11-25",
        b"1999-01-01",
        b"tools/call",
        b"tools/list",
        b"TOOLS/CALL",
        b"up__echo",
        b"up__meta",
        b"up__echo\xa0",
    ),
    *(
        b"=?base64?" + base64.b64encode(b"up__echo") + b"?=",
        b"=?base64?dXBfX21ldGE=?=",
        b"=?base64?!?=",
        b"5",
        b"999999999",
        b"-1",
    ),
)
PATHS = ("/mcp", "/mcp", "/mcp", "/mcp/", "/sse", "/messages", "/healthz", "/", "//mcp", "/MCP", "/mcp/../healthz")
METHODS = ("POST", "POST", "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT")
STATUSES = {200, 202, 204, 400, 403, 404, 405, 406, 409, 413, 415, 421, 503}


def target(data: bytes) -> None:
    supply = Supply(data)
    kind = supply.below(8)
    method, path, headers, body = _request(kind, supply)
    harness = front()
    answer = harness.runner.run(harness.exchange(method, path, headers, split(body, supply.cuts(4))))
    if method == "DELETE" and answer.status == 204:
        harness.runner.run(harness.handshake())  # the session has ended; the next text finds one again
    _check_answer(method, answer)
    expected_calls = _calls_in(body)
    for call in harness.calls():
        name, arguments = call["name"], call.get("arguments", {})
        assert method == "POST", "a call without a POST"
        assert path.rstrip("/") == "/mcp", "a call by another path"
        assert name in OPEN_TOOLS, "what is not enabled was called"
        signature = ("up__" + name, json.dumps(arguments, sort_keys=True))
        assert signature in expected_calls, f"{signature} was asked for by nobody: {body!r}"
        strangers = {folded for key in call if (folded := key.casefold()) != key}
        assert not strangers & {"name", "arguments", "_meta", "uri"}, "two spellings of one member were passed on"
        _check_headers(headers, body, "up__" + name)


def _request(kind: int, supply: Supply) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
    harness = front()
    if kind == 0:
        lines, value = [*JSON, *_MODERN], {**CALL, "params": {**ARGUMENTS, "_meta": ENVELOPE}}
    elif kind == 3:
        lines, value = harness.in_session(), [{**CALL, "params": ARGUMENTS}, {**CALL, "id": 2, "params": ARGUMENTS}]  # type: ignore[assignment]
    elif kind == 4:
        lines, value = [*JSON, *_MODERN], {**CALL, "method": "server/discover", "params": {"_meta": ENVELOPE}}
    else:
        lines, value = harness.in_session(), {**CALL, "params": ARGUMENTS}
    body = bytearray(json.dumps(value, separators=(",", ":")).encode())
    for _ in range(supply.below(5)):
        at = supply.below(65536) % (len(body) + 1)
        put = supply.one_of(TOKENS) if supply.below(3) else supply.piece(8)
        body[at : at + supply.below(4)] = put
    if kind == 7:
        body = bytearray(supply.piece(200))
    for _ in range(supply.below(4)):
        name = supply.one_of(HEADERS)
        value_of = supply.one_of(VALUES) if supply.below(4) else supply.piece(20)
        if supply.below(2):
            lines = [line for line in lines if line[0] != name]
        lines.append((name, value_of))
    return supply.one_of(METHODS), supply.one_of(PATHS), lines, bytes(body)


def _check_answer(method: str, answer: Answer) -> None:
    assert answer.status in STATUSES, f"status {answer.status}: {answer.body[:200]!r}"
    assert answer.ended or answer.streams
    names = [name for name, _ in answer.headers]
    assert len(names) == len(set(names)), "a header was said twice"
    if method == "HEAD":
        assert answer.body == b"", "an answer to HEAD has a body"
    elif (b"content-type", b"application/json") in answer.headers:
        value = json.loads(answer.body)
        for message in value if isinstance(value, list) else [value]:
            assert message.get("status") in ("ok", "stopping") or _is_response(message), message
    elif answer.streams:
        for event in answer.body.split(b"\n\n"):
            for line in event.split(b"\n"):
                assert line.split(b":")[0] in (b"", b"id", b"retry", b"data", b"event"), line


def _is_response(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0" or "id" not in value:
        return False
    if "result" in value:
        return "error" not in value
    return isinstance(value["error"]["code"], int) and isinstance(value["error"]["message"], str)


def _calls_in(body: bytes) -> list[tuple[str, str]]:
    """(name, arguments) of the calls in a body, in the one reading that counts: of equal members the last."""
    try:
        value = json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return []
    calls = []
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict) and entry.get("method") == "tools/call" and isinstance(entry.get("params"), dict):
            params = entry["params"]
            calls.append((params.get("name"), json.dumps(params.get("arguments", {}), sort_keys=True)))
    return calls


def _check_headers(headers: list[tuple[bytes, bytes]], body: bytes, name: str) -> None:
    """Checks a call that was let through: in the modern era its headers say what its body says, once each."""
    value = json.loads(body.decode("utf-8-sig", "replace"))
    meta = value.get("params", {}).get("_meta") if isinstance(value, dict) else None
    values = {key: [line.strip(b" \t") for at, line in headers if at == key] for key in HEADERS}
    assert len(values[b"host"]) == 1
    assert values[b"content-type"][0].partition(b";")[0].strip().lower() == b"application/json"
    if isinstance(meta, dict) and "io.modelcontextprotocol/protocolVersion" in meta:
        assert values[b"mcp-protocol-version"] == [meta["io.modelcontextprotocol/protocolVersion"].encode()]
        assert values[b"mcp-method"] == [b"tools/call"]
        encoded = b"=?base64?" + base64.b64encode(name.encode()) + b"?="
        assert len(values[b"mcp-name"]) == 1
        assert values[b"mcp-name"][0] in (name.encode(), encoded)
