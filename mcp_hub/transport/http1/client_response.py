"""The response that the client gets: its head, its body as a stream, decompression, and the failures."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence
from typing import Final, Literal, Protocol

BUFFER: Final = 256 * 1024
"""Bytes of a body that are buffered for the reader; beyond that, reading from the connection is paused."""


class BodySource(Protocol):
    """The connection that a body is read from."""

    def pause(self) -> None:
        """Pauses reading from the socket."""

    def resume(self) -> None:
        """Resumes reading from the socket."""

    def abort(self) -> None:
        """Closes the connection at once."""

    def done(self) -> None:
        """Takes note that the whole body has been read."""


class HttpResponse:
    """The response to one request. Its reader must read to the end or `close` it.

    `fields`: header names in lower case and values, in order. `first`: the first value of each name.
    """

    __slots__ = (
        "_complete",
        "_decompressor",
        "_failure",
        "_fields",
        "_pieces",
        "_size",
        "_source",
        "_waiter",
        "first",
        "status",
    )

    def __init__(
        self, status: int, fields: Sequence[tuple[bytes, bytes]], first: dict[bytes, bytes], source: BodySource
    ) -> None:
        self.status = status
        self._fields = fields
        self.first = first
        self._source: BodySource | None = source
        self._pieces: list[bytes] = []
        self._size = 0
        self._complete = False
        self._failure: HttpFailure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._decompressor: Decompressor | None = None
        if b"content-encoding" in self.first:
            self._decompressor = decompressor_for(", ".join(self.all("content-encoding")))

    def get(self, name: str) -> str | None:
        """Returns the first header of this name (in lower case), if there is one."""
        value = self.first.get(name.encode())
        return None if value is None else _text(value)

    def all(self, name: str) -> list[str]:
        """Returns all headers of this name (in lower case)."""
        raw_name = name.encode()
        return [_text(value) for field, value in self._fields if field == raw_name]

    @property
    def location(self) -> str | None:
        """The first header `location`; bytes that are not UTF-8 are percent-encoded, as a URL would drop them."""
        value = self.get("location")
        return None if value is None else _NOT_UTF_8.sub(lambda byte: f"%{ord(byte[0]) & 0xFF:02X}", value)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers in order, names in lower case."""
        return tuple((field.decode("latin-1"), _text(value)) for field, value in self._fields)

    # --- called by the connection --------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """Adds a piece of the body."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > BUFFER and self._source is not None:
            self._source.pause()
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        """Marks the body as complete."""
        self._complete = True
        if self._waiter is not None:
            self._wake()

    def fail(self, failure: HttpFailure) -> None:
        """Marks the body as broken off. The bytes received before can still be read."""
        self._source = None
        self._failure = self._failure or failure
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- called by the reader ------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes that were received and not read yet."""
        return self._size

    def arrived_body(self) -> bytes | None:
        """Returns the rest of the body if all of it has arrived uncompressed; else None: then use `chunk`."""
        if not self._complete or self._decompressor is not None:
            return None
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces, self._size = [], 0
        self._finish()
        return body

    async def chunk(self) -> bytes:
        """Waits for the next part of the body, decompressed; `b""` is the end. Raises HttpFailure if it broke off."""
        if self._decompressor is None:
            return await self._next_piece()
        while True:
            if not self._decompressor.busy:
                piece = await self._next_piece()
                if not piece:
                    self._decompressor.end()
                    return b""
                self._decompressor.put(piece)
            data = self._decompressor.step()
            if self._decompressor.busy:
                await asyncio.sleep(0)  # a few bytes can inflate to many: let other tasks run between the steps
            if data:
                return data

    async def _next_piece(self) -> bytes:
        while not self._pieces:
            if self._complete:
                self._finish()
                return b""
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pieces, size = self._pieces, self._size
        self._pieces, self._size = [], 0
        if size > BUFFER and self._source is not None:
            self._source.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _finish(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.done()

    def close(self) -> None:
        """Stops reading. If the body is not complete, the connection is closed. Idempotent."""
        if self._complete:
            self._finish()
        else:
            self.refuse()

    def refuse(self) -> None:
        """Stops reading and closes the connection, unless it was returned to its pool already."""
        source = self._source
        if source is not None:
            self._pieces, self._size, self._complete = [], 0, False
            self.fail(IncompleteBody("closed by its reader"))
            source.abort()


_NOT_UTF_8: Final = re.compile("[\udc80-\udcff]")
"""Matches what `_text` makes of a byte that is not UTF-8."""


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape").strip(" \t")


STEP: Final = 256 * 1024
"""Bytes that one step of decompression returns at most."""
ACCEPTED: Final = "gzip, deflate"
"""The value of `Accept-Encoding`."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class Decompressor:
    """Decompresses one body in bounded steps: `put` a piece, then call `step` while it is `busy`."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._gzip = coding in ("gzip", "x-gzip")
        self._inner = zlib.decompressobj(_GZIP) if self._gzip else None
        self._pending = b""
        self._has_data = False
        self.busy = False
        """Whether another step may return data without another piece."""

    def put(self, piece: bytes) -> None:
        """Adds a piece, which must not be empty. Raises NotHttp for a coding that was not asked for."""
        if self._inner is None:  # "deflate" means the zlib format, but some servers send it without the zlib header
            if self._coding != "deflate":
                raise NotHttp(f"the content encoding {self._coding[:40]!r} was not asked for")
            self._inner = zlib.decompressobj(_ZLIB if piece[0] & 15 == 8 else _RAW)
        self._pending += piece
        self._has_data = self.busy = True

    def step(self) -> bytes:
        """Returns at most STEP bytes of the body, perhaps none. Raises IncompleteBody for invalid data."""
        inner, pending = self._inner, self._pending
        if inner is not None and inner.eof:
            inner = self._next_member()
        if inner is None:
            self._pending, self.busy = b"", False
            return b""
        try:
            data = inner.decompress(pending, STEP)
        except zlib.error as error:
            raise IncompleteBody(str(error)) from None
        self._pending = inner.unused_data if inner.eof else inner.unconsumed_tail
        self.busy = bool(self._pending) or (len(data) == STEP and not inner.eof)
        return data

    def _next_member(self) -> zlib._Decompress | None:
        if not self._gzip or not self._pending.strip(b"\0"):
            return None  # padding
        self._inner = zlib.decompressobj(_GZIP)
        return self._inner

    def end(self) -> None:
        """Marks the end of the body. Raises IncompleteBody if the compressed data is incomplete."""
        if self._has_data and self._inner is not None and not self._inner.eof:
            raise IncompleteBody("the compressed data is incomplete")


_NO_CODINGS: Final = frozenset(
    {"", "identity", "none", "utf-8", "utf8", "us-ascii", "iso-8859-1", "7bit", "8bit", "binary"}
)
"""Values of `Content-Encoding` that say nothing about compression. Those but `identity` are mistakes of servers."""


def decompressor_for(coding: str) -> Decompressor | None:
    """Returns the decompressor for a `Content-Encoding`, None if the body is not compressed."""
    codings = [name for part in coding.lower().split(",") if (name := part.strip()) not in _NO_CODINGS]
    return Decompressor(", ".join(codings)) if codings else None


class HttpFailure(Exception):
    """There is no response, or no complete one. `failure_of` turns it into a LinkError with a text for users."""


ProxyStep = Literal["name", "connect", "tls", "credentials", "answer", "refused"]
"""The step at which connecting through a proxy failed. `refused`: the proxy answered that it made no connection."""


class NameUnknown(HttpFailure):
    """The host name does not resolve."""


class CertificateRefused(HttpFailure):
    """The host's certificate is not valid; `str()` is the reason."""


