"""The listening sockets of the server: on the addresses of a host, on a path, or handed over by a service manager."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.config.credentials import is_loopback
from mcp_hub.config.listen import UNIX, Listen
from mcp_hub.errors import HubError
from mcp_hub.transport.http1.listener import Handler, Listener
from mcp_hub.transport.http1.server_connection import ServerConnection

BACKLOG: Final = 1024
MAX_CONNECTIONS: Final = 10_000
"""Connections of one listener, as many as there can be sessions; `ConnectionSlots` refuses more."""
KEPT_DESCRIPTORS: Final = 256
"""File descriptors that are kept free for upstream servers, files and the event loop."""
MACOS_DESCRIPTORS: Final = 10_240
"""OPEN_MAX of macOS, which refuses a higher limit even if it reports its own limit as infinite."""
END_GRACE: Final = 1.0
"""Seconds that clients of a loopback listener have at its end to read the rest."""
CONNECT_WAIT: Final = 2.0
"""Seconds until a connection to a socket of this machine is given up."""


async def bind(listen: Listen) -> list[socket.socket]:
    """Returns listening sockets on the path of `listen.host`, or on all its addresses and one port. Raises HubError."""
    if listen.socket_path is not None:
        return [bind_path(listen.socket_path)]
    loop = asyncio.get_running_loop()
    try:
        address_infos = await loop.getaddrinfo(
            listen.host.strip("[]") or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        text = f"listen.host {listen.host!r} is no address of this machine: {error}"
        raise HubError(text, codes.ADDRESS_FOREIGN) from error
    sockets: list[socket.socket] = []
    last_error: OSError | None = None
    port = listen.port
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in address_infos):
            if not listen.authenticates and not is_loopback(str(address[0])):
                text = f"listen.host {listen.host!r} is {address[0]} here, which lets others in: set listen.token"
                raise HubError(text, codes.TOKEN_MISSING)
            try:
                sockets.append(_open_socket(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno == errno.EADDRINUSE and listen.port != 0:
                    raise
                last_error = error  # `localhost` resolves to ::1 too, even where there is no IPv6
                continue
            port = sockets[0].getsockname()[1]
        if not sockets:
            raise last_error or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except BaseException as error:
        for sock in sockets:
            sock.close()
        if isinstance(error, OSError):
            raise _refusal(listen, error) from error
        raise
    return sockets


def _open_socket(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)  # `bind` does not notice that another socket listens on the port
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _refusal(listen: Listen, error: OSError) -> HubError:
    address = f"{listen.host or '*'}:{listen.port}"
    if error.errno == errno.EADDRINUSE:
        text = f"cannot listen on {address}: another program already listens there; choose another listen.port (--port)"
        return HubError(text, codes.PORT_TAKEN)
    if error.errno == errno.EACCES:
        text = f"cannot listen on {address}: not permitted; ports below 1024 are the system's (--port)"
        return HubError(text, codes.PORT_FORBIDDEN)
    return HubError(f"cannot listen on {address}: {error.strerror or error}", codes.ADDRESS_FOREIGN)


# --- Unix sockets ------------------------------------------------------------------------------------------------


def is_unix(bound: socket.socket) -> bool:
    """Returns whether a socket is a Unix socket."""
    return bound.family == getattr(socket, "AF_UNIX", None)


def bind_path(path: Path) -> socket.socket:
    """Returns a socket that listens on a path, which only this user can open. Raises HubError.

    It replaces a socket that nobody listens on any more, but no other file.
    """
    address = f"{UNIX}:{path}"
    if sys.platform == "win32":
        raise HubError(f"cannot listen on {address}: Python has no Unix sockets on this system", codes.SOCKET_UNUSABLE)
    if (problem := _directory_problem(path)) is not None:
        raise problem
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _directory_lock(path.parent):
            if (problem := path_problem(path)) is not None:
                raise problem
            path.unlink(missing_ok=True)
            sock.bind(str(path))
            path.chmod(0o600)  # before it listens: until then nobody can connect
            sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise HubError(f"cannot listen on {address}: {error.strerror or error}", codes.SOCKET_UNUSABLE) from error
    except BaseException:
        sock.close()
        raise
    return sock


def path_problem(path: Path) -> HubError | None:
    """Returns why the hub cannot listen on a path now; None if it can."""
    prefix = f"cannot listen on {UNIX}:{path}"
    if sys.platform == "win32":
        return HubError(f"{prefix}: Python has no Unix sockets on this system", codes.SOCKET_UNUSABLE)
    if (problem := _directory_problem(path)) is not None:
        return problem
    try:
        file_status = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return HubError(f"{prefix}: {error.strerror}", codes.SOCKET_UNUSABLE)
    if not stat.S_ISSOCK(file_status.st_mode):
        return HubError(f"{prefix}: there is something else than a socket; choose another path", codes.SOCKET_UNUSABLE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_WAIT)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return None
        except OSError as error:
            return HubError(f"{prefix}: whether its socket is in use cannot be told: {error}", codes.SOCKET_UNUSABLE)
    text = f"{prefix}: another program already listens there; choose another path (listen.host)"
    return HubError(text, codes.PORT_TAKEN)


def _directory_problem(path: Path) -> HubError | None:
    prefix = f"cannot listen on {UNIX}:{path}"
    try:
        parent_status = path.parent.stat()
    except OSError as error:
        text = f"{prefix}: the directory {path.parent} cannot be used: {error.strerror}; create it, for this user alone"
        return HubError(text, codes.SOCKET_UNUSABLE)
    if parent_status.st_mode & 0o022 and not parent_status.st_mode & stat.S_ISVTX:
        text = f"{prefix}: others can write to {path.parent} and put a socket of their own there; chmod go-w it"
        return HubError(text, codes.OPEN_TO_OTHERS)
    return None


@contextlib.contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    """Keeps other hubs from replacing a socket of this directory while the block runs. Raises HubError, OSError."""
    if sys.platform == "win32":  # there are no Unix sockets, and `bind_path` has refused already
        yield
        return
    import fcntl

    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        text = f"cannot listen in {directory}: another program locks the directory, perhaps a hub that starts"
        raise HubError(f"{text}; try again", codes.SOCKET_UNUSABLE) from None
    finally:
        os.close(directory_fd)


class OwnPath:
    """The path of a Unix socket that `bind` has opened, until `remove`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = path.lstat().st_ino

    def remove(self) -> None:
        """Removes the path. Idempotent. Call it before the socket is closed: until then no other hub replaces it."""
        inode, self._inode = self._inode, None
        with contextlib.suppress(OSError):
            if inode is not None and self._path.lstat().st_ino == inode:
                self._path.unlink()


