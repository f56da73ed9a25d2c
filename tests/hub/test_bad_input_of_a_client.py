"""What is wrong with a client's message is answered as specified, and the hub goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream.stdio import MAX_LINE
from mcp_hub.protocol.era import CAPABILITIES_KEY, MAX_DECLARED, MAX_TOKEN
from tests.fakes.client import ENVELOPE, RpcError, fake, hub

pytestmark = pytest.mark.anyio

UNREADABLE: list[tuple[bytes, int]] = [
    (b"this is no JSON", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":', -32700),
    (b"[" * 100_000, -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e400}}', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
    (b"[]", -32600),
    (b"[1]", -32600),
    (b"42", -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":"%s","method":"ping"}' % (b"i" * (MAX_TOKEN + 1)), -32600),
]

WRONG: list[tuple[str, Any, int]] = [
    ("no/such/method", {}, -32601),
    ("tools/call", {}, -32602),
    ("tools/call", {"name": 7}, -32602),
    ("tools/call", {"name": "up__echo", "arguments": [1]}, -32602),
    ("tools/call", {"name": "up__nothing"}, -32602),
    ("tools/call", {"name": "echo"}, -32602),
    ("tools/call", {"name": "up__echo", "_meta": 5}, -32602),
    ("tools/call", {"name": "up__pid", "_meta": {"progressToken": "t" * (MAX_TOKEN + 1)}}, -32602),
    ("tools/call", {"name": "up__echo", "Name": "up__add"}, -32602),
    ("tools/call", {"name": "up__echo", "ARGUMENTS": {}}, -32602),
    ("resources/read", {"uri": "mcp-hub://%FF/x"}, -32002),
    ("resources/subscribe", {"uri": "mcp-hub://%FF/x"}, -32002),
    ("tools/list", {"cursor": 5}, -32602),
    ("tools/list", {"cursor": "garbage"}, -32602),
    ("prompts/get", {"name": "nothing"}, -32602),
    ("resources/read", {"uri": "fake://nobody/x"}, -32002),
    ("resources/read", {}, -32602),
    ("completion/complete", {"ref": {"type": "ref/other"}}, -32602),
    ("completion/complete", {"ref": {"type": ["ref/prompt"]}}, -32602),
    ("completion/complete", {"ref": {"type": {}}}, -32602),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet", "NAME": "x"}, "argument": {}}, -32602),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "nothing"}, "argument": {}}, -32602),
]


@pytest.mark.parametrize(("line", "code"), UNREADABLE)
async def test_an_unreadable_message_is_answered_without_an_id_and_the_next_one_served(
    tmp_path: Path, line: bytes, code: int
) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        client.send_raw(line + b"\n")
        await client.until(lambda: client.unmatched)
        (answer,) = client.unmatched
        assert answer["id"] is None
        assert answer["error"]["code"] == code
        assert await client.request("ping") == {}


@pytest.mark.parametrize(("method", "params", "code"), WRONG)
async def test_an_invalid_request_is_answered_with_its_error_code(
    tmp_path: Path, method: str, params: Any, code: int
) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        with pytest.raises(RpcError) as caught:
            await client.request(method, params)
        assert caught.value.code == code
        assert await client.text("up__echo", {"text": "next"}) == "next"


async def test_capabilities_that_are_too_long_are_refused_and_the_client_can_begin_anew(tmp_path: Path) -> None:
    largest = {"experimental": {"x": "x" * (MAX_DECLARED - 200)}}
    icons = [{"src": "data:image/png;base64," + "A" * 200_000}]
    info = {"name": "n" * 10_000, "version": "1", "icons": icons}
    async with hub(tmp_path, {"up": fake()}, handshake=False) as client:
        for declared in ({"experimental": {"x": "x" * MAX_DECLARED}}, {"experimental": [[]] * (MAX_DECLARED // 16)}):
            with pytest.raises(RpcError) as caught:
                await client.request("initialize", {"capabilities": declared, "clientInfo": info})
            assert caught.value.code == -32602
            modern = {**ENVELOPE, CAPABILITIES_KEY: declared}
            with pytest.raises(RpcError) as caught:
                await client.request("tools/list", {"_meta": modern})
            assert caught.value.code == -32602
        answer = await client.request("initialize", {"capabilities": largest, "clientInfo": info})
        assert answer["serverInfo"]["name"] == "mcp-hub"


@pytest.mark.parametrize(
    ("first", "last", "id"),
    [
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"', b'"}}', "a"),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"', b'"},"id":7}', 7),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"result":"', b'"}}', "a"),
        (b'{"jsonrpc":"2.0","id":"a","result":{"content":[{"text":"', b'"}],"method":"x"}}', None),
        (b'{"jsonrpc":"2.0","params":{"id":"a","method":"', b'"}}', None),
    ],
)
async def test_an_oversized_request_is_answered_with_its_id(
    tmp_path: Path, first: bytes, last: bytes, id: str | int | None
) -> None:
    async with hub(tmp_path, {}) as client:
        client.send_raw(first + b"x" * MAX_LINE + last + b"\n")
        await client.until(lambda: client.unmatched)
        assert client.unmatched[0]["error"]["code"] == -32600
        assert client.unmatched[0]["id"] == id
        assert await client.request("ping") == {}


@pytest.mark.parametrize("method", [b"7", b"[]", b"{}", b"null"])
async def test_a_method_that_is_not_a_text_is_refused(tmp_path: Path, method: bytes) -> None:
    async with hub(tmp_path, {}) as client:
        client.send_raw(b'{"jsonrpc":"2.0","id":"a","method":' + method + b"}\n")
        await client.until(lambda: client.unmatched)
        assert client.unmatched[0]["error"]["code"] == -32600
        assert await client.request("ping") == {}


async def test_null_in_place_of_what_may_be_absent_is_read_as_absent(tmp_path: Path) -> None:
    async with hub(tmp_path, {"fake": fake()}) as client:
        called = await client.request("tools/call", {"name": "fake__pid", "arguments": None, "_meta": None})
        assert called["content"][0]["text"].isdigit()
        for method in ("tools/list", "prompts/list", "resources/list"):
            await client.request(method, {"cursor": None, "_meta": None})
        prompt = (await client.request("prompts/list"))["prompts"][0]["name"]
        assert await client.request("prompts/get", {"name": prompt, "arguments": None})


async def test_null_in_the_arguments_of_hub_call_is_read_as_absent(tmp_path: Path) -> None:
    async with hub(tmp_path, {"fake": fake()}, meta_tools=True, code_mode={"writes": True}) as client:
        assert (await client.text("hub_call", {"tool": "fake__pid", "arguments": None})).isdigit()


async def test_params_that_are_no_object_are_refused(tmp_path: Path) -> None:
    async with hub(tmp_path, {}) as client:
        client.send_raw(b'{"jsonrpc":"2.0","id":"a","method":"tools/list","params":[1]}\n')
        await client.until(lambda: client.unmatched)
        assert client.unmatched[0]["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, -32602),
        ({**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}, -32022),
        ({**ENVELOPE, "io.modelcontextprotocol/protocolVersion": 7}, -32602),
        ({**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
    ],
)
async def test_an_invalid_modern_envelope_is_refused(tmp_path: Path, meta: dict[str, Any], code: int) -> None:
    async with hub(tmp_path, {}, handshake=False) as client:
        with pytest.raises(RpcError) as caught:
            await client.request("tools/list", {"_meta": meta})
    assert caught.value.code == code


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"])
async def test_methods_removed_in_the_modern_era_are_unknown_to_a_modern_client(tmp_path: Path, method: str) -> None:
    async with hub(tmp_path, {}, modern=True) as client:
        with pytest.raises(RpcError) as caught:
            await client.request(method, {})
    assert caught.value.code == -32601


async def test_a_modern_client_gets_minus_32602_for_an_unknown_resource(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}, modern=True) as client:
        with pytest.raises(RpcError) as caught:
            await client.request("resources/read", {"uri": "fake://nobody/x"})
    assert caught.value.code == -32602


async def test_a_request_id_in_use_is_refused_and_the_first_request_continues(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        await client.tool_names()
        first = client.start("tools/call", {"name": "up__sleep", "arguments": {"seconds": 0.5}}, request_id="same")
        client.send_raw(b'{"jsonrpc":"2.0","id":"same","method":"ping"}\n')
        refused = await first
        assert refused["error"]["code"] == -32600
        await client.until(lambda: client.unmatched)
        assert client.unmatched[0]["result"]["content"][0]["text"] == "slept"


async def test_a_batch_is_answered_as_a_batch_in_the_revision_with_batches(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}, handshake=False) as client:
        assert (await client.initialize("2025-03-26"))["protocolVersion"] == "2025-03-26"
        batch = [
            {"jsonrpc": "2.0", "id": "a", "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nothing"}},
            {"jsonrpc": "2.0", "id": "b", "method": "no/such"},
        ]
        client.send_raw(json.dumps(batch).encode() + b"\n")
        await client.until(lambda: client.unmatched)
        first, second = client.unmatched[0]
        assert first == {"jsonrpc": "2.0", "id": "a", "result": {}}
        assert (second["id"], second["error"]["code"]) == ("b", -32601)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_handshake_revision_is_accepted(tmp_path: Path, version: str) -> None:
    async with hub(tmp_path, {}, handshake=False) as client:
        assert (await client.initialize(version))["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", None])
async def test_an_unknown_revision_is_answered_with_the_newest_handshake_one(tmp_path: Path, version: Any) -> None:
    async with hub(tmp_path, {}, handshake=False) as client:
        assert (await client.initialize(version))["protocolVersion"] == "2025-11-25"
