"""A client of a hub before the server of the suite: it lists everything and uses it, as the suite's own client does.

What a scenario wants beside that, the suite says by environment.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.conformance import signing_in
from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned, write_config

CAPABILITIES: Final = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
DECLARED: Final = {"_meta": {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}}
PREFIX: Final = "suite__"
"""What the hub puts before the names of the suite's tools."""
VALUES: Final[dict[Any, Any]] = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}

Json = dict[str, Any]


def filled_form(schema: Json) -> Json:
    """A form sent off as it is: every field with its default."""
    properties = schema.get("properties", {})
    return {name: field.get("default", VALUES.get(field.get("type"))) for name, field in properties.items()}


def answer(method: str, params: Json) -> Json:
    """What the user of this client says."""
    if method == "roots/list":
        return {"roots": []}
    if method == "sampling/createMessage":
        return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "yes"}}
    return {"action": "accept", "content": filled_form(params.get("requestedSchema", {}))}


class Driver:
    """One client of the hub."""

    def __init__(self, client: StdioClient) -> None:
        self._client = client
        self._answered = 0

    async def shake_hands(self) -> None:
        """Shake hands, if it is of that era."""
        if self._client.modern:
            return
        info = {"name": "driver", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": info}
        await self._client.request("initialize", params)
        self._client.notify("notifications/initialized")

    async def ask(self, method: str, params: Json) -> Json:
        """The final result of a request, its questions answered on the way."""
        continuation: Json = {}
        while True:
            pending = self._client.start(
                method, {**params, **(DECLARED if self._client.modern else {}), **continuation}
            )
            async with asyncio.timeout(PATIENCE):
                while not pending.done():
                    await self._client.until(partial(self._has_news, pending))
                    self._answer_all()
            message: Json = await pending
            result = message.get("result", {})
            if result.get("resultType") != "input_required":
                return message
            continuation = {
                "inputResponses": {key: answer(**question) for key, question in result["inputRequests"].items()}
            }
            if "requestState" in result:
                continuation["requestState"] = result["requestState"]

    def _has_news(self, pending: asyncio.Future[Any]) -> bool:
        return pending.done() or bool(self._questions())

    def _questions(self) -> list[Json]:
        questions = [message for message in self._client.notifications if "id" in message]
        return questions[self._answered :]

    def _answer_all(self) -> None:
        for question in self._questions():
            self._answered += 1
            result = answer(question["method"], question.get("params", {}))
            response = {"jsonrpc": "2.0", "id": question["id"], "result": result}
            self._client.send_raw(json.dumps(response).encode() + b"\n")


async def call(driver: Driver, config: Path, params: Json) -> None:
    """Call a tool, and sign in in between if the hub says so."""
    for _ in range(signing_in.ROUNDS):
        if not signing_in.asks_for_login(await driver.ask("tools/call", params)):
            return
        await signing_in.login(config, "suite")


async def use_everything(driver: Driver, config: Path, tool_calls: list[Json]) -> None:
    """List and use tools, resources and prompts; `tool_calls` are those the scenario asks for."""
    tools = (await driver.ask("tools/list", {}))["result"]["tools"]
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    exposed_names = {name.removeprefix(PREFIX): name for name in schemas}
    tool_calls = [
        {**requested, "name": exposed_names.get(requested["name"], requested["name"])} for requested in tool_calls
    ]
    for tool_call in tool_calls or [
        {"name": name, "arguments": filled_form(schema)} for name, schema in schemas.items()
    ]:
        if tool_call["name"] == exposed_names.get("json_schema_echo"):
            tool_call["arguments"] = {"schema": schemas[exposed_names["json_schema_2020_12_tool"]]}
        await call(driver, config, {"name": tool_call["name"], "arguments": tool_call["arguments"]})
    for resource in (await driver.ask("resources/list", {}))["result"]["resources"]:
        await driver.ask("resources/read", {"uri": resource["uri"]})
    for prompt in (await driver.ask("prompts/list", {}))["result"]["prompts"]:
        await driver.ask("prompts/get", {"name": prompt["name"]})


async def drive(era: str, url: str, environ: Mapping[str, str]) -> None:
    """Be the client of one scenario, a client of this era over stdio."""
    scenario = environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    server: Json = {"url": url}
    signs_in = signing_in.is_wanted(scenario)
    if signs_in:
        server["auth"] = signing_in.auth(context)
    with tempfile.TemporaryDirectory() as directory:
        tokens = str(Path(directory) / "tokens")
        config = write_config(Path(directory), {"suite": server}, list_wait=PATIENCE, token_dir=tokens)
        if signs_in:
            await signing_in.sign_in(config, scenario)
        async with spawned([*HUB, "serve", "--config", str(config)], modern=era == "modern") as client:
            driver = Driver(client)
            await driver.shake_hands()
            await use_everything(driver, config, context.get("toolCalls", []))
