"""The rows of one cell and era at work: their processes, and clients that talk to them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import processes
from bench.cells import Cell
from bench.client.connection import Lost
from bench.client.conversation import Conversation
from bench.client.http import HttpConversation
from bench.client.messages import Era
from bench.client.sse import SseConversation
from bench.client.stdio import StdioConversation
from bench.rows import DIRECT, Row

ROOT = Path(__file__).parent.parent
LISTEN_WITHIN = 60.0
"""Seconds within which a proxy must accept connections."""
PIPE = subprocess.PIPE


def _upstream(transport: str, era: Era, tools: int) -> list[str]:
    # Over stdio without `site`, which costs half of its start; over HTTP it needs uvloop.
    alone = ["-I", "-S"] if transport == "stdio" else []
    return [sys.executable, *alone, str(processes.UPSTREAM), transport, era, str(tools)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stage:
    """One cell and era: `upstreams` servers with `tools` tools each, and a directory for what the rows keep."""

    def __init__(self, cell: Cell, era: Era, upstreams: int = 1, tools: int = 5) -> None:
        self.cell = cell
        self.era = era
        self.upstreams = upstreams
        self.tools = tools
        self.directory: Path
        self.server_port = self.direct_port = 0
        """The ports of the HTTP servers, 0 without any."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Stage]:
        """Starts the HTTP servers that the cell needs, and writes the configuration."""
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            self.directory = Path(directory)
            if "http" in (self.cell.upstream, self.cell.client) or self.cell.client == "sse":
                # Direct clients meet one server with all the tools, the proxies as many servers as there are to be.
                self.server_port = self._serve_http(stack, self.tools)
                self.direct_port = self.server_port
                if self.upstreams > 1:
                    self.direct_port = self._serve_http(stack, self.tools * self.upstreams)
            self.config = self.directory / "servers.json"
            self.config.write_text(json.dumps({"mcpServers": self._entries()}))
            self.config.chmod(0o600)
            yield self

    def _serve_http(self, stack: contextlib.ExitStack, tools: int) -> int:
        process = subprocess.Popen(_upstream("http", self.era, tools), stdout=PIPE, start_new_session=True)
        stack.callback(processes.end, process)
        assert process.stdout is not None
        return int(process.stdout.readline())

    def _entries(self) -> dict[str, dict[str, object]]:
        if self.cell.upstream == "http":
            return {f"s{n}": {"url": f"http://127.0.0.1:{self.server_port}/mcp/{n}"} for n in range(self.upstreams)}
        command, *arguments = _upstream("stdio", self.era, self.tools)
        return {f"s{n}": {"command": command, "args": arguments} for n in range(self.upstreams)}

    def data_directory(self, row: Row) -> Path:
        """Returns the directory in which a row keeps files from one start to the next."""
        return self.directory / row.name

    def environ(self, row: Row) -> dict[str, str]:
        """The environment of a row, and of commands that are to find it."""
        directory = self.data_directory(row)
        own = {f"XDG_{name}_HOME": str(directory / name.lower()) for name in ("CACHE", "STATE", "CONFIG", "DATA")}
        return {**os.environ, **own, "NO_COLOR": "1"}

    def start(self, row: Row) -> Running:
        """Start a row. Raises Lost when it cannot be reached."""
        return Running(self, row)


class Running:
    """One running row. Its maker closes it."""

    def __init__(self, stage: Stage, row: Row) -> None:
        self.stage = stage
        self.row = row
        self.process: subprocess.Popen[bytes] | None = None
        self._conversations: list[Conversation] = []
        client = stage.cell.client
        self.port = stage.direct_port if row.name == DIRECT and client != "stdio" else free_port()
        if row.name != DIRECT:
            self._spawn(row.argv(stage.config, client, self.port, stage.era))
        elif client == "stdio":
            self._spawn(_upstream("stdio", stage.era, stage.tools * stage.upstreams))

    def _spawn(self, argv: Sequence[str]) -> None:
        with (self.stage.directory / f"{self.row.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=PIPE if self.stage.cell.client == "stdio" else subprocess.DEVNULL,
                stdout=PIPE if self.stage.cell.client == "stdio" else log, stderr=log, cwd=ROOT,
                env=self.stage.environ(self.row), start_new_session=True,
            )  # fmt: skip

    def converse(self) -> Conversation:
        """A client, its handshake done; over stdio there is one only. Raises Lost, BadAnswer."""
        try:
            conversation = self._dial()
            self._conversations.append(conversation)
            conversation.open()
        except (OSError, Lost) as error:
            raise Lost(f"{error}{self._last_words()}") from None
        return conversation

    def _dial(self) -> Conversation:
        client, era = self.stage.cell.client, self.stage.era
        if client == "stdio":
            assert self.process is not None
            return StdioConversation(self.process, era)
        self.until_listening()
        return SseConversation(self.port, era) if client == "sse" else HttpConversation(self.port, era)

    def until_listening(self) -> None:
        """Waits until it accepts connections. Raises Lost."""
        if self.stage.cell.client == "stdio" or self.process is None:
            return
        end = time.perf_counter() + LISTEN_WITHIN
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if time.perf_counter() > end or self.process.poll() is not None:
                    raise Lost("it takes no connection") from None
                time.sleep(0.002)

    def _last_words(self) -> str:
        lines = (self.stage.directory / f"{self.row.name}.log").read_text(errors="replace").split("\n")
        messages = [line.strip() for line in lines if line.strip()]
        return f"; it said: {messages[-1][:200]}" if messages else ""

    def complete(self, conversation: Conversation, patience: float = 60.0) -> list[str]:
        """Lists tools until those of all servers are there, and returns their names. Raises Lost."""
        expected = self.stage.tools * self.stage.upstreams
        end = time.perf_counter() + patience
        while True:
            names = conversation.tools()
            if len(names) >= expected:
                return names
            if time.perf_counter() > end:
                raise Lost(f"{len(names)} of {expected} tools after {patience:g} s{self._last_words()}")
            time.sleep(0.01)

    def part(self, conversation: Conversation) -> None:
        """End one client of several."""
        self._conversations.remove(conversation)
        conversation.close()

    def pids(self) -> list[int]:
        """The proxy's processes; none for direct, where there is no proxy."""
        return processes.tree(self.process.pid) if self.process is not None and self.row.name != DIRECT else []

    def close(self) -> None:
        for conversation in self._conversations:
            with contextlib.suppress(Lost, OSError):
                conversation.close()
        if self.process is not None:
            processes.end(self.process)


def tool(names: Sequence[str], original: str) -> str:
    """The name under which a proxy shows the first tool of this original name. Raises Lost."""
    for name in names:
        if name == original or (name.endswith(original) and not name[-len(original) - 1].isalnum()):
            return name
    raise Lost(f"no tool {original} in {names[:5]}")
