"""Bodies that come compressed, taken apart in bounded steps."""

from __future__ import annotations

import zlib
from typing import Final

from mcp_hub.transport.http1.failures import BrokenOff, NotHttp

STEP: Final = 256 * 1024
"""Bytes one step gives at most."""
ACCEPTED: Final = "gzip, deflate"
"""What `Accept-Encoding` says."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class Inflating:
    """One body being decompressed. Give it a piece, then take steps while it is `busy`."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._gzip = coding in ("gzip", "x-gzip")
        self._inner = zlib.decompressobj(_GZIP) if self._gzip else None
        self._rest = b""
        self._begun = False
        self.busy = False
        """Whether another step may give something without another piece."""

    def put(self, piece: bytes) -> None:
        """Take in what has come, not empty. Raises NotHttp where the coding is none that was asked for."""
        if self._inner is None:  # "deflate" means zlib's format, and some servers send it without its head
            if self._coding != "deflate":
                raise NotHttp(f"the content encoding {self._coding[:40]!r} was not asked for")
            self._inner = zlib.decompressobj(_ZLIB if piece[0] & 15 == 8 else _RAW)
        self._rest += piece
        self._begun = self.busy = True

    def step(self) -> bytes:
        """Up to STEP bytes of the body, perhaps none. Raises BrokenOff for what is not compressed so."""
        inner, rest = self._inner, self._rest
        if inner is not None and inner.eof:
            inner = self._next_member()
        if inner is None:
            self._rest, self.busy = b"", False
            return b""
        try:
            given = inner.decompress(rest, STEP)
        except zlib.error as error:
            raise BrokenOff(str(error)) from None
        self._rest = inner.unused_data if inner.eof else inner.unconsumed_tail
        self.busy = bool(self._rest) or (len(given) == STEP and not inner.eof)
        return given

    def _next_member(self) -> zlib._Decompress | None:
        if not self._gzip or not self._rest.strip(b"\0"):
            return None  # padding
        self._inner = zlib.decompressobj(_GZIP)
        return self._inner

    def end(self) -> None:
        """The body has ended. Raises BrokenOff if it should not have yet; one without a byte is empty."""
        if self._begun and self._inner is not None and not self._inner.eof:
            raise BrokenOff("compressed data without an end")


def inflating(coding: str) -> Inflating | None:
    """What undoes a `Content-Encoding`; None where there is nothing to undo."""
    coding = coding.strip().lower()
    return None if coding in ("", "identity") else Inflating(coding)
