"""Just enough of PNG to look at a picture: 8 bits a channel, not interlaced."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass


@dataclass
class Picture:
    width: int
    height: int
    channels: int
    rows: list[bytearray]
    """Decoded from the top, as far as they were asked for."""
    data: bytes

    def at(self, x: int, y: int) -> tuple[int, int, int]:
        """Red, green and blue of one pixel."""
        while len(self.rows) <= y:
            self._next_row()
        start = x * self.channels
        red, green, blue = self.rows[y][start : start + 3]
        return red, green, blue

    def _next_row(self) -> None:
        stride = self.width * self.channels
        start = len(self.rows) * (stride + 1)
        kind, row = self.data[start], bytearray(self.data[start + 1 : start + 1 + stride])
        above = self.rows[-1] if self.rows else bytearray(stride)
        for i in range(stride):
            left = row[i - self.channels] if i >= self.channels else 0
            corner = above[i - self.channels] if i >= self.channels else 0
            predicted = (0, left, above[i], (left + above[i]) // 2, _paeth(left, above[i], corner))[kind]
            row[i] = (row[i] + predicted) & 0xFF
        self.rows.append(row)


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))


def picture(data: bytes) -> Picture:
    """A PNG file as a picture."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    position, compressed, header = 8, b"", b""
    while position < len(data):
        (length,), kind = struct.unpack(">I", data[position : position + 4]), data[position + 4 : position + 8]
        body = data[position + 8 : position + 8 + length]
        header, compressed = (body, compressed) if kind == b"IHDR" else (header, compressed + body * (kind == b"IDAT"))
        position += 12 + length
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    assert (depth, interlaced) == (8, 0)
    return Picture(width, height, {2: 3, 6: 4}[colour], [], zlib.decompress(compressed))
