"""A scripted model that does tasks through a hub, and the tokens of what it reads and writes for them.

Each task is a conversation of its own: the definitions that the client is listed, calls, and answers. A list that has
changed is read again.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcp_hub.catalog.token_estimate import estimate_tokens, estimate_tool_tokens
from tests.fakes.client import HUB, StdioClient, fake, spawned, write_config

Json = dict[str, Any]
WAYS: Final = ("all", "groups", "search")
WAIT: Final = 60
"""Seconds that the hub waits for its servers."""
SWITCH: Final = "reset_equipped_tools"
_SAMPLES: Final = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}


@dataclass(frozen=True)
class Task:
    """What is asked for, and the tools that do it, as `server/tool`. Any of them will do."""

    text: str
    tools: frozenset[str]


@dataclass
class Transcript:
    """The tokens of one conversation: of definitions that were listed, and of calls with their answers."""

    listed: int = 0
    said: int = 0
    searches: int = 0

    @property
    def tokens(self) -> int:
        return self.listed + self.said


@dataclass
class ScriptedModel:
    """Does tasks over one way in which tools are exposed. `servers` are {id: the tools that it lists}."""

    client: StdioClient
    way: str
    servers: Mapping[str, list[Json]]
    transcripts: list[Transcript] = field(default_factory=list)

    async def do(self, task: Task) -> Transcript:
        """Does a task. Raises ValueError if the hub shows no tool that does it."""
        transcript = Transcript()
        self.transcripts.append(transcript)
        names = await self._list(transcript)
        if self.way == "groups":
            await self._call(transcript, SWITCH, {next(iter(task.tools)).partition("/")[0]: True})
            names = await self._list(transcript)
        elif self.way == "search":
            names = await self._search(transcript, task)
        name = next((name for name in names if name.replace("__", "/", 1) in task.tools), None)
        if name is None:
            raise ValueError(f"no tool was shown for: {task.text}")
        await self._call(transcript, name, _arguments(self._schema(name)))
        if self.way == "groups":
            await self.client.call(SWITCH, {})  # the next conversation begins as this one did
        return transcript

    async def _list(self, transcript: Transcript) -> list[str]:
        tools: list[Json] = []
        cursor: Json = {}
        while True:
            page = await self.client.request("tools/list", cursor)
            tools += page["tools"]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        transcript.listed += sum(map(estimate_tool_tokens, tools))
        return [tool["name"] for tool in tools]

    async def _search(self, transcript: Transcript, task: Task) -> list[str]:
        """Searches with the words of the task, then with those of the tool, as a model does that looks again."""
        wanted = {tool.replace("/", "__", 1) for tool in task.tools}
        for query in (task.text, next(iter(task.tools)).partition("/")[2].replace("_", " ")):
            transcript.searches += 1
            answer = await self._call(transcript, "hub_search", {"query": query})
            if found := [name for name in wanted if name in answer]:
                return found
        return []

    async def _call(self, transcript: Transcript, name: str, arguments: Json) -> str:
        result = await self.client.call(name, arguments)
        text = "\n".join(block.get("text", "") for block in result["content"])
        if result.get("isError"):
            raise ValueError(f"{name}: {text}")
        transcript.said += estimate_tokens(json.dumps({"name": name, "arguments": arguments})) + estimate_tokens(text)
        return text

    def _schema(self, exposed: str) -> Json:
        server, _, name = exposed.partition("__")
        found: Json = next(tool["inputSchema"] for tool in self.servers[server] if tool["name"] == name)
        return found


def _arguments(schema: Json) -> Json:
    """The least arguments that a schema asks for."""
    properties = schema.get("properties", {})
    return {name: _sample(properties.get(name, {})) for name in schema.get("required", ())}


def _sample(schema: Json) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    return _arguments(schema) if kind == "object" else _SAMPLES[kind]


@contextlib.asynccontextmanager
async def model(way: str, servers: Mapping[str, list[Json]]) -> AsyncIterator[ScriptedModel]:
    """A model that is a client of a hub with these servers, each a process; in the way `groups` each is a group."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        entries = {}
        for server, tools in servers.items():
            file = directory / f"{server}.json"
            file.write_text(json.dumps({"tools": tools}))
            entries[server] = fake("--lists", str(file), validate_arguments="off")
        root: Json = {"expose": "search" if way == "search" else "all", "list_wait": WAIT, "call_log": "off"}
        if way == "groups":
            root["groups"] = {one: {"description": f"Tools of {one}.", "servers": [one]} for one in servers}
        config = write_config(directory, entries, **root)
        async with spawned([*HUB, "serve", "--config", str(config)]) as client:
            await client.initialize()
            await client.tool_names()
            yield ScriptedModel(client, way, servers)


async def transcripts(way: str, servers: Mapping[str, list[Json]], tasks: Iterable[Task]) -> list[Transcript]:
    """The transcripts of some tasks in one way of exposing. Raises ValueError for one that could not be done."""
    async with model(way, servers) as at_work:
        return [await at_work.do(task) for task in tasks]
