"""The sockets of a listener, and an end that keeps its promises in time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.config.listen import Listen, is_loopback
from mcp_hub.downstream.app import App
from mcp_hub.downstream.security import check_listener
from mcp_hub.downstream.tls import tls_context
from mcp_hub.errors import HubError

BACKLOG: Final = 1024
MAX_CONNECTIONS: Final = 10_000
"""As many as there can be sessions. One more takes the place of a stranger, or is answered 503 at once."""
KEPT_DESCRIPTORS: Final = 256
"""Descriptors that connections leave for servers, files and the loop itself."""
END_GRACE: Final = 2.75
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
        # Imported here: stdio does not need the parser.
        from mcp_hub.downstream.listener import Listener
        from mcp_hub.downstream.tls_server import TlsServer

        listener = Listener(app, connections_possible(), refusals=app.refusals, exempt=app.trusts)
        servers: list[asyncio.Server | TlsServer] = []
        loop = asyncio.get_running_loop()
        try:
            for each in sockets:
                if context is None:
                    servers.append(await loop.create_server(listener, sock=each, backlog=BACKLOG))
                else:
                    servers.append(TlsServer(listener, context, each))
            ready([_url(each, "http" if context is None else "https") for each in sockets])
            await stop.wait()
            for server in servers:
                server.close()
            await app.drain(grace)
            await listener.shut(END_GRACE)
        finally:
            for server in servers:
                server.close()
            await listener.cut()  # whoever did not read until now
            app.refusals.close()
    finally:
        for each in sockets:
            each.close()


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
