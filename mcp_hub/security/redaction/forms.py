"""The forms of secrets that are looked for, and where in a text they stand: as fast for many secrets as for one."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final

from mcp_hub.security.redaction.escapes import levels

MIN_SECRET: Final = 6
"""Characters; shorter values are too likely to be ordinary words, replacing them would only garble the text."""
MIN_CUT: Final = 8
"""Characters of the beginning of a secret that give it away where a text was cut."""
CUT: Final = "…"
PIECE: Final = 1024
"""Characters; a longer secret is looked for in pieces of so many, so that no form is long."""
MAX_LENGTH: Final = 65536
"""Characters of one secret that are looked for."""
_OVERLAP: Final = 16
"""Characters two pieces have in common: in base64 the characters between two pieces belong to both of them."""
_BLOCK: Final = 4
"""Bytes of a text that are looked up at once."""
_HEX: Final = re.compile(rb"[0-9a-f]+")

Span = tuple[int, int]


class Forms:
    """Every form of some secrets, in folded UTF-8, and an index of them.

    A text is read in blocks of four bytes. A form of at least seven bytes fills one of them wherever it stands, with
    its bytes from the first, second, third or fourth on: the index has these four blocks of each form.
    """

    def __init__(self, values: Iterable[str]) -> None:
        pieces = {piece for value in values for piece in _pieces(value[:MAX_LENGTH])}
        forms = sorted({form for piece in pieces for form in _forms(piece) if len(form) >= MIN_SECRET})
        self._sorted = forms
        self._parents = _parents(forms)
        self._small = [form for form in forms if len(form) < 2 * _BLOCK - 1]
        self._offsets: dict[int, int] = {}
        """By the block: a bit for each place in a form at which it stands."""
        for form in forms:
            for offset in range(min(_BLOCK, len(form) - _BLOCK + 1)):
                block = memoryview(form[offset : offset + _BLOCK]).cast("I")[0]
                self._offsets[block] = self._offsets.get(block, 0) | 1 << offset
        self._blocks = self._offsets.keys()
        self._longest = max(map(len, forms), default=0)

    def absent(self, text: str) -> bool:
        """Whether no form can be in a text as it is. For most texts it is true, and known fast."""
        data = (text.casefold() if text.isascii() else fold(text)).encode("utf-8", "surrogatepass")
        if self._small and self._small_spans(data):
            return False
        return self._blocks.isdisjoint(memoryview(data[: len(data) & -_BLOCK]).cast("I"))

    def spans(self, text: str, *, cut: bool = False, hex_only: bool = False) -> list[Span]:
        """Where forms stand in a text, as places of its characters; none overlaps itself, but others it may.

        With `cut`, the beginning of one before a `…` counts too; with `hex_only` nothing but hexadecimal digits.
        """
        folded = fold(text)
        data = folded.encode("utf-8", "surrogatepass")
        found = self._small_spans(data) if self._small else []
        blocks = memoryview(data[: len(data) & -_BLOCK]).cast("I")
        if not self._blocks.isdisjoint(blocks):
            found += self._block_spans(data, blocks, cut=cut and CUT in text)
        if hex_only:
            found = [span for span in found if _HEX.fullmatch(data, *span)]
        if found and len(data) != len(folded):
            starts = list(accumulate((len(char.encode("utf-8", "surrogatepass")) for char in folded), initial=0))
            found = [(bisect_left(starts, start), bisect_left(starts, end)) for start, end in found]
        return found

    def _small_spans(self, data: bytes) -> list[Span]:
        found = []
        for form in self._small:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + len(form))
        return found

    def _block_spans(self, data: bytes, blocks: Iterable[int], *, cut: bool) -> list[Span]:
        found: dict[int, int] = {}
        offsets_of = self._offsets.get
        for number, block in enumerate(blocks):
            offsets = offsets_of(block)
            if offsets is None:
                continue
            for offset in range(_BLOCK):
                start = number * _BLOCK - offset
                if offsets >> offset & 1 and start >= 0 and start not in found:
                    end = self._end(data, start) or (self._end_of_cut(data, start) if cut else None)
                    if end is not None:
                        found[start] = end
        return list(found.items())

    def _end(self, data: bytes, start: int) -> int | None:
        """Where the longest form that begins at `start` ends."""
        here = data[start : start + self._longest]
        at = bisect_right(self._sorted, here) - 1
        while at >= 0 and not here.startswith(self._sorted[at]):
            at = self._parents[at]
        return start + len(self._sorted[at]) if at >= 0 else None

    def _end_of_cut(self, data: bytes, start: int) -> int | None:
        """Where the text was cut in the middle of a form that begins at `start`."""
        end = data.find(CUT.encode(), start + MIN_CUT, start + self._longest + len(CUT.encode()))
        if end < 0:
            return None
        beginning = data[start:end]
        at = bisect_left(self._sorted, beginning)
        return end if at < len(self._sorted) and self._sorted[at].startswith(beginning) else None


def fold(text: str) -> str:
    """`text` in one case, with as many characters as before."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(map(_fold_one, text))


@lru_cache(maxsize=1024)
def _fold_one(char: str) -> str:
    return one if len(one := char.casefold()) == 1 else char


def squeezed(text: str) -> str:
    """`text` without blanks and line ends."""
    return "".join(text.split())


def _pieces(value: str) -> Iterator[str]:
    yield value[:PIECE]
    for start in range(PIECE - _OVERLAP, len(value) - _OVERLAP, PIECE - _OVERLAP):
        yield value[start : start + PIECE] if start + PIECE <= len(value) else value[-PIECE:]


def _forms(value: str) -> Iterator[bytes]:
    """All forms of one piece, folded."""
    for written in {value, value.upper(), value.lower(), value.swapcase()}:
        for plain in (written, *levels(written)):
            yield from (_folded(one) for one in {plain, plain.replace(" ", "+"), squeezed(plain)})
    data = value.encode("utf-8", "surrogatepass")
    yield data.hex().encode()
    for once in _base64(data):
        yield _folded(once)
        yield from map(_folded, (twice for twice in _base64(once.encode())))


def _base64(data: bytes) -> Iterator[str]:
    """What of some bytes stands in every base64 text they are in, whatever is around them."""
    for offset in range(3):
        first, last = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        core = base64.b64encode(bytes(offset) + data).decode()[first:last]
        yield core
        if "+" in core or "/" in core:
            yield core.replace("+", "-").replace("/", "_")


def _folded(text: str) -> bytes:
    return fold(text).encode("utf-8", "surrogatepass")


def _parents(forms: list[bytes]) -> list[int]:
    """For each of some sorted texts the longest other one that it begins with; -1 for none."""
    parents: list[int] = []
    open_: list[int] = []
    for number, form in enumerate(forms):
        while open_ and not form.startswith(forms[open_[-1]]):
            open_.pop()
        parents.append(open_[-1] if open_ else -1)
        open_.append(number)
    return parents
