"""Twenty servers people run, and what their tools can be called with: what lenient validation is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.forks import python_with_sdk
from tests.peers.catalogue import REAL_SERVERS, Entry, Place
from tests.peers.programs import HERE, MCP1, NODE, NPM, PEERS, SERVERS, installed

SERVERS1 = PEERS / "servers1" / "bin"
TYPED = HERE / "servers" / "typed_server.py"
TYPED_NODE = HERE / "servers" / "typed_server.mjs"


@dataclass(frozen=True)
class ArgumentServer:
    """A server, values that its tools can work with by the names of arguments, and tools that are not called."""

    name: str
    entry: Callable[[Place], Entry]
    values: Callable[[Place], Mapping[str, Any]] = lambda place: {}
    avoid: frozenset[str] = field(default_factory=frozenset)


def _of_catalogue(name: str, values: Callable[[Place], Mapping[str, Any]], *avoid: str) -> ArgumentServer:
    return ArgumentServer(name, REAL_SERVERS[name].entry, values, frozenset(avoid))


CommandPart = str | Path | Callable[[], str]
"""A part of a command: the text itself, the path of an installed program, or a function that returns the text."""


def _run(name: str, *command: CommandPart, values: Mapping[str, Any] | None = None, **env: str) -> ArgumentServer:
    def entry(place: Place) -> Entry:
        parts = (part() if callable(part) else part for part in command)
        argv = [installed(part) if isinstance(part, Path) else part.replace("TMP", str(place.tmp)) for part in parts]
        variables = {key: value.replace("TMP", str(place.tmp)) for key, value in env.items()}
        return {"command": argv[0], "args": argv[1:], "env": variables, "cwd": str(place.tmp)}

    return ArgumentServer(name, entry, lambda place: values or {})


def _npm(name: str, package: str, *args: str, values: Mapping[str, Any] | None = None, **env: str) -> ArgumentServer:
    return _run(name, NODE, NPM / ".bin" / package, *args, values=values, **env)


_TYPED: Mapping[str, Any] = {"code": "AB", "day": "2026-01-02", "at": "2026-01-02T03:04:05Z", "clock": "03:04:05"}
_TEXTS = {"filename": "a.docx", "text": "a text", "title": "a title", "author": "me"}
_CELLS = {"path": "a.xlsx", "sheet": "Sheet1", "sheets": ["Sheet1"], "range": "A1:B2", "at": "A1", "cell": "A1"}
_ZONES = ("timezone", "source_timezone", "target_timezone")
_PATHS = ("path", "paths", "source", "destination", "excludePatterns")

ARGUMENT_SERVERS: tuple[ArgumentServer, ...] = (
    _of_catalogue(
        "everything_stdio", lambda _: {"message": "hi"}, "gzip-file-as-resource", "simulate-research-query",
        "toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation",
    ),
    _of_catalogue("filesystem", lambda place: {**dict.fromkeys(_PATHS, str(place.file)), "pattern": "*"}),
    _of_catalogue("memory", lambda _: {"query": "hub", "entityName": "hub", "name": "hub"}),
    _of_catalogue("time", lambda _: {"time": "12:00", **dict.fromkeys(_ZONES, "UTC")}),
    _of_catalogue("fetch", lambda place: {"url": place.page}),
    _of_catalogue("git", lambda place: {"repo_path": str(place.repository), "target": "HEAD", "revision": "HEAD"}),
    _npm("sequential_thinking", "mcp-server-sequential-thinking"),
    _npm("taskmanager", "mcp-taskmanager", TASK_MANAGER_FILE_PATH="TMP/tasks.json"),
    _run("sqlite", SERVERS1 / "mcp-server-sqlite", "--db-path", "TMP/a.db", values={"query": "SELECT 1"}),
    _run("calculator", SERVERS1 / "mcp-server-calculator", values={"expression": "1 + 1"}),
    _run("word", SERVERS1 / "word_mcp_server", values=_TEXTS),
    _run("excel", SERVERS / "excel-mcp-server", "stdio", values=_CELLS, EXCEL_FILES_PATH="TMP"),
    _run("sdk1", MCP1, str(TYPED), "sdk", values=_TYPED),
    _run("sdk2", python_with_sdk, str(TYPED), "sdk", values=_TYPED),
    _run("fastmcp3", SERVERS1 / "python", str(TYPED), "fastmcp", values=_TYPED),
    _run("fastmcp4", python_with_sdk, str(TYPED), "fastmcp", values=_TYPED),
    _run("zod3", NODE, str(TYPED_NODE), "sdk1-zod3", values=_TYPED, NPM=str(NPM)),
    _run("zod4", NODE, str(TYPED_NODE), "sdk1", values=_TYPED, NPM=str(NPM)),
    _run("typescript2", NODE, str(TYPED_NODE), "server2", values=_TYPED, NPM=str(NPM)),
    _run("fastmcp_typescript", NODE, str(TYPED_NODE), "fastmcp", values=_TYPED, NPM=str(NPM)),
)  # fmt: skip
