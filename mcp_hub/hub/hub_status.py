"""The status of a running hub without secrets, and the local socket from which `mcp-hub status` reads it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.codes import code_of
from mcp_hub.errors import HubError
from mcp_hub.hub.exposure import listed_to
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.security.private_files import PendingWrites, PrivateDirectory
from mcp_hub.text import printable
from mcp_hub.transport import local_socket
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.upstream.lifecycle import CONNECTED_STATES
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.hub import Engine
    from mcp_hub.upstream import Upstream

SHOWN_LINES: Final = 5
"""Last lines of a server's stderr that are shown."""
MAX_LINE: Final = 500

Json = dict[str, Any]


class Status:
    """Collects the status of a hub. `serving` is `stdio` or the hub's URLs; other parts add facts to `extra`."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self._started_at = time.monotonic()
        self.began_at = time.time()
        self.serving: list[str] = ["stdio"]
        self.extra: Json = {}
        self.refusals: Callable[[], dict[str, int]] = dict
        """Returns the counts of refusals of the listener before authentication, by cause; {} over stdio."""
        self.replicas: Callable[[], Json] | None = None
        """Returns the facts of this replica among the others; None if there is one process only."""

    def facts(self) -> Json:
        """Returns all facts as they are now. Times are in seconds."""
        hub = self._hub
        config, calls, pins = hub.config, hub.generation.calls, hub.generation.pin_watch
        listed = hub.catalogs.of(SOLE)
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "seconds": round(time.monotonic() - self._started_at, 1),
            "config": str(config.path) if config.path is not None else None,
            "overlays": [str(path) for path in config.overlays],
            "generation": hub.generation.number,
            "serving": self.serving,
            **self.extra,
            "exposed": {kind.name: len(listed.entries(kind)) for kind in KINDS} | {"tools": listed.server_tools},
            "listed_to": listed_to(hub.catalogs),
            "calls": calls.count,
            "reaper": {"pid": hub.children.reaper, "problem": hub.children.problem},
            "metrics": hub.metrics.facts(),
            "refusals": self.refusals(),
            "replicas": self.replicas() if self.replicas is not None else None,
            "tasks": len(asyncio.all_tasks()),
            "background": BACKGROUND.facts(),
            "pins_problem": pins.problem if pins is not None else None,
            "servers": [self._server_facts(upstream) for upstream in hub.upstreams.values()],
        }

    def _server_facts(self, upstream: Upstream) -> Json:
        now, rules = time.monotonic(), self._hub.rules
        agreement, is_connected, session = upstream.agreement, upstream.state in CONNECTED_STATES, upstream.session
        next_attempt = upstream.backoff.next_attempt
        return {
            "server": upstream.server.id,
            "state": str(upstream.state),
            "seconds": round(now - upstream.since, 1),
            "listed": upstream.visibility.listed,
            "era": agreement.era if agreement is not None and is_connected else None,
            "revision": agreement.version if agreement is not None and is_connected else None,
            "transport": upstream.transport,
            "session": upstream.server.session,
            "sessions": len(upstream.own_sessions) + len(upstream.era_sessions),
            "pid": session.pid if session is not None else None,
            "tools": len(upstream.lists.items.get(TOOLS, ())),
            "exposed_tools": self._hub.catalogs.of(SOLE).tools_by_server[upstream.server.id],
            "calls": upstream.calls.count,
            "starts": upstream.starts,
            "failures": upstream.backoff.failures,
            "next_attempt": round(max(0.0, next_attempt - now), 1) if next_attempt is not None else None,
            "breaker": str(rules.breaker_state(upstream.server.id)),
            "stray": session.peer.stray if session is not None else 0,
            "problem": printable(upstream.error, 2000) if upstream.error is not None else None,
            "code": code_of(upstream.error),
            "stderr": [line[:MAX_LINE] for line in upstream.last_words[-SHOWN_LINES:]],
            "incomplete": [
                printable(text) for text in (*upstream.incomplete, *self._hub.catalog.left_out(upstream.server.id))
            ],
        }


def tools_text(facts: Json) -> str:
    """Returns how many tools of a server are listed to clients, and out of how many if not all: `3`, `1 of 3`."""
    listed, total = facts["exposed_tools"], facts["tools"]
    return str(total) if listed == total else f"{listed} of {total}"


log = logging.getLogger("mcp_hub")

VARIABLE: Final = "MCP_HUB_RUNTIME_DIR"
MAX_COMMANDS: Final = 8
WRITE_WAIT: Final = 5.0
"""Seconds that a client has to read the answer."""
LOOK_UP: Final = 1.0
"""The longest wait in seconds before Ctrl-C is looked for, which does not always end a wait, and never on Windows."""
READ_WAIT: Final = 5.0
REQUEST_WAIT: Final = 3.0
"""Seconds that a command has to send its request."""
MAX_SIZE: Final = 16 * 1024 * 1024
MAX_PATH: Final = 100
"""Bytes of the path of a socket; the systems allow 104 to 108."""


def runtime_directory() -> Path:
    """Returns the directory of this user's sockets: `$MCP_HUB_RUNTIME_DIR`, else the system's runtime directory."""
    import platformdirs

    if configured := os.environ.get(VARIABLE):
        path = Path(configured)
    elif sys.platform == "linux" and not os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(platformdirs.user_cache_dir("mcp-hub", appauthor=False)) / "run"
    else:
        path = Path(platformdirs.user_runtime_dir("mcp-hub", appauthor=False))
    if len(os.fsencode(path)) > MAX_PATH - 20:
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
        path = Path(tempfile.gettempdir()) / f"mcp-hub-{digest}"
    return path


Answer = Callable[[Json], AsyncIterator[Json]]
"""Yields the answers to one request of a command."""


@contextlib.asynccontextmanager
async def status_server(facts: Callable[[], Json], answer: Answer) -> AsyncIterator[None]:
    """Answers status requests with `facts`, and other requests with `answer`, on a local socket while the block runs.

    If the socket cannot be opened, a warning is logged and it is tried again.
    """
    listeners: list[tuple[Path, asyncio.Server]] = []

    async def open_socket() -> None:
        path = _private(runtime_directory()) / f"{os.getpid()}.sock"
        listeners.append(
            (path, await local_socket.listen(path, _StatusResponder(facts, answer).respond, backlog=MAX_COMMANDS))
        )

    retries = PendingWrites()
    try:
        await open_socket()
    except (OSError, ValueError):
        retries.put("opening the socket on which `mcp-hub status` finds this hub", open_socket)
    try:
        yield
    finally:
        retries.cancel()
        for path, server in listeners:
            server.close()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _private(runtime_directory: Path) -> Path:
    """Returns the directory, created if missing. Raises ValueError if another user could write to it."""
    PrivateDirectory(runtime_directory).make()
    return runtime_directory


class _StatusResponder:
    """Answers the requests on the socket, one line of JSON each: `{"ask": "status"}` itself, others by `answer`."""

    def __init__(self, facts: Callable[[], Json], answer: Answer) -> None:
        self._facts = facts
        self._answer = answer
        self._open_count = 0
        self._stream_count = 0
        """The number of requests with streamed answers; they do not count in `_open_count`."""

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open_count += 1
        try:
            if self._open_count <= MAX_COMMANDS:
                request = await _request(reader)
                if request.get("ask") == "status":
                    writer.write(json.dumps(self._facts()).encode())
                else:
                    await self._stream(self._answer(request), reader, writer)
                async with asyncio.timeout(WRITE_WAIT):
                    await writer.drain()
                    writer.write_eof()
                    await reader.read(1)
        except HubError as error:
            writer.write(json.dumps({"problem": str(error), "cure": "the log of the hub may say more"}).encode())
        except (OSError, TimeoutError):
            pass
        except Exception:
            log.exception("the status could not be reported")
        finally:
            self._open_count -= 1
            writer.close()

    async def _stream(
        self, answers: AsyncIterator[Json], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Writes answers, a line each, until there are no more or the command has gone."""
        if self._stream_count >= MAX_COMMANDS:
            raise HubError(f"{MAX_COMMANDS} commands read from it already")
        self._stream_count += 1
        self._open_count -= 1
        write_task = asyncio.ensure_future(_write_all(answers, writer))
        read_task = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({write_task, read_task}, return_when=asyncio.FIRST_COMPLETED)
            if write_task.done():
                write_task.result()
        finally:
            for task in (write_task, read_task):
                task.cancel()
            await asyncio.gather(write_task, read_task, return_exceptions=True)
            self._stream_count -= 1
            self._open_count += 1


