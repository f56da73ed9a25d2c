"""Two servers with the same resources: every URI a client finds anywhere leads to the server that said it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, PATIENCE, RpcError, StdioClient, spawned, write_config
from tests.upstream.asking.test_servers_ask_handshake_clients import ALL, asked, questions, respond

pytestmark = pytest.mark.anyio

TWIN = str(Path(__file__).with_name("twin.py"))
ERAS = ("handshake", "modern")
CELLS = [(client, server) for client in ERAS for server in ERAS]
META = {"io.modelcontextprotocol/clientCapabilities": ALL}
MENTIONED_URIS = [
    "x:one", "x:only-a", "x:only-b", "x:t/1", "x:t/a%2Fb", "x:hidden/1", "x:hidden/2", "ui://app", "ui://other",
    "mcp-hub://a/x:one", "mcp-hub://b/x:hidden/1", "mcp-hub://nobody/x:one",
]  # fmt: skip
"""In both lists, in one, of a template, in none, and what only the hub should say."""


class Reader:
    """A client that remembers every URI it finds and the server it found it at: no URI may be of both."""

    def __init__(self, client: StdioClient) -> None:
        self.client = client
        self.server_of: dict[str, str] = {}
        self._originals: dict[str, str] = {}

    def remember(self, server: str, uri: str, original: str) -> None:
        assert self.server_of.setdefault(uri, server) == server
        assert self._originals.setdefault(uri, original) == original

    def blocks(self, server: str, blocks: list[Any], uris: list[str]) -> None:
        """Links and embedded resources by turns, two for each of these."""
        exposed = [block["uri"] if block["type"] == "resource_link" else block["resource"]["uri"] for block in blocks]
        assert exposed[::2] == exposed[1::2]
        for uri, original in zip(exposed[::2], uris, strict=True):
            self.remember(server, uri, original)

    def meta(self) -> dict[str, Any]:
        return {"_meta": META} if self.client.modern else {}

    async def look(self) -> None:
        """Reads all lists and remembers their URIs: those that both servers have are told apart."""
        listed = (await self.client.request("resources/list"))["resources"]
        templates = (await self.client.request("resources/templates/list"))["resourceTemplates"]
        for item in listed:
            server = item["name"][-1] if "only" in item["name"] else "b" if item["uri"] in self.server_of else "a"
            server = "b" if item["uri"].startswith("mcp-hub://b/") else server
            self.remember(server, item["uri"], item["name"])
        assert sorted(self.server_of.values()) == ["a", "a", "a", "b", "b", "b"]
        first, second = [template["uriTemplate"] for template in templates]
        assert (first, second) == ("x:t/{id}", "mcp-hub://b/x:t/{id}")
        for server, template in (("a", first), ("b", second)):
            self.remember(server, template.replace("{id}", "listed"), "x:t/listed")
            reference = {"type": "ref/resource", "uri": template}
            params = {"ref": reference, "argument": {"name": "id", "value": ""}}
            values = (await self.client.request("completion/complete", params))["completion"]["values"]
            assert values == [server, "x:t/{id}"]
        for tool in (await self.client.request("tools/list"))["tools"]:
            self.remember(tool["name"][0], tool["_meta"]["ui"]["resourceUri"], "ui://app")
            assert tool["_meta"]["ui"]["csp"] == {}

    async def read(self, uri: str) -> None:
        first, second = (await self.client.request("resources/read", {"uri": uri}))["contents"]
        assert (first["uri"], first["text"], second["text"]) == (uri, self.server_of[uri], self.server_of[uri])
        assert first["_meta"] == {"ui": {"csp": {}}}
        self.remember(self.server_of[uri], second["uri"], self._originals[uri] + "/part")

    async def say(self, server: str, uris: list[str]) -> None:
        result = await self.client.call(f"{server}__say", {"uris": uris}, **self.meta())
        self.blocks(server, result["content"], uris)
        self.remember(server, result["_meta"]["ui/resourceUri"], "ui://app")

    async def prompt(self, server: str, uris: list[str]) -> None:
        params = {"name": f"{server}__said", "arguments": {"uris": json.dumps(uris)}, **self.meta()}
        messages = (await self.client.request("prompts/get", params))["messages"]
        self.blocks(server, [message["content"] for message in messages], uris)

    async def ask(self, server: str, uris: list[str], answered_uris: list[str]) -> None:
        """The server samples about some resources, and is answered about others."""
        result = {"role": "assistant", "model": "m", "content": [tool_result(answered_uris), *linked(answered_uris)]}
        params = {"name": f"{server}__ask", "arguments": {"uris": uris}, **self.meta()}
        if self.client.modern:
            first = await self.client.request("tools/call", params)
            ((key, question),) = first["inputRequests"].items()
            responses = {"inputResponses": {key: result}}
            if "requestState" in first:
                responses["requestState"] = first["requestState"]
            last = await self.client.request("tools/call", {**params, **responses})
        else:
            count = len(questions(self.client))
            call = self.client.start("tools/call", params)
            question = (await asked(self.client, count + 1))[-1]
            respond(self.client, question, result=result)
            async with asyncio.timeout(PATIENCE):
                last = (await call)["result"]
        single, listed = [message["content"] for message in question["params"]["messages"]]
        assert [single] == listed
        self.blocks(server, single["content"], uris)
        expected = [self._originals[uri] if self.server_of[uri] == server else uri for uri in answered_uris]
        expected_result = {"role": "assistant", "model": "m", "content": [tool_result(expected), *linked(expected)]}
        assert json.loads(last["content"][0]["text"]) == expected_result


def linked(uris: list[str]) -> list[Any]:
    return [{"type": "resource_link", "uri": uri, "name": "n"} for uri in uris]


def tool_result(uris: list[str]) -> dict[str, Any]:
    embedded = [{"type": "resource", "resource": {"uri": uri, "text": "t"}} for uri in uris]
    return {"type": "tool_result", "toolUseId": "1", "content": [*linked(uris), *embedded]}


@contextlib.asynccontextmanager
async def reader(directory: Path, client_era: str, server_era: str) -> AsyncIterator[Reader]:
    servers = {name: {"command": sys.executable, "args": [TWIN, name, server_era]} for name in "ab"}
    config = write_config(directory, servers, list_wait=PATIENCE)
    async with spawned([*HUB, "serve", "--config", str(config)], modern=client_era == "modern") as client:
        if client_era == "handshake":
            info = {"name": "raw", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": ALL, "clientInfo": info}
            await client.request("initialize", params)
            client.notify("notifications/initialized")
        yield Reader(client)


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_every_uri_in_any_message_leads_to_the_server_that_sent_it(
    tmp_path: Path, client_era: str, server_era: str
) -> None:
    rng = random.Random(f"{client_era} {server_era}")
    async with reader(tmp_path, client_era, server_era) as client:
        await client.look()
        for _ in range(60):
            server, uris = rng.choice("ab"), rng.sample(MENTIONED_URIS, rng.randint(1, 3))
            sample = rng.sample(sorted(client.server_of), 3)
            match rng.choice(("read", "say", "prompt", "ask")):
                case "read":
                    await client.read(sample[0])
                case "say":
                    await client.say(server, uris)
                case "prompt":
                    await client.prompt(server, uris)
                case _:
                    await client.ask(server, uris, sample)
        for uri in sorted(client.server_of):
            await client.read(uri)


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_resource_updates_use_the_subscribed_uri(tmp_path: Path, client_era: str, server_era: str) -> None:
    async with reader(tmp_path, client_era, server_era) as visitor:
        await visitor.look()
        client, listened = visitor.client, None
        uris = ["x:one", "mcp-hub://b/x:one", "mcp-hub://b/x:two"]
        if client_era == "modern":
            listened = client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
            (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
            assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": uris}
        else:
            for uri in uris:
                await client.request("resources/subscribe", {"uri": uri})
        for server, original in (("b", "x:two"), ("a", "x:two"), ("b", "x:one"), ("a", "x:one")):
            await client.call(f"{server}__touch", {"uri": original}, **visitor.meta())
        updated = await client.notified("notifications/resources/updated", 3)
        assert sorted(message["params"]["uri"] for message in updated) == sorted(uris)
        assert listened is None or not listened.done()


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_an_error_names_the_resource_as_the_client_did(tmp_path: Path, client_era: str, server_era: str) -> None:
    async with reader(tmp_path, client_era, server_era) as visitor:
        await visitor.look()
        (first,) = (await visitor.client.call("a__say", {"uris": ["x:none"]}, **visitor.meta()))["content"][:1]
        (second,) = (await visitor.client.call("b__say", {"uris": ["x:none"]}, **visitor.meta()))["content"][:1]
        assert (first["uri"], second["uri"]) == ("x:none", "mcp-hub://b/x:none")
        for uri in (first["uri"], second["uri"]):
            with pytest.raises(RpcError) as missing:
                await visitor.client.request("resources/read", {"uri": uri})
            assert missing.value.error["data"] == {"uri": uri}
            assert missing.value.code == (-32602 if "modern" in (client_era, server_era) else -32002)


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_the_content_of_an_elicitation_is_never_rewritten(
    tmp_path: Path, client_era: str, server_era: str
) -> None:
    answer = {"action": "accept", "content": {"type": "resource_link", "uri": "mcp-hub://b/x:one"}}
    async with reader(tmp_path, client_era, server_era) as visitor:
        client = visitor.client
        await visitor.look()
        params = {"name": "b__ask", "arguments": {"uris": []}, **visitor.meta()}
        if client.modern:
            first = await client.request("tools/call", params)
            ((key, _),) = first["inputRequests"].items()
            state = {"requestState": first["requestState"]} if "requestState" in first else {}
            last = await client.request("tools/call", {**params, **state, "inputResponses": {key: answer}})
        else:
            call = client.start("tools/call", params)
            (question,) = await asked(client)
            respond(client, question, result=answer)
            async with asyncio.timeout(PATIENCE):
                last = (await call)["result"]
        assert json.loads(last["content"][0]["text"]) == answer
