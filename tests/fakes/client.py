"""A raw MCP client over stdio: it writes what it is told and remembers everything it reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

FAKE = str(Path(__file__).with_name("upstream.py"))
WATCHED = str(Path(__file__).with_name("watched.py"))
HUB = [sys.executable, WATCHED]
"""`mcp-hub`, forked from a warm interpreter (forks.py); `spawned` fails for one whose loop was kept too long."""
HUB_BY_EXEC = [sys.executable, "-s", WATCHED]
"""The same, started as a user's is, for tests of the process itself: its command line, streams and imports."""
PATIENCE = 120.0
"""Seconds any wait of a test may take; a bound against hangs, not a figure."""

MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


def free_port() -> int:
    """A port of this machine that nobody listens on, and that no other test is given which asks for any port."""
    port_range = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(port_range.read_text().split()[0]) if port_range.exists() else 0
    while True:
        port = SystemRandom().randrange(10_000, lowest) if lowest > 20_000 else 0
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])


STREAM_GRACE: Final = 1.0
"""Seconds that streams may stay open after their process has ended, as a process of its own holds them."""


class RpcError(Exception):
    """An error answer; `error` is the whole object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.error = error
        self.code = error["code"]


class StdioClient:
    """A child process that speaks JSON lines, usually the hub."""

    def __init__(self, process: asyncio.subprocess.Process, *, modern: bool = False) -> None:
        self.process = process
        self.modern = modern
        self.patience = PATIENCE
        """Seconds an answer may take."""
        self.notifications: list[dict[str, Any]] = []
        self.unmatched: list[Any] = []
        self.noise: list[bytes] = []
        self.stderr = b""
        self._pending: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._changed = asyncio.Condition()
        self._last_id = 0
        self._open_streams = 2
        """How many of its streams have not ended."""
        self._tasks = [asyncio.create_task(self._to_end(read)) for read in (self._read, self._read_stderr)]

    async def _to_end(self, read: Callable[[], Awaitable[None]]) -> None:
        await read()
        async with self._changed:
            self._open_streams -= 1
            self._changed.notify_all()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                self.noise.append(line)
                continue
            async with self._changed:
                if isinstance(message, dict) and "method" in message:
                    self.notifications.append(message)
                elif isinstance(message, dict) and (future := self._pending.pop(message.get("id"), None)) is not None:
                    if not future.done():  # else nobody waits for it any more
                        future.set_result(message)
                else:
                    self.unmatched.append(message)
                self._changed.notify_all()

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            async with self._changed:
                self.stderr += chunk
                self._changed.notify_all()

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def start(self, method: str, params: dict[str, Any] | None = None, request_id: Any = None) -> asyncio.Future[Any]:
        """Send a request; the future is its whole response message."""
        if request_id is None:
            self._last_id += 1
            request_id = self._last_id
        if self.modern:
            params = {**(params or {})}
            params["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        future = self._pending[request_id] = asyncio.get_running_loop().create_future()
        self.send_raw(json.dumps(message).encode() + b"\n")
        return future

    async def request(self, method: str, params: dict[str, Any] | None = None, request_id: Any = None) -> Any:
        """The result of a request; raises RpcError for an error answer."""
        async with asyncio.timeout(self.patience):
            message = await self.start(method, params, request_id)
        if "error" in message:
            raise RpcError(message["error"])
        return message["result"]

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self.send_raw(json.dumps(message).encode() + b"\n")

    async def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": info}
        result: dict[str, Any] = await self.request("initialize", params)
        self.notify("notifications/initialized")
        return result

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = await self.request(
            "tools/call", {"name": name, "arguments": arguments or {}, **params}
        )
        return result

    async def text(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        result = await self.call(name, arguments)
        assert not result.get("isError"), result
        return str(result["content"][0]["text"])

    async def tool_names(self) -> list[str]:
        return [tool["name"] for tool in (await self.request("tools/list"))["tools"]]

    async def until(self, condition: Any) -> None:
        """Wait until `condition()` holds, checked whenever something arrives.

        Raises TimeoutError when nothing arrives for `PATIENCE` seconds, or after ten times that, so that a slow machine
        is not taken for a hang; AssertionError when nothing more can arrive.
        """
        async with asyncio.timeout(10 * PATIENCE), self._changed:
            while not condition():
                if not self._open_streams:
                    raise AssertionError(f"the process has ended ({await self.exited()}): {self._stderr_tail}")
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self._changed.wait()
                except TimeoutError:
                    raise TimeoutError(f"nothing came for {PATIENCE} s: {self._stderr_tail}") from None

    @property
    def _stderr_tail(self) -> str:
        return self.stderr[-3000:].decode(errors="replace")

    async def notified(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for so many notifications of a method."""

        def matches() -> list[dict[str, Any]]:
            return [n for n in self.notifications if n["method"] == method]

        await self.until(lambda: len(matches()) >= count)
        return matches()

    async def exited(self) -> int:
        """The exit code, once what the process has written is read, which asyncio does not wait for."""
        async with asyncio.timeout(PATIENCE):
            code = await self.process.wait()
        await asyncio.wait(self._tasks, timeout=STREAM_GRACE)
        return code

    async def close(self) -> None:
        if self.process.returncode is None:
            if self.process.stdin is not None:
                self.process.stdin.close()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self.process.wait()
            except TimeoutError:
                os.killpg(self.process.pid, signal.SIGKILL)
                await self.process.wait()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        transport = self.process._transport  # type: ignore[attr-defined]
        transport.close()


