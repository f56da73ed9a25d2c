"""A scripted model that does tasks through a hub, and the tokens of what it reads and writes for them.

Each task is a conversation of its own: the definitions that the client is listed, calls, and answers. A list that has
changed is read again. The arguments of a call, its own or one in a program, come from what the model has read: the
listed definition, or the signature or stub in an answer of the search.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final

from mcp_hub.catalog.token_estimate import estimate_tokens, estimate_tool_tokens
from mcp_hub.search.signatures import identifier_of
from tests.fakes.client import HUB, StdioClient, fake, spawned, write_config
from tests.syntax import parsed_text

Json = dict[str, Any]
WAYS: Final = ("all", "groups", "search", "code")
WAIT: Final = 60
"""Seconds that the hub waits for its servers."""
SWITCH: Final = "reset_equipped_tools"
ROWS: Final = {
    "rows": [
        {"id": number, "title": f"Row number {number}", "owner": "somebody", "open": number == 7}
        for number in range(20)
    ]
}
_SIGNATURE: Final = re.compile(r"(?m)^- (\S+?)\((.*)\)(?: \[[^\]]*\])?$")
"""A tool in an answer of the search: its name and its parameters."""
_STUB: Final = re.compile(r"(?m)^- (async def .*: \.\.\.)")
"""The same as programs call it."""
_SAMPLES: Final = {
    "string": "x",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
    "any": "x",
}
_PYTHON_SAMPLES: Final = {"str": "x", "int": 1, "float": 1.5, "bool": True, "dict": {}, "None": None, "Any": "x"}


@dataclass(frozen=True)
class Task:
    """A request in words, and the tools that fulfil it, as `server/tool`. Any one of them is enough."""

    text: str
    tools: frozenset[str]
    calls: int = 1
    """How often the tool is called; of the rows in all answers, those that are open are wanted."""


@dataclass
class Transcript:
    """The tokens of one conversation: of definitions that were listed, and of calls with their answers."""

    listed: int = 0
    call_tokens: int = 0
    searches: int = 0

    @property
    def tokens(self) -> int:
        return self.listed + self.call_tokens


@dataclass
class ScriptedModel:
    """Does tasks in one mode of exposing tools. `servers` maps the id of each server to the tools that it lists."""

    client: StdioClient
    mode: str
    servers: Mapping[str, list[Json]]
    transcripts: list[Transcript] = field(default_factory=list)

    async def do(self, task: Task) -> Transcript:
        """Does a task. Raises ValueError if the hub shows no tool that does it."""
        transcript = Transcript()
        self.transcripts.append(transcript)
        listed = await self._list(transcript)
        if self.mode == "groups":
            await self._call(transcript, SWITCH, {min(task.tools).partition("/")[0]: True})
            listed = await self._list(transcript)
        if self.mode in ("search", "code"):
            candidates = await self._search(transcript, task)
        else:
            candidates = {name: _arguments(schema) for name, schema in listed.items()}
        match = next(((tool, name) for tool in sorted(task.tools) if (name := self._name(tool)) in candidates), None)
        if match is None:
            raise ValueError(f"no tool was shown for: {task.text}")
        tool, name = match
        arguments = candidates[name]
        if missing := self._required(tool) - arguments.keys():
            raise ValueError(f"{name} was shown without {', '.join(sorted(missing))}")
        if self.mode == "code":
            keywords = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            plain = all(key.isidentifier() and not iskeyword(key) for key in arguments)
            keywords = keywords if plain else f"**{arguments!r}"
            await self._call(transcript, "hub_run", {"code": _program(f"{name}({keywords})", task.calls)})
        else:
            call = ("hub_call", {"tool": name, "arguments": arguments}) if self.mode == "search" else (name, arguments)
            for _ in range(task.calls):
                await self._call(transcript, *call)
        if self.mode == "groups":
            await self.client.call(SWITCH, {})  # the next conversation begins as this one did
        return transcript

    async def _list(self, transcript: Transcript) -> dict[str, Json]:
        tools: list[Json] = []
        cursor: Json = {}
        while True:
            page = await self.client.request("tools/list", cursor)
            tools += page["tools"]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        transcript.listed += sum(map(estimate_tool_tokens, tools))
        return {tool["name"]: tool["inputSchema"] for tool in tools}

    async def _search(self, transcript: Transcript, task: Task) -> dict[str, Json]:
        """Returns the tools of the task that it was shown in full, with the least arguments that these ask for.

        It searches with the words of the task; where that does not show a signature, with those of the tool's name, as
        a model does that looks again.
        """
        names = set(map(self._name, task.tools))
        read = arguments_of_stubs if self.mode == "code" else arguments_of_signatures
        for query in (task.text, min(task.tools).partition("/")[2].replace("_", " ")):
            transcript.searches += 1
            answer = await self._call(transcript, "hub_search", {"query": query})
            if matches := read(answer, names):
                return matches
        return {}

    async def _call(self, transcript: Transcript, name: str, arguments: Json) -> str:
        result = await self.client.call(name, arguments)
        text = "\n".join(block.get("text", "") for block in result["content"])
        if result.get("isError"):
            raise ValueError(f"{name}: {text}")
        transcript.call_tokens += estimate_tokens(text) + estimate_tokens(
            json.dumps({"name": name, "arguments": arguments})
        )
        return text

    def _name(self, tool: str) -> str:
        """The name by which a tool is called, given as `server/tool`."""
        exposed = tool.replace("/", "__", 1)
        return identifier_of(exposed) if self.mode == "code" else exposed

    def _required(self, tool: str) -> set[str]:
        server, _, name = tool.partition("/")
        schema = next(tool["inputSchema"] for tool in self.servers[server] if tool["name"] == name)
        return set(schema.get("required", ()))


def _program(call: str, calls: int) -> str:
    if calls == 1:
        return f"await {call}"
    return (
        f"found = await asyncio.gather(*[{call} for _ in range({calls})])\n"
        "[row for one in found for row in one['rows'] if row['open']]"
    )


def arguments_of_signatures(answer: str, names: Set[str]) -> dict[str, Json]:
    """The tools whose signatures are in an answer of the search, with the least arguments that these ask for."""
    return {
        name: arguments_of_signature(parameters) for name, parameters in _SIGNATURE.findall(answer) if name in names
    }


def arguments_of_stubs(answer: str, names: Set[str]) -> dict[str, Json]:
    """The same of stubs."""
    arguments = {}
    for stub in _STUB.findall(answer):
        (function,) = parsed_text(stub).body
        if not isinstance(function, ast.AsyncFunctionDef) or function.name not in names:
            continue
        parameters = function.args
        required = parameters.args[: len(parameters.args) - len(parameters.defaults)]
        arguments[function.name] = {
            parameter.arg: _sample_of_annotation(parameter.annotation) for parameter in required
        }
        if parameters.kwarg is not None:
            arguments[function.name] |= _sample_of_annotation(parameters.kwarg.annotation)
    return arguments


def _sample_of_annotation(kind: ast.expr | None) -> Any:
    if isinstance(kind, ast.BinOp):  # a union
        return _sample_of_annotation(kind.left)
    if isinstance(kind, ast.Dict):
        members = [
            (key, annotation)
            for key, annotation in zip(kind.keys, kind.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
        return {
            str(key.value): _sample_of_annotation(annotation)
            for key, annotation in members
            if not ast.unparse(annotation).startswith("NotRequired[") and key.value is not ...
        }
    if isinstance(kind, ast.Subscript):
        if ast.unparse(kind.value) == "list":
            return []
        values = kind.slice  # of Literal
        return ast.literal_eval(values.elts[0] if isinstance(values, ast.Tuple) else values)
    return _PYTHON_SAMPLES[ast.unparse(kind)] if kind is not None else "x"


def arguments_of_signature(parameters: str) -> Json:
    """The least arguments that the parameters of a signature ask for, for example `{"a": 1}` of `a: integer, b?: any`.

    Raises ValueError if they cannot be read.
    """
    arguments = {}
    for part in _split(parameters, ", "):
        name, _, kind = part.partition(": ")
        if kind and not name.endswith("?"):
            arguments[json.loads(name) if name.startswith('"') else name] = _sample_of(kind)
    return arguments


def _sample_of(kind: str) -> Any:
    first = _split(kind, " | ")[0]
    if first.endswith("[]"):
        return []
    if first.startswith("{"):
        return arguments_of_signature(first[1:-1])
    return _SAMPLES[first] if first in _SAMPLES else json.loads(first)


def _split(text: str, by: str) -> list[str]:
    """The parts of a text between `by`, but for those inside of brackets and quotes."""
    parts, depth, quoted, start, at = [], 0, False, 0, 0
    while at < len(text):
        letter = text[at]
        if quoted:
            at += letter == "\\"
            quoted = letter != '"'
        elif letter == '"':
            quoted = True
        elif not depth and text.startswith(by, at):
            parts.append(text[start:at])
            at = start = at + len(by)
            continue
        else:
            depth += (letter in "([{") - (letter in ")]}")
        at += 1
    return [*parts, text[start:]]


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
async def model(mode: str, servers: Mapping[str, list[Json]], *, rows: bool = False) -> AsyncIterator[ScriptedModel]:
    """A model that is a client of a hub with these servers, each a process; in the mode `groups` each is a group.

    With `rows` each tool answers twenty rows, one of which is open.
    """
    answers = ["--result", json.dumps({"content": [{"type": "text", "text": json.dumps(ROWS)}]})] if rows else []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        entries = {}
        for server, tools in servers.items():
            file = directory / f"{server}.json"
            file.write_text(json.dumps({"tools": tools}))
            entries[server] = fake("--lists", str(file), *answers, validate_arguments="off")
        root: Json = {"expose": mode if mode in ("search", "code") else "all", "list_wait": WAIT, "call_log": "off"}
        if mode == "code":
            root["code_mode"] = {"writes": True}
        if mode == "groups":
            root["groups"] = {group: {"description": f"Tools of {group}.", "servers": [group]} for group in servers}
        config = write_config(directory, entries, **root)
        async with spawned([*HUB, "serve", "--config", str(config)]) as client:
            await client.initialize()
            await client.tool_names()
            yield ScriptedModel(client, mode, servers)


async def transcripts(
    mode: str, servers: Mapping[str, list[Json]], tasks: Iterable[Task], *, rows: bool = False
) -> list[Transcript]:
    """Does tasks in one mode of exposing and returns their transcripts. Raises ValueError if a task cannot be done."""
    async with model(mode, servers, rows=rows) as scripted_model:
        return [await scripted_model.do(task) for task in tasks]
