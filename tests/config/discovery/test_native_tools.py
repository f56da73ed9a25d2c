"""REST endpoints as tools, from their files to what the endpoint is asked and what a client is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.config.discovery.api import Api, serving
from tests.config.discovery.written import write
from tests.fakes.client import PATIENCE, StdioClient, hub
from tests.transport.forward_proxy import forwarding

pytestmark = pytest.mark.anyio
KEY = "key-of-the-endpoint-4711"


def files(directory: Path, api: Api) -> None:
    """Every way to say something, one endpoint each."""
    native = directory / "tools/native"
    write(
        native,
        "search.yaml",
        f"""
        description: Look for things.
        api_url: {api.url}/echo/{{index}}?v=2
        auth_method: api_key
        api_key: ${{file:{directory}/key}}
        parameters:
          index: {{type: string, enum: [books, films]}}
          q: {{type: string, required: true, description: what to look for}}
          limit: {{type: integer, default: 5}}
          X-Lang: {{type: string, where: header}}
    """,
    )
    write(native, "items.toml", f'api_url = "{api.url}/echo"\nresult = "/list/0"\n')
    write(native, "several.json", {
        "api_key": KEY,
        "tools": [
            {"name": "create", "api_url": f"{api.url}/echo", "method": "post", "auth_method": "bearer",
             "parameters": [{"name": "title", "required": True}, {"name": "done", "type": "boolean"}],
             "preset": {"done": True}},
            {"name": "denied", "api_url": f"{api.url}/status/403"},
            {"name": "failing", "api_url": f"{api.url}/status/503"},
            {"name": "long", "api_url": f"{api.url}/long", "max_bytes": 5000},
            {"name": "empty", "api_url": f"{api.url}/empty", "method": "DELETE"},
            {"name": "moved", "api_url": f"{api.url}/moved"},
            {"name": "moved_post", "api_url": f"{api.url}/moved", "method": "POST"},
            {"name": "elsewhere", "api_url": f"{api.url}/elsewhere"},
            {"name": "astray", "api_url": f"{api.url}/echo", "result": "/nowhere"},
        ],
    })  # fmt: skip
    write(
        native,
        "login.yaml",
        f"""
        {{name: login, api_url: "{api.url}/echo", auth_method: basic, username: me, password: pass-word-4711}}
    """,
    )
    (directory / "key").write_text(KEY)


def code(result: dict[str, Any]) -> str:
    assert result["isError"] is True
    return str(result["_meta"]["mcp-hub/error"]["code"])


async def test_native_tools_send_the_requests_their_files_describe(tmp_path: Path) -> None:
    """Checks 44 and 47, of native tools."""
    with serving() as api, serving() as other_api:
        api.elsewhere = f"{other_api.url}/echo"
        files(tmp_path, api)
        async with hub(tmp_path, {}, list_wait=PATIENCE) as client:
            listed = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
            await assert_parameters_are_sent(client, api, listed["local__search"])
            await assert_a_body_is_sent(client, api, listed["local__create"])
            await assert_failures_are_reported(client)
            await assert_redirects_stay_on_the_api(client, api, other_api)
            assert KEY.encode() not in client.stderr
            assert b"pass-word-4711" not in client.stderr


async def assert_parameters_are_sent(client: StdioClient, api: Api, listed: dict[str, Any]) -> None:
    assert listed["description"] == "Look for things."
    assert listed["_meta"] == {"mcp-hub/source": "native"}
    assert listed["inputSchema"]["required"] == ["index", "q"]
    assert listed["annotations"]["readOnlyHint"] is True
    result = await client.call("local__search", {"index": "books", "q": "a&b=ü", "X-Lang": "de"})
    request = api.requests[-1]
    assert request.path == "/echo/books?v=2&q=a%26b%3D%C3%BC&limit=5"
    assert (request.headers["x-api-key"], request.headers["x-lang"]) == (KEY, "de")
    assert result["structuredContent"]["path"] == request.path
    assert json.loads(result["content"][0]["text"])["list"] == [{"n": 2**70}]
    assert json.loads(await client.text("local__items")) == {"n": 2**70}
    count = len(api.requests)
    for wrong in ({"index": "maps", "q": "x"}, {"index": "books"}, {"index": "books", "q": "x", "limit": "many"}):
        assert code(await client.call("local__search", wrong)) == "invalid_parameters"
    assert len(api.requests) == count
    await client.call("local__login")
    assert api.requests[-1].headers["authorization"] == "Basic bWU6cGFzcy13b3JkLTQ3MTE="


async def assert_a_body_is_sent(client: StdioClient, api: Api, listed: dict[str, Any]) -> None:
    assert list(listed["inputSchema"]["properties"]) == ["title"]
    await client.call("local__create", {"title": "ä"})
    request = api.requests[-1]
    assert (request.method, request.headers["authorization"]) == ("POST", f"Bearer {KEY}")
    assert json.loads(request.body) == {"title": "ä", "done": True}


async def assert_failures_are_reported(client: StdioClient) -> None:
    denied = await client.call("local__denied")
    assert code(denied) == "permission_denied"
    assert KEY not in json.dumps(denied)
    failing = await client.call("local__failing")
    assert code(failing) == "tool_error"
    assert failing["_meta"]["mcp-hub/status"] == 503
    assert failing["_meta"]["mcp-hub/error"]["retryable"] is True
    assert code(await client.call("local__long")) == "result_too_large"
    assert code(await client.call("local__astray")) == "tool_error"
    assert "204" in await client.text("local__empty")


async def assert_redirects_stay_on_the_api(client: StdioClient, api: Api, other_api: Api) -> None:
    await client.call("local__moved")
    assert [(request.path, request.headers["x-api-key"]) for request in api.requests[-2:]] == [
        ("/moved", KEY),
        ("/echo/moved", KEY),
    ]
    refused = await client.call("local__elsewhere")
    assert code(refused) == "tool_error"
    assert f"redirects to {other_api.url}, which is not followed: set that as api_url" in refused["content"][0]["text"]
    assert other_api.requests == []
    count = len(api.requests)
    refused = await client.call("local__moved_post")
    assert code(refused) == "tool_error"
    text = "redirects a POST (status 302), which is not followed: set the URL in its Location header as api_url"
    assert text in refused["content"][0]["text"]
    assert len(api.requests) == count + 1


async def test_an_unreachable_endpoint_affects_only_its_own_tool(tmp_path: Path) -> None:
    with serving() as api:
        pass
    write(tmp_path, "tools/native/gone.yaml", {"api_url": f"{api.url}/echo?token=secret-in-the-query"})
    async with hub(tmp_path, {}, list_wait=PATIENCE) as client:
        result = await client.call("local__gone")
        assert code(result) == "server_unavailable"
        assert "secret-in-the-query" not in json.dumps(result) + client.stderr.decode()


async def test_a_lost_answer_to_a_request_that_changes_things_says_that_they_may_have_changed(tmp_path: Path) -> None:
    with serving() as api:
        for method in ("get", "post"):
            tool = {"api_url": f"{api.url}/dropped", "method": method.upper()}
            write(tmp_path, f"tools/native/{method}.yaml", tool)
        async with hub(tmp_path, {}, list_wait=PATIENCE) as client:
            for method in ("get", "post"):
                result = await client.call(f"local__{method}")
                assert code(result) == "server_unavailable"
                assert ("may have happened" in result["content"][0]["text"]) is (method == "post")
        assert [request.method for request in api.requests] == ["GET", "POST"]


async def test_an_answer_in_an_encoding_that_is_none_of_texts_holds_nothing_up(tmp_path: Path) -> None:
    charsets = ("punycode", "idna", "undefined", "hex")
    with serving() as api:
        for charset in charsets:
            write(tmp_path, f"tools/native/{charset}.yaml", {"api_url": f"{api.url}/charset/{charset}"})
        async with hub(tmp_path, {}, list_wait=PATIENCE) as client:
            for charset in charsets:
                result = await client.call(f"local__{charset}")
                assert code(result) == "tool_error"
                assert "answered with text/plain, not text" in result["content"][0]["text"]


async def test_a_native_tool_uses_the_root_proxy_which_resolves_the_host_name(
    tmp_path: Path,
) -> None:
    with serving() as api:
        port = int(api.url.rpartition(":")[2])
        write(tmp_path / "tools/native", "far.yaml", 'api_url: "http://api.example/echo"')
        async with (
            forwarding(hosts={"api.example": port}, user="me", password="w0rd") as proxy,
            hub(tmp_path, {}, list_wait=PATIENCE, proxy=f"http://me:w0rd@127.0.0.1:{proxy.port}") as client,
        ):
            result = await client.call("local__far")
            assert not result.get("isError"), result
            assert proxy.asked == ["GET http://api.example/echo"]
