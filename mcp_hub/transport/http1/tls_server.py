"""TLS of the server: the handshake of each connection, and certificates that are reloaded when their files change.

The hub accepts these connections itself, so that each has a slot and a deadline from the start: asyncio and uvloop
report a connection only after its handshake, which some clients never complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.config_files import FileStamp, stamp_of
from mcp_hub.config.listen import Tls
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import MAX_PEM, open_regular
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.transport.http1 import server_connection
from mcp_hub.transport.http1.listener import ConnectionSlot, Listener
from mcp_hub.transport.http1.server_connection import ServerConnection

log = logging.getLogger("mcp_hub.downstream")

ACCEPTS_PER_STEP: Final = 64
"""Connections that are accepted in a row before other tasks run."""
AGAIN_AFTER: Final = 1.0
"""Seconds until the next attempt when the system has no file descriptor or memory left, as in asyncio."""
LOOK_EVERY: Final = 2.0
"""Seconds between two checks of the files of the certificate."""


class Certificates:
    """The TLS context for new connections. `watched` replaces it when the files of `tls` change.

    Open connections keep their context. Raises ConfigError for files that cannot be used.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._loaded_stamps = self._stamps()
        self.context = tls_context(tls)

    def _stamps(self) -> tuple[FileStamp | None, ...]:
        paths = (self._tls.cert, self._tls.key, self._tls.client_ca)
        return tuple(stamp_of(path) for path in paths if path is not None)

    async def watched(self) -> None:
        """Checks the files every LOOK_EVERY seconds and never returns. Run it as a task.

        A renewal writes the files one after the other, so changed files are read only once two checks found the same.
        Unusable files are logged once, and the certificate in use stays.
        """
        previous = self._loaded_stamps
        while True:
            await asyncio.sleep(LOOK_EVERY)
            current = await asyncio.to_thread(self._stamps)
            if current == previous and current != self._loaded_stamps:
                await self._reload(current)
            previous = current

    async def _reload(self, stamps: tuple[FileStamp | None, ...]) -> None:
        try:
            context = await asyncio.to_thread(tls_context, self._tls)
        except OSError:
            return  # a file vanished while it was read; the next check tries again
        except ConfigError as error:
            self._loaded_stamps = stamps
            log.error("%s; the certificate that was in use stays", printable(str(error), 1000))
            return
        if await asyncio.to_thread(self._stamps) != stamps:
            return  # they changed while they were read
        self._loaded_stamps = stamps
        self.context = context
        log.info("listen.tls: %s has changed; new connections get it", printable(str(self._tls.cert), 300))


class TlsServer:
    """Accepts TLS connections on one listening socket; `close` also closes the socket."""

    def __init__(self, listener: Listener, certificates: Certificates, sock: socket.socket) -> None:
        self._listener = listener
        self._certificates = certificates
        self._socket = sock
        self._task = BACKGROUND.keep("TLS connections", self._accept)

    def close(self) -> None:
        """Stops accepting. Connections that were accepted stay open."""
        self._task.cancel()
        if self._socket.fileno() >= 0:
            with contextlib.suppress(ValueError, OSError, NotImplementedError):
                self._listener.loop.remove_reader(self._socket)  # before the descriptor's number is reused
        self._socket.close()

    async def _accept(self) -> None:
        loop = self._listener.loop
        count = 0
        while True:
            try:
                sock, address = await loop.sock_accept(self._socket)
            except ConnectionError:
                continue  # the client has left already
            except OSError as error:
                log.warning("no connection is accepted for %g s: %s", AGAIN_AFTER, error.strerror)
                await asyncio.sleep(AGAIN_AFTER)
                continue
            TlsHandshake(self._listener, self._certificates.context, sock, str(address[0])).begin()
            count += 1
            if count % ACCEPTS_PER_STEP == 0:
                await asyncio.sleep(0)


class TlsHandshake:
    """A connection during its TLS handshake; afterwards a ServerConnection takes over the slot."""

    def __init__(self, listener: Listener, context: ssl.SSLContext, sock: socket.socket, peer: str) -> None:
        self._listener = listener
        self._context = context
        self._socket = sock
        self._peer = peer
        self._task: asyncio.Task[None] | None = None
        self._has_started = False
        """Whether the task has begun; one that is cancelled before never does."""

    def begin(self) -> None:
        """Starts the handshake. Without a free slot the socket is closed: no reply is possible before TLS."""
        slot = self._listener.acquire_slot(self, self._peer)
        if slot is None:
            self._socket.close()
            return
        self._task = self._listener.loop.create_task(self._run(slot))
        self._listener.tasks.add(self._task)
        self._task.add_done_callback(partial(self._finish, slot))

    def _finish(self, slot: ConnectionSlot, task: asyncio.Task[None]) -> None:
        self._listener.tasks.discard(task)
        if not self._has_started:
            self._socket.close()
        if slot.holder is self:
            self._listener.release_slot(slot)

    async def _run(self, slot: ConnectionSlot) -> None:
        self._has_started = True
        listener = self._listener
        try:
            with contextlib.suppress(OSError):  # event loops do this only for sockets they have accepted themselves
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await listener.loop.connect_accepted_socket(
                lambda: ServerConnection(listener, slot),
                self._socket,
                ssl=self._context,
                ssl_handshake_timeout=server_connection.HEAD_DEADLINE,
            )
        except ConnectionResetError:
            pass  # the client has left
        except OSError as error:  # TLS failed or took too long
            log.debug("a TLS handshake with %s failed: %s", slot.peer, error)
            listener.refusals.note("tls", slot.peer)

    def close_when_idle(self) -> None:
        """Drops the connection: nothing is being answered on it."""
        self.abort()

    def abort(self) -> None:
        """Drops the connection."""
        if self._task is not None:
            self._task.cancel()


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Returns the listener's TLS context. Raises ConfigError for files that cannot be used."""
    for key, path in (("cert", tls.cert), ("key", tls.key), ("client_ca", tls.client_ca)):
        if path is not None:
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
        raise ConfigError(f"listen.tls: {(problem := _certificate_problem(tls))}", problem.code) from None
    except (OSError, ValueError):
        raise ConfigError(f"listen.tls: {(problem := _certificate_problem(tls))}", problem.code) from None
    context.set_alpn_protocols(["http/1.1"])
    if tls.client_ca is not None:
        _ask_for_certificates(context, tls.client_ca)
    return context


def _ask_for_certificates(context: ssl.SSLContext, authorities: Path) -> None:
    """Makes the context ask clients for a certificate. A client without one must authenticate by a token."""
    try:
        context.load_verify_locations(authorities)
    except (OSError, ValueError):
        text = f"listen.tls.client_ca: {authorities} has no certificates in PEM (-----BEGIN CERTIFICATE-----)"
        raise ConfigError(text, codes.TLS_FILE_WRONG) from None
    if b"-----BEGIN X509 CRL-----" in authorities.read_bytes():
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.verify_mode = ssl.CERT_OPTIONAL


def _no_password() -> bytes:
    return b""


def _check_readable(setting: str, path: Path) -> None:
    try:
        open_regular(path, MAX_PEM).close()
    except OSError as error:
        text = f"{setting}: {path} cannot be read: {error.strerror or error}"
        raise ConfigError(text, codes.TLS_FILE_UNREADABLE) from None


def _certificate_problem(tls: Tls) -> CodedText:
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
