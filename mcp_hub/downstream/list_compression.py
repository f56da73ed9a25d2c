"""Lists compressed with gzip, for clients that accept it.

A list is the same for many clients but for the id of the request, so what is compressed is kept and the id is put in
front of it. Nothing that a client sends is ever compressed together with what servers say.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import OrderedDict
from typing import Any, Final

from mcp_hub.protocol.frames import Raw
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.transport.http1.heads import HeaderLines

LISTS: Final = frozenset(kind.list_method for kind in KINDS)
"""Methods whose answers are compressed."""
WORTH: Final = 1024
"""Bytes from which on it is worth it."""
LEVEL: Final = 1
"""Of lists, level 1 of zlib leaves a fifth in a small part of the time that level 6 takes."""
AT_ONCE: Final = 64 * 1024
"""Bytes that are compressed on the event loop, which takes half a millisecond; more of them in a thread."""
MAX_KEPT: Final = 16
"""Compressed lists that are kept."""
MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the lists that are kept compressed."""

GZIPPED: Final[HeaderLines] = [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]

_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""Of gzip, without a name and time."""
_STORED: Final = struct.Struct("<BHH")
"""The beginning of a stored block of deflate: whether it is the last one, its length, and that inverted."""
_TRAILER: Final = struct.Struct("<II")
"""Checksum and length."""
MAX_STORED: Final = 0xFFFF


class ListCompressor:
    """Compresses the answers to lists; keeps the last ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Raw, asyncio.Future[bytes]]] = OrderedDict()
        """The compressed text of each list, by the id of the object that the catalog gives for it."""
        self._size = 0
        """Bytes of these lists before compression."""

    async def shortened(self, data: bytes, answer: Any) -> tuple[bytes, HeaderLines | None]:
        """Returns the text `data` of the answer to a list as gzip, and the header lines for it; an error as it is."""
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, Raw):
            return data, None
        listed = memoryview(result)
        begin = len(data) - 1 - listed.nbytes
        if not 0 < begin <= MAX_STORED or memoryview(data)[begin:-1] != listed:
            return data, None  # the list is not all there is
        found = self._kept.get(id(result))
        if found is None:
            found = self._keep(result, listed)
        else:
            self._kept.move_to_end(id(result))
        middle = await asyncio.shield(found[1])
        trailer = _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
        return b"".join((_HEADER, _stored(data[:begin]), middle, _stored(data[-1:], last=True), trailer)), GZIPPED

    def _keep(self, result: Raw, listed: memoryview) -> tuple[Raw, asyncio.Future[bytes]]:
        loop = asyncio.get_running_loop()
        if listed.nbytes > AT_ONCE:
            made: asyncio.Future[bytes] = loop.run_in_executor(None, _deflated, listed)
        else:
            made = loop.create_future()
            made.set_result(_deflated(listed))
        found = self._kept[id(result)] = (result, made)
        self._size += listed.nbytes
        while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or self._size > MAX_KEPT_BYTES):
            _, (oldest, _) = self._kept.popitem(last=False)
            self._size -= memoryview(oldest).nbytes
        return found


def _deflated(listed: memoryview) -> bytes:
    """Returns blocks of deflate that depend on nothing before them and have no end."""
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(listed) + deflate.flush(zlib.Z_FULL_FLUSH)


def _stored(text: bytes, *, last: bool = False) -> bytes:
    """Returns a block of deflate that holds a text as it is."""
    return _STORED.pack(last, len(text), len(text) ^ MAX_STORED) + text
