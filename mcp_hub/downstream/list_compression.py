"""Lists compressed with gzip, for clients that accept it.

Responses to many clients differ in the request id only, so the compressed list is cached and the id is put in front of
it, uncompressed. Nothing that a client sends is ever compressed together with what servers send.
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
"""Methods whose responses are compressed."""
WORTH: Final = 1024
"""The fewest bytes of a response that is compressed."""
LEVEL: Final = 1
"""The level of zlib: level 1 shrinks lists to a fifth, in a small part of the time that level 6 takes."""
AT_ONCE: Final = 64 * 1024
"""The most bytes that are compressed on the event loop, in half a millisecond; larger lists are in a thread."""
MAX_KEPT: Final = 16
"""The most compressed lists in the cache."""
MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of these lists, before compression."""

GZIPPED: Final[HeaderLines] = [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]

_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""The header of a gzip file, without name and time."""
_STORED: Final = struct.Struct("<BHH")
"""The header of a stored (uncompressed) deflate block: whether it is the last, its length, the length inverted."""
_TRAILER: Final = struct.Struct("<II")
"""The trailer of a gzip file: checksum and length of the uncompressed data."""
MAX_STORED: Final = 0xFFFF


class ListCompressor:
    """Compresses the responses to list requests, with a cache of the last lists."""

    def __init__(self) -> None:
        self._cache: OrderedDict[int, tuple[Raw, asyncio.Future[bytes]]] = OrderedDict()
        """Each list and its compressed bytes, by the `id()` of the list."""
        self._size = 0
        """Bytes of these lists before compression."""

    async def shortened(self, data: bytes, answer: Any) -> tuple[bytes, HeaderLines | None]:
        """Returns `data`, the text of the response `answer` to a list request, as gzip, and the header lines for it.

        An error, or a result that is not exactly a catalog's page, is returned unchanged, with None for the lines.
        """
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, Raw):
            return data, None
        view = memoryview(result)
        begin = len(data) - 1 - view.nbytes
        if not 0 < begin <= MAX_STORED or memoryview(data)[begin:-1] != view:
            return data, None  # the response holds more than the id and the list
        entry = self._cache.get(id(result))
        if entry is None:
            entry = self._compress(result, view)
        else:
            self._cache.move_to_end(id(result))
        compressed = await asyncio.shield(entry[1])
        trailer = _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
        return b"".join((_HEADER, _stored(data[:begin]), compressed, _stored(data[-1:], last=True), trailer)), GZIPPED

    def _compress(self, result: Raw, view: memoryview) -> tuple[Raw, asyncio.Future[bytes]]:
        loop = asyncio.get_running_loop()
        if view.nbytes > AT_ONCE:
            compressed: asyncio.Future[bytes] = loop.run_in_executor(None, _deflate, view)
        else:
            compressed = loop.create_future()
            compressed.set_result(_deflate(view))
        entry = self._cache[id(result)] = (result, compressed)
        self._size += view.nbytes
        while len(self._cache) > 1 and (len(self._cache) > MAX_KEPT or self._size > MAX_KEPT_BYTES):
            _, (oldest, _) = self._cache.popitem(last=False)
            self._size -= memoryview(oldest).nbytes
        return entry


def _deflate(view: memoryview) -> bytes:
    """Returns deflate blocks that depend on nothing before them, and that other blocks can follow."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(view) + compressor.flush(zlib.Z_FULL_FLUSH)


def _stored(text: bytes, *, last: bool = False) -> bytes:
    """Returns a deflate block that holds a text uncompressed."""
    return _STORED.pack(last, len(text), len(text) ^ MAX_STORED) + text
