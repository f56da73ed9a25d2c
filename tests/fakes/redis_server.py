"""Debian's redis-server on a private socket, and a way to it that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from redis.asyncio import Redis

from mcp_hub.config.store import StoreSettings

PATIENCE = 30.0
HEARTBEAT = ":member:"
"""What renewals of replicas name, which come twice a second whatever clients do."""
KEYS = "}:keys "
"""What replicas name once a minute, to see whether there is a newer key."""


class RedisServer:
    """One server, which can be paused, killed and started anew. It keeps nothing on disk."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.socket = directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._directory = directory
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    def settings(self, **overrides: object) -> StoreSettings:
        """Returns the settings of a store in this server."""
        return StoreSettings.model_validate({"url": self.url, **overrides})

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts it, and waits until it answers."""
        self._process = await asyncio.create_subprocess_exec(
            *("redis-server", "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--dir", str(self._directory), "--save", "", "--appendonly", "no", *self._options),
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError, TimeoutError):
                    reader, writer = await asyncio.open_unix_connection(str(self.socket))
                    writer.write(b"PING\r\n")
                    answer = await reader.readline()
                    writer.close()
                    if answer:
                        return
                await asyncio.sleep(0.01)

    def pause(self) -> None:
        """Stops it as SIGSTOP does: its connections stay, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on after a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[list[str]]:
        """Notes every command of clients while the block runs, but those that replicas send when they are idle too."""
        commands: list[str] = []
        async with Redis(unix_socket_path=str(self.socket)) as redis, redis.monitor() as monitor:
            begin, end = secrets.token_hex(8), secrets.token_hex(8)
            await redis.echo(begin)
            while begin not in (await monitor.next_command())["command"]:
                pass
            yield commands
            async with asyncio.timeout(PATIENCE):
                await redis.echo(end)
                while end not in (command := (await monitor.next_command()))["command"]:
                    if command["client_type"] != "lua":
                        commands.append(command["command"])
                while HEARTBEAT not in (await monitor.next_command())["command"]:
                    pass  # a store that no replica uses is not watched
        commands[:] = [command for command in commands if HEARTBEAT not in command and KEYS not in command]

    async def kill(self) -> None:
        """Kills it, with all that it holds."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        await self._process.wait()
        self.socket.unlink(missing_ok=True)


class Line:
    """A way to the store that can be cut: its connections stay, and nothing passes in either direction."""

    def __init__(self, server: RedisServer, path: Path) -> None:
        self._server = server
        self._path = path
        self._open = asyncio.Event()
        self._open.set()
        self.cut, self.mend = self._open.clear, self._open.set
        self._hold = False
        self._released = asyncio.Event()
        self.release = self._released.set
        self.holding = asyncio.Event()
        """Set when it holds a reply."""

    def hold_next_reply(self) -> None:
        """Holds the next reply of the store until `release`; those on other connections pass."""
        self._hold = True

    def settings(self, **overrides: str) -> StoreSettings:
        return self._server.settings(**{"url": f"unix://{self._path}", **overrides})

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._relay, self._path)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_unix_connection(self._server.socket)
        await asyncio.gather(self._pass(reader, store_writer), self._pass(store_reader, writer, replies=True))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool = False) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._open.wait()
                if replies and self._hold:
                    self._hold = False
                    self.holding.set()
                    await self._released.wait()
                writer.write(data)
        writer.close()


@contextlib.asynccontextmanager
async def redis_server(*options: str) -> AsyncIterator[RedisServer]:
    """Runs a server for the block."""
    with tempfile.TemporaryDirectory(prefix="redis") as directory:
        server = RedisServer(Path(directory), *options)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()
