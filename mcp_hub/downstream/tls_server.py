"""Accepts connections that begin with a TLS handshake: each has a place and a deadline from the moment it is there.

The servers of the loops tell nobody of a connection before its handshake is complete, and some never complete it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

from mcp_hub.downstream import connection as connections
from mcp_hub.downstream.connection import Connection
from mcp_hub.downstream.places import Place

if TYPE_CHECKING:
    from mcp_hub.downstream.listener import Listener

log = logging.getLogger("mcp_hub.downstream")

AT_ONCE: Final = 64
"""Connections that are accepted until others have their turn."""
AGAIN_AFTER: Final = 1.0
"""Seconds until the next attempt where the system has no descriptor or memory left, as the loops wait."""


class TlsServer:
    """Accepts on one listening socket, which it closes, until it is closed itself."""

    def __init__(self, listener: Listener, context: ssl.SSLContext, listening: socket.socket) -> None:
        self._listener = listener
        self._context = context
        self._listening = listening
        self._task = listener.loop.create_task(self._accept())

    def close(self) -> None:
        """Accept nothing any more. What was accepted goes on."""
        self._task.cancel()
        if self._listening.fileno() >= 0:
            with contextlib.suppress(ValueError, OSError, NotImplementedError):
                self._listener.loop.remove_reader(self._listening)  # before its number is somebody else's
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
            Handshake(self._listener, self._context, accepted, str(address[0])).begin()
            count += 1
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)


class Handshake:
    """A connection until both sides speak TLS; from then on the Connection has its place."""

    def __init__(self, listener: Listener, context: ssl.SSLContext, accepted: socket.socket, peer: str) -> None:
        self._listener = listener
        self._context = context
        self._accepted = accepted
        self._peer = peer
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Without a place it is dropped: before TLS there is no way to say why."""
        place = self._listener.arrived(self, self._peer)
        if place is None:
            self._accepted.close()
            return
        self._task = self._listener.loop.create_task(self._shake_hands(place))
        self._listener.tasks.add(self._task)
        self._task.add_done_callback(self._listener.tasks.discard)

    async def _shake_hands(self, place: Place) -> None:
        listener = self._listener
        try:
            with contextlib.suppress(OSError):  # the loops do this only for what they have accepted themselves
                self._accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await listener.loop.connect_accepted_socket(
                lambda: Connection(listener, place),
                self._accepted,
                ssl=self._context,
                ssl_handshake_timeout=connections.HEAD_DEADLINE,
            )
        except ConnectionResetError:
            pass  # the client has left
        except OSError as error:  # of TLS, or too late
            log.debug("a TLS handshake with %s failed: %s", place.peer, error)
            listener.refusals.note("tls", place.peer)
        finally:
            if place.holder is self:
                listener.left(place)

    def shut(self) -> None:
        """Nothing is being answered."""
        self.abort()

    def abort(self) -> None:
        """Drop the connection."""
        if self._task is not None:
            self._task.cancel()