async def _write_all(answers: AsyncIterator[Json], writer: asyncio.StreamWriter) -> None:
    async for answer in answers:
        writer.write(json.dumps(answer).encode() + b"\n")
        async with asyncio.timeout(WRITE_WAIT):
            await writer.drain()


async def _request(reader: asyncio.StreamReader) -> Json:
    """Returns the request of a command; {} if it is not valid. Raises TimeoutError after REQUEST_WAIT seconds."""
    try:
        async with asyncio.timeout(REQUEST_WAIT):
            request = json.loads(await reader.readline())
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def ask_hub(pid: int, request: Json, *, patience: float | None = READ_WAIT) -> Iterator[Json]:
    """Yields the answers of a running hub of this user to a request, as they come.

    `patience`: seconds for each answer; None: as long as the hub runs. Raises HubError if it cannot be asked.
    """
    path = runtime_directory() / f"{pid}.sock"
    try:
        with local_socket.connect(path, READ_WAIT) as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            for line in _lines(connection, patience):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    yield answer
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it does not answer"
        raise HubError(f"hub {pid} cannot be asked: {reason}") from None


def _lines(connection: socket.socket, patience: float | None) -> Iterator[bytearray]:
    """Yields the lines of an answer. Raises TimeoutError after `patience` seconds, ValueError above MAX_SIZE."""
    connection.settimeout(LOOK_UP)
    data, last = bytearray(), time.monotonic()
    while len(data) < MAX_SIZE:
        if patience is not None and time.monotonic() >= last + patience:
            raise TimeoutError
        try:
            chunk = connection.recv(65536)
        except TimeoutError:
            continue
        if not chunk:
            if data:
                yield data
            return
        data += chunk
        if b"\n" in chunk:
            *lines, data = data.split(b"\n")
            yield from lines
            last = time.monotonic()
    raise ValueError("a line of an answer is too long")