async def accepting(bound: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Starts to accept connections on a listening socket, each with a new `protocol()`."""
    loop = asyncio.get_running_loop()
    if not is_unix(bound):
        return await loop.create_server(protocol, sock=bound, backlog=BACKLOG)
    # A socket that was handed over keeps its path; OwnPath removes that of a socket that the hub has bound.
    options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    return await loop.create_unix_server(protocol, sock=bound, backlog=BACKLOG, **options)


@contextlib.asynccontextmanager
async def serving_loopback(handler: Handler, max_connections: int, ports: Sequence[int] = (0,)) -> AsyncIterator[str]:
    """Answers requests on the first free port of `ports` on 127.0.0.1 (0: any) while the block runs; yields its URL.

    Clients have END_GRACE seconds at the end to read the rest. Raises HubError if no port is free.
    """
    for index, port in enumerate(ports, 1):
        try:
            (bound,) = await bind(Listen(port=port))
            break
        except HubError:
            if index == len(ports):
                raise
    listener = Listener(handler, max_connections)
    try:
        server = await accepting(bound, partial(ServerConnection, listener))
        try:
            yield base_url(bound, "http")
        finally:
            server.close()
            await listener.close(END_GRACE)
    finally:
        await listener.abort()
        bound.close()


# --- sockets that were handed over ---------------------------------------------------------------------------------


def check_handed(listen: Listen, handed: Sequence[tuple[str, socket.socket]]) -> Listen:
    """Returns `listen` with host and port of a socket that a service manager handed over, each given with its name.

    Of several, it takes the one that the most clients can reach: a network address before loopback, and loopback before
    a Unix socket. Raises HubError for a socket that cannot be served.
    """
    hosts = []
    for name, sock in handed:
        label = f"the socket {name!r} (descriptor {sock.fileno()}) that was handed over"
        if sock.type != socket.SOCK_STREAM or not (sock.family in (socket.AF_INET, socket.AF_INET6) or is_unix(sock)):
            raise HubError(f"{label} is no stream socket of IP or Unix (ListenStream=)", codes.SOCKET_HANDED)
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise HubError(f"{label} does not listen; the unit of the socket needs Accept=no", codes.SOCKET_HANDED)
        sock.setblocking(False)
        address = sock.getsockname()
        hosts.append((f"{UNIX}:{address}", 0) if is_unix(sock) else (str(address[0]), int(address[1])))
    host, port = max(
        hosts, key=lambda host_port: (not host_port[0].startswith(f"{UNIX}:")) + (not _is_local(host_port[0]))
    )
    return listen.model_copy(update={"host": host, "port": port})


def _is_local(host: str) -> bool:
    return host.startswith(f"{UNIX}:") or is_loopback(host)


def base_url(bound: socket.socket, scheme: str) -> str:
    """Returns `scheme://host:port` of a listening socket, `unix:/path` of a Unix socket."""
    if is_unix(bound):
        return f"{UNIX}:{bound.getsockname()}"
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def connections_possible() -> int:
    """Raises the process's limit of file descriptors as far as allowed; returns how many connections that permits."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_CONNECTIONS + KEPT_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < target:
        maximum = target if hard == resource.RLIM_INFINITY else min(target, hard)
        for limit in sorted({maximum, max(soft, min(maximum, MACOS_DESCRIPTORS))}, reverse=True):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                soft = limit
                break
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(soft - KEPT_DESCRIPTORS, soft // 2))
