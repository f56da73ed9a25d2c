"""A link to a resource gives its reader the way there, and nothing that a rule refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.fronts import FIXTURE, ROOT
from tests.fakes.client import RpcError, StdioClient, hub
from tests.fakes.forks import python_with_sdk

pytestmark = pytest.mark.anyio


def server(name: str, **keys: Any) -> dict[str, Any]:
    entry = {"command": python_with_sdk(), "args": [*FIXTURE[1:], "stdio"], "cwd": str(ROOT), "env": {"NAME": name}}
    return {**entry, **keys}


@pytest.fixture(params=[False, True], ids=["handshake", "modern"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StdioClient]:
    hidden = {"disable_resources": ["test://hidden/*", "test://who"]}
    servers = {"a": server("a"), "b": server("b"), "closed": server("closed", **hidden)}
    async with hub(tmp_path, servers, modern=request.param, list_wait=20) as client:
        await client.tool_names()
        yield client


async def linked(client: StdioClient, name: str, uri: str) -> str:
    result = await client.call(f"{name}__link", {"uri": uri})
    return str(result["content"][0]["uri"])


async def read(client: StdioClient, uri: str) -> str:
    (content,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    return str(content["text"])


async def test_an_unlisted_resource_is_unknown_until_a_result_links_to_it(client: StdioClient) -> None:
    with pytest.raises(RpcError):
        await read(client, "test://hidden/1")
    assert await linked(client, "b", "test://hidden/1") == "test://hidden/1"
    assert await read(client, "test://hidden/1") == "b"
    second_uri = await linked(client, "a", "test://hidden/1")
    assert (await read(client, second_uri), await read(client, "test://hidden/1")) == ("a", "b")


async def test_a_link_to_a_refused_resource_answers_like_an_unknown_one(client: StdioClient) -> None:
    with pytest.raises(RpcError) as unknown:
        await read(client, "mcp-hub://closed/test://nothing")
    for uri in ("test://hidden/2", "test://who"):
        exposed = await linked(client, "closed", uri)
        with pytest.raises(RpcError) as refused:
            await read(client, exposed)
        assert refused.value.code == unknown.value.code
        assert refused.value.error["message"].replace(exposed, "URI") == unknown.value.error["message"].replace(
            "mcp-hub://closed/test://nothing", "URI"
        )


async def test_a_link_does_not_bypass_a_rule_about_a_template(tmp_path: Path) -> None:
    template, uri = "test://template/{id}/data", "test://template/7/data"
    servers = {"free": server("free"), "ruled": server("ruled", disable_resources=[template])}
    async with hub(tmp_path, servers, list_wait=20) as client:
        await client.tool_names()
        for name in servers:
            exposed = await linked(client, name, uri)
            if name == "free":
                assert '"of": "free"' in await read(client, exposed)
                continue
            with pytest.raises(RpcError):
                await read(client, exposed)
        assert await read(client, "mcp-hub://ruled/test://static-text")
