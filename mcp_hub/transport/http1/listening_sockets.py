"""The listening sockets of the server, and TLS.

For TLS the hub accepts connections itself, so that each has a slot and a deadline from its first moment: asyncio and
uvloop report a connection only after its handshake, which some clients never complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import sys
from pathlib import Path
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.listen import Listen, Tls, is_loopback
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.transport.http1 import server_connection
from mcp_hub.transport.http1.listener import ConnectionSlot, Listener
from mcp_hub.transport.http1.server_connection import ServerConnection

log = logging.getLogger("mcp_hub.downstream")

BACKLOG: Final = 1024
MAX_CONNECTIONS: Final = 10_000
"""As many as there can be sessions. One more takes the slot of a stranger, or is answered 503 at once."""
KEPT_DESCRIPTORS: Final = 256
"""Descriptors that are kept free for upstream servers, files and the event loop."""
AT_ONCE: Final = 64
"""Connections that are accepted in a row before other tasks run."""
AGAIN_AFTER: Final = 1.0
"""Seconds until the next attempt when the system has no descriptor or memory left; asyncio waits as long."""


class TlsServer:
    """Accepts TLS connections on one listening socket, and closes it in the end."""

    def __init__(self, listener: Listener, context: ssl.SSLContext, listening: socket.socket) -> None:
        self._listener = listener
        self._context = context
        self._listening = listening
        self._task = listener.loop.create_task(self._accept())

    def close(self) -> None:
        """Stops accepting. Connections that were accepted go on."""
        self._task.cancel()
        if self._listening.fileno() >= 0:
            with contextlib.suppress(ValueError, OSError, NotImplementedError):
                self._listener.loop.remove_reader(self._listening)  # before the descriptor's number is reused
        self._listening.close()

    async def _accept(self) -> None:
        loop = self._listener.loop
        count = 0
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except ConnectionError:
                continue  # its client has left already
            except OSError as error:
                log.warning("no connection is accepted for %g s: %s", AGAIN_AFTER, error.strerror)
                await asyncio.sleep(AGAIN_AFTER)
                continue
            TlsHandshake(self._listener, self._context, accepted, str(address[0])).begin()
            count += 1
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)


class TlsHandshake:
    """A connection during its TLS handshake; afterwards a ServerConnection takes over the slot."""

    def __init__(self, listener: Listener, context: ssl.SSLContext, accepted: socket.socket, peer: str) -> None:
        self._listener = listener
        self._context = context
        self._accepted = accepted
        self._peer = peer
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Starts the handshake. Without a free slot the socket is closed: no reply is possible before TLS."""
        slot = self._listener.acquire_slot(self, self._peer)
        if slot is None:
            self._accepted.close()
            return
        self._task = self._listener.loop.create_task(self._shake_hands(slot))
        self._listener.tasks.add(self._task)
        self._task.add_done_callback(self._listener.tasks.discard)

    async def _shake_hands(self, slot: ConnectionSlot) -> None:
        listener = self._listener
        try:
            with contextlib.suppress(OSError):  # event loops do this only for sockets they have accepted themselves
                self._accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await listener.loop.connect_accepted_socket(
                lambda: ServerConnection(listener, slot),
                self._accepted,
                ssl=self._context,
                ssl_handshake_timeout=server_connection.HEAD_DEADLINE,
            )
        except ConnectionResetError:
            pass  # the client has left
        except OSError as error:  # TLS failed or took too long
            log.debug("a TLS handshake with %s failed: %s", slot.peer, error)
            listener.refusals.note("tls", slot.peer)
        finally:
            if slot.holder is self:
                listener.release_slot(slot)

    def close_when_idle(self) -> None:
        """Drops the connection: nothing is being answered on it."""
        self.abort()

    def abort(self) -> None:
        """Drops the connection."""
        if self._task is not None:
            self._task.cancel()


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Returns the listener's TLS context. Raises ConfigError, with the cause, for files that cannot be used."""
    for key, path in (("cert", tls.cert), ("key", tls.key)):
        _check_readable(f"listen.tls.{key}", path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password function, OpenSSL would prompt on the terminal for that of an encrypted key.
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"listen.tls: {tls.key} is not the private key of {tls.cert}"
            raise ConfigError(text, codes.TLS_FILE_WRONG) from None
        raise ConfigError(f"listen.tls: {(found := _what_is_wrong(tls))}", found.code) from None
    except (OSError, ValueError):
        raise ConfigError(f"listen.tls: {(found := _what_is_wrong(tls))}", found.code) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> bytes:
    return b""


def _check_readable(setting: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        text = f"{setting}: {path} cannot be read: {error.strerror or error}"
        raise ConfigError(text, codes.TLS_FILE_UNREADABLE) from None


def _what_is_wrong(tls: Tls) -> CodedText:
    if b"-----BEGIN CERTIFICATE-----" not in tls.cert.read_bytes():
        return CodedText(f"{tls.cert} has no certificate in PEM (-----BEGIN CERTIFICATE-----)", codes.TLS_FILE_WRONG)
    key = tls.key.read_bytes()
    if b"ENCRYPTED" in key:
        text = f"{tls.key} is encrypted; write it without a password, for this user's eyes only (chmod 600)"
        return CodedText(text, codes.TLS_KEY_ENCRYPTED)
    if b"PRIVATE KEY-----" not in key:
        return CodedText(f"{tls.key} has no private key in PEM (-----BEGIN PRIVATE KEY-----)", codes.TLS_FILE_WRONG)
    text = f"{tls.cert} and {tls.key} cannot be used; they must be a certificate and its private key, in PEM"
    return CodedText(text, codes.TLS_FILE_WRONG)


# --- sockets ---------------------------------------------------------------------------------------------------


async def bind(listen: Listen) -> list[socket.socket]:
    """Returns listening sockets on every address of `listen.host`, all on one port. Raises HubError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            listen.host.strip("[]") or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        text = f"listen.host {listen.host!r} is no address of this machine: {error}"
        raise HubError(text, codes.ADDRESS_FOREIGN) from error
    sockets: list[socket.socket] = []
    failed: OSError | None = None
    port = listen.port
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            if not listen.authenticates and not is_loopback(str(address[0])):
                text = f"listen.host {listen.host!r} is {address[0]} here, which lets others in: set listen.token"
                raise HubError(text, codes.TOKEN_MISSING)
            try:
                sockets.append(_bound(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno == errno.EADDRINUSE and listen.port != 0:
                    raise
                failed = error  # `localhost` resolves to ::1 too, even where there is no IPv6
                continue
            port = sockets[0].getsockname()[1]
        if not sockets:
            raise failed or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except BaseException as error:
        for each in sockets:
            each.close()
        if isinstance(error, OSError):
            raise _refusal(listen, error) from error
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
        opened.listen(BACKLOG)  # `bind` does not notice that another socket listens on the port
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


def _refusal(listen: Listen, error: OSError) -> HubError:
    where = f"{listen.host or '*'}:{listen.port}"
    if error.errno == errno.EADDRINUSE:
        text = f"cannot listen on {where}: another program does already; choose another listen.port (--port)"
        return HubError(text, codes.PORT_TAKEN)
    if error.errno == errno.EACCES:
        text = f"cannot listen on {where}: not permitted; ports below 1024 are the system's (--port)"
        return HubError(text, codes.PORT_FORBIDDEN)
    return HubError(f"cannot listen on {where}: {error.strerror or error}", codes.ADDRESS_FOREIGN)


def base_url(bound: socket.socket, scheme: str) -> str:
    """Returns `scheme://host:port` of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def connections_possible() -> int:
    """Returns how many connections there can be, after raising the process's limit of descriptors as far as allowed."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

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
