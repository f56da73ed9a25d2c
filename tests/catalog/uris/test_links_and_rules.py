"""A link to a resource gives its reader the way there, and nothing that a rule refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.fronts import FIXTURE, ROOT
from tests.downstream.network.visitor import ERAS, TOKENS, Visitor, network_hub, visiting
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


@pytest.mark.parametrize("era", ERAS)
async def test_an_unlisted_resource_is_readable_only_by_the_caller_that_was_given_the_link(
    tmp_path: Path, era: str
) -> None:
    listen = {"principals": {name: TOKENS[name] for name in ("alice", "bob")}}
    async with (
        network_hub(tmp_path, {"a": server("a")}, listen, list_wait=20) as (_, base),
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
        visiting(base, "handshake", TOKENS["alice"]) as alices_other_session,
    ):
        await alice.names("tools/list")
        given = (await alice.call("a__link", {"uri": "test://hidden/1"}))["result"]["content"][0]["uri"]
        (content,) = (await alice.ask("resources/read", {"uri": given}))["result"]["contents"]
        assert content["text"] == "a"
        for other in (bob, alices_other_session):
            assert await refusal(other, given) == await refusal(other, "test://hidden/2")


async def refusal(visitor: Visitor, uri: str) -> int:
    code: int = (await visitor.ask("resources/read", {"uri": uri}))["error"]["code"]
    return code


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
