"""Sockets, uvicorn in the hub's own loop, and an end that keeps its promises in time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp_hub.config.listen import Listen, is_loopback
from mcp_hub.errors import HubError
from mcp_hub.serve.app import App
from mcp_hub.serve.http import ABORT
from mcp_hub.serve.security import check_listener
from mcp_hub.serve.tls import tls_context

if TYPE_CHECKING:
    import ssl

    import uvicorn

log = logging.getLogger("mcp_hub.serve")

BACKLOG: Final = 1024
MAX_HEAD: Final = 64 * 1024
"""Bytes of request line and headers."""
HEAD_DEADLINE: Final = 15.0
"""Seconds from the start of a connection or request until its headers are complete."""
MAX_SPILL: Final = 64 * 1024 * 1024
"""Bytes of a body that are read after its request has been refused, so that the client gets to see the answer."""
KEEP_CONNECTION: Final = 75
"""Seconds an idle connection is kept; longer than clients keep theirs, so that none is closed under a request."""
UNREAD_DEADLINE: Final = 120.0
"""Seconds a client may take nothing of what is written for it; then its connection is dropped with what waits."""
MAX_CONNECTIONS: Final = 10_000
"""As many as there can be sessions; one more is answered 503 at once."""
KEPT_DESCRIPTORS: Final = 256
"""Descriptors that connections leave for servers, files and the loop itself."""
END_GRACE: Final = 2
"""Seconds for what is written but not yet read when everything has ended."""


async def serve_network(
    app: App,
    listen: Listen,
    *,
    stop: asyncio.Event,
    grace: float = 10.0,
    ready: Callable[[list[str]], None],
) -> None:
    """Serve until `stop` is set, then let calls finish for at most `grace` seconds; done 3 s after that at the latest.

    `ready` gets the base URLs (`http://127.0.0.1:8808`) once connections are accepted. Raises HubError, its text for
    the user, when the listener may not or cannot start.
    """
    problem = check_listener(listen)
    if problem is not None:
        raise HubError(problem)
    context = tls_context(listen.tls) if listen.tls is not None else None
    sockets = await bind(listen)
    try:
        server, started = _uvicorn(app, context)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=sockets))
        try:
            await _first(started, serving)
            ready([_url(each, "http" if context is None else "https") for each in sockets])
            await _first(stop, serving)
            for listener in server.servers:
                listener.close()
            await app.drain(grace)
            server.should_exit = True
            await asyncio.wait({serving}, timeout=END_GRACE + 0.75)
        finally:
            server.force_exit = server.should_exit = True
            for listener in getattr(server, "servers", ()):
                listener.close()
            for connection in tuple(server.server_state.connections):
                connection.transport.abort()  # whoever did not read until now
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
    finally:
        for each in sockets:
            each.close()


async def _first(event: asyncio.Event, serving: asyncio.Task[None]) -> None:
    """Return when `event` is set; raise when the server ends before."""
    waiting = asyncio.get_running_loop().create_task(event.wait())
    try:
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if serving.done() and not event.is_set():
        serving.result()
        raise HubError("the web server ended by itself")


# --- sockets ---------------------------------------------------------------------------------------------------


async def bind(listen: Listen) -> list[socket.socket]:
    """Sockets on every address of `listen.host`, all on one port. Raises HubError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            listen.host.strip("[]") or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise HubError(f"listen.host {listen.host!r} is no address of this machine: {error}") from error
    sockets: list[socket.socket] = []
    failed: OSError | None = None
    port = listen.port
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            if not listen.authenticates and not is_loopback(str(address[0])):
                raise HubError(
                    f"listen.host {listen.host!r} is {address[0]} here, which lets others in: set listen.token"
                )
            try:
                sockets.append(_bound(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno == errno.EADDRINUSE and listen.port != 0:
                    raise
                failed = error  # `localhost` is ::1 as well, where there is no IPv6
                continue
            port = sockets[0].getsockname()[1]
        if not sockets:
            raise failed or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except BaseException as error:
        for each in sockets:
            each.close()
        if isinstance(error, OSError):
            raise HubError(_why(listen, error)) from error
        raise
    return sockets


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)  # only this finds a port that another socket already listens on
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


def _why(listen: Listen, error: OSError) -> str:
    where = f"{listen.host or '*'}:{listen.port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: another program does already; choose another listen.port (--port)"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: not permitted; ports below 1024 are the system's (--port)"
    return f"cannot listen on {where}: {error.strerror or error}"


def _url(bound: socket.socket, scheme: str) -> str:
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def connections_possible() -> int:
    """How many connections there can be. The process's own limit of descriptors is raised as far as it may be."""
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + KEPT_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(soft - KEPT_DESCRIPTORS, soft // 2))


# --- uvicorn ---------------------------------------------------------------------------------------------------


def _uvicorn(app: App, context: ssl.SSLContext | None) -> tuple[uvicorn.Server, asyncio.Event]:
    """The server and an event that is set once it accepts. Imported here: 140 ms that stdio does not need."""
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    most = connections_possible()

    class BoundedProtocol(HttpToolsProtocol):
        """httptools sets no limit to headers, uvicorn none to the time they take, and neither to what is not read."""

        _reading: Literal["nothing", "head", "body"] = "nothing"
        _head = _chunk = _spill = 0
        _deadline: asyncio.TimerHandle | None = None
        _unread = 0
        _reading_again: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n")
                transport.write(b"connection: close\r\ncontent-length: 0\r\n\r\n")
                transport.close()
                return
            self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            self._read_on()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.transport.get_write_buffer_size()
            self._reading_again = self.loop.call_later(UNREAD_DEADLINE, self._unread_still)

        def resume_writing(self) -> None:
            self._read_on()
            super().resume_writing()

        def _read_on(self) -> None:
            if self._reading_again is not None:
                self._reading_again.cancel()
                self._reading_again = None

        def _unread_still(self) -> None:
            """An answer that nobody reads would be kept for as long as the client likes, closed or not."""
            left = self.transport.get_write_buffer_size()
            if left >= self._unread:
                self.transport.abort()
                return
            self._unread = left
            self._reading_again = self.loop.call_later(UNREAD_DEADLINE, self._unread_still)

        def data_received(self, data: bytes) -> None:
            before, self._chunk = self._reading, len(data)
            super().data_received(data)
            if self.transport.is_closing():
                return
            answered = self.cycle is None or self.cycle.response_complete
            if self._reading == "head":
                self._head += len(data)
                self._arm()
                if self._head > MAX_HEAD:
                    self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n")
                    self.transport.close()
            elif self._reading == "body" and answered:
                self._spill += len(data)
                self._arm()
                if self._spill > MAX_SPILL:
                    self.transport.close()
            elif before == "nothing" and answered:
                self._arm()  # blank lines between requests

        def on_message_begin(self) -> None:
            self._reading, self._spill = "head", 0
            self._head = -self._chunk  # what of this chunk belongs to the previous request is not known
            super().on_message_begin()
            self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}

        def on_headers_complete(self) -> None:
            self._reading = "body"
            self._disarm()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._reading = "nothing"
            self._disarm()
            super().on_message_complete()

        def _arm(self) -> None:
            if self._deadline is None:
                self._deadline = self.loop.call_later(HEAD_DEADLINE, self._late)

        def _disarm(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _late(self) -> None:
            self._deadline = None
            self.transport.close()

    started = asyncio.Event()

    class QuietServer(uvicorn.Server):
        """Leaves signals to the hub and says when it is there."""

        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            started.set()

    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_CONNECTION,
        timeout_graceful_shutdown=END_GRACE,
        ssl_context_factory=(lambda config, default: context) if context is not None else None,
    )
    return QuietServer(config), started