@contextlib.asynccontextmanager
async def spawned(
    argv: Sequence[str], *, modern: bool = False, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> AsyncIterator[StdioClient]:
    """A client of a freshly started child; its stdin is closed and its end awaited when the block ends.

    Fails for a hub with a callback that kept its loop too long. The hubs of a program that has `MCP_HUB_STALLS=` in its
    environment, because it measures them, are not watched.
    """
    pipe = asyncio.subprocess.PIPE
    with tempfile.TemporaryDirectory() as directory:
        stalls = Path(directory) / "stalls"
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=2**27, start_new_session=True,
            pass_fds=pass_fds, env={"MCP_HUB_STALLS": str(stalls), **os.environ, **(env or {})},
        )  # fmt: skip
        client = StdioClient(process, modern=modern)
        try:
            yield client
        finally:
            await client.close()
        check_stalls(stalls)


def check_stalls(file: Path) -> None:
    """Fail for every callback that kept the loop of a hub too long (watched.py)."""
    stalls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    lines = [
        f"{stall['seconds']} s ({stall['garbage']} s garbage) in {stall['callback']}\n{stall['stack']}"
        for stall in stalls
    ]
    assert not stalls, f"{len(stalls)} callbacks kept the loop of the hub:\n" + "\n".join(lines[:5])


def fake(*options: str, **entry: Any) -> dict[str, Any]:
    """A configuration entry that runs the scripted upstream."""
    return {"command": sys.executable, "args": [FAKE, *options], **entry}


def write_config(directory: Path, servers: dict[str, Any], **root: Any) -> Path:
    """A configuration file with these servers, its caches inside `directory`. Lists wait for servers as tests do."""
    path = directory / "servers.json"
    list_wait = {"list_wait": PATIENCE} if servers else {}
    path.write_text(json.dumps({"servers": servers, "cache_dir": str(directory / "cache"), **list_wait, **root}))
    path.chmod(0o600)
    return path


@contextlib.asynccontextmanager
async def hub(
    directory: Path,
    servers: dict[str, Any],
    *,
    modern: bool = False,
    handshake: bool = True,
    env: Mapping[str, str] | None = None,
    **root: Any,
) -> AsyncIterator[StdioClient]:
    """A client of `mcp-hub serve` over stdio with these servers; initialised unless it is modern."""
    config = write_config(directory, servers, **root)
    async with spawned([*HUB, "serve", "--config", str(config)], modern=modern, env=env) as client:
        if handshake and not modern:
            await client.initialize()
        yield client