class CertificateWanted(HttpFailure):
    """The host ended the TLS handshake because the client presented no certificate that it accepts."""


class TlsFailed(HttpFailure):
    """The TLS handshake failed. `spoken` is False if the host answered with something other than TLS."""

    def __init__(self, *, spoken: bool = True) -> None:
        super().__init__()
        self.spoken = spoken


class ConnectFailed(HttpFailure):
    """No address accepted a connection; `error` is that of the last address."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class ConnectTimeout(HttpFailure):
    """No connection was available within the deadline."""


class ProxyFailed(HttpFailure):
    """The proxy made no connection to the host; nothing was sent. `str()` is a predicate whose subject is the proxy."""

    def __init__(self, step: ProxyStep, text: str) -> None:
        super().__init__(text)
        self.step = step


class NotHttp(HttpFailure):
    """The server's bytes are not valid HTTP/1; `str()` is the reason."""


class ConnectionBroke(HttpFailure):
    """The connection failed before the head of the response was complete."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class EmptyReply(HttpFailure):
    """The server closed the connection before the head of the response was complete."""


class IncompleteBody(HttpFailure):
    """The body of the response is incomplete."""


class PoolClosed(HttpFailure):
    """The pool was closed before a connection was available. Nothing was sent."""


def broken_by(error: Exception) -> HttpFailure:
    """Returns the failure for an error of the system or of TLS that has ended a connection."""
    if wants_certificate(error):
        return CertificateWanted()  # in TLS 1.3 the server refuses certificates only after the handshake
    return ConnectionBroke(error)


def wants_certificate(error: Exception) -> bool:
    """Returns whether a TLS error means that the other side refused the client's certificate, or the lack of one."""
    reason = str(getattr(error, "reason", None))
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)