def running_hubs(*, left_over: Callable[[Path], None] = Path.unlink) -> Iterator[Json]:
    """Yields the facts of every running hub of this user, in the order they started.

    `left_over(path)` is called with the socket of a hub that was killed; by default it removes the socket.
    """
    directory = runtime_directory()
    try:
        paths = sorted(_private(directory).glob("*.sock"), key=_opened_at)
    except (OSError, ValueError):
        return
    for path in paths:
        facts = _facts_at(path, left_over)
        if facts is not None:
            yield facts


def _opened_at(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except FileNotFoundError:  # the hub has just ended
        return 0


def _facts_at(path: Path, left_over: Callable[[Path], None]) -> Json | None:
    try:
        with local_socket.connect(path, READ_WAIT) as connection:
            data = bytearray()
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(b'{"ask": "status"}\n')
                while len(data) < MAX_SIZE and (chunk := connection.recv(65536)):
                    data += chunk
        facts = json.loads(data)
    except ConnectionRefusedError:
        with contextlib.suppress(FileNotFoundError):
            left_over(path)
        return None
    except FileNotFoundError:
        return None  # the hub has just ended
    except (OSError, ValueError, RecursionError):
        return {"pid": int(path.stem) if path.stem.isdigit() else None, "problem": "it does not answer"}
    return facts if isinstance(facts, dict) else None
