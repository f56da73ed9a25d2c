"""Finds secrets in a text in all their forms: plain, escaped, in hexadecimal, in base64.

An index of all forms makes the search for many secrets as fast as for one.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from typing import Final

LEVELS: Final = 6
"""The most levels of nested escapes that are undone."""

_ESCAPE: Final = re.compile(
    r"(?P<percent>(?:%[0-9a-fA-F]{2})+)"
    r"|(?P<bytes>(?:\\x[0-9a-fA-F]{2})+)"
    r"|(?P<units>(?:\\u[0-9a-fA-F]{4})+)"
    r"|\\U(?P<point>[0-9a-fA-F]{8})"
    r"|\\(?P<short>[\"'/bfnrt\\])"
    r"|&(?:#(?P<decimal>[0-9]{1,8})|#[xX](?P<hex>[0-9a-fA-F]{1,8})|(?P<name>[A-Za-z][A-Za-z0-9]{1,31}));"
)
_SHORT_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def has_escapes(text: str) -> bool:
    """Returns whether a text may have escapes."""
    return "%" in text or "\\" in text or ("&" in text and ";" in text)


def unescaped(text: str) -> str:
    """Returns `text` with one level of escapes undone."""
    return _ESCAPE.sub(_unescape, text)


def decodings(text: str) -> Iterator[str]:
    """Yields `text` with one level of escapes undone, with two, and so on, as long as it has any."""
    for _ in range(LEVELS):
        if not has_escapes(text):
            return
        plain = unescaped(text)
        if plain == text:
            return
        yield plain
        text = plain


def unescaped_with_positions(text: str, positions: list[int]) -> tuple[str, list[int]]:
    """Returns `unescaped(text)` and the position in the original text of each of its characters.

    `positions` has the position of each character of `text` and of its end; so has the returned list.
    """
    parts: list[str] = []
    mapped: list[int] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        plain = _unescape(match)
        parts += text[end : match.start()], plain
        mapped += positions[end : match.start()]
        mapped += [positions[at] for at in _starts(match, plain)]
        end = match.end()
    parts.append(text[end:])
    mapped += positions[end:]
    return "".join(parts), mapped


def _unescape(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "percent":
        return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogateescape")
    if kind == "bytes":
        data = bytes.fromhex(match[0].replace("\\x", ""))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    if kind == "units":
        return bytes.fromhex(match[0].replace("\\u", "")).decode("utf-16-be", "surrogatepass")
    if kind == "short":
        return _SHORT_ESCAPES.get(match["short"], match["short"])
    if kind == "name":
        return _html_names().get(f"{match['name']};", match[0])
    number = int(match["decimal"]) if kind == "decimal" else int(match[kind or "hex"], 16)
    return chr(number) if number < 0x110000 else match[0]


@cache
def _html_names() -> Mapping[str, str]:
    from html.entities import html5  # 2,000 names, imported when the first text has one

    return html5


def _starts(match: re.Match[str], plain: str) -> Iterator[int]:
    """Yields the position in the text at which the escape of each character of `plain` begins."""
    kind, start = match.lastgroup, match.start()
    if kind not in ("percent", "bytes", "units"):
        return iter(range(start, start + len(plain))) if plain == match[0] else iter([start] * len(plain))
    return _starts_of_run(start, match.end(), kind, plain)


def _starts_of_run(position: int, end: int, kind: str, plain: str) -> Iterator[int]:
    width = {"percent": 3, "bytes": 4, "units": 6}[kind]
    one_byte = kind == "bytes" and len(plain) * width == end - position
    for char in plain:
        yield position
        if one_byte:
            units = 1
        elif kind == "units":
            units = 2 if ord(char) > 0xFFFF else 1
        else:
            units = len(char.encode("utf-8", "surrogateescape"))
        position += width * units


MIN_SECRET: Final = 6
"""Characters; a shorter value is likely an ordinary word, and replacing it would garble texts."""
MIN_CUT: Final = 8
"""The fewest characters of the beginning of a secret that are replaced if the text was cut within it."""
CUT: Final = "…"
PIECE: Final = 1024
"""Characters; a longer secret is searched in pieces of this length, so that no form is long."""
MAX_LENGTH: Final = 65536
"""Characters of one secret that are searched."""
_OVERLAP: Final = 16
"""Characters that two pieces share, because a base64 character at their border belongs to both."""
_BLOCK: Final = 4
"""Bytes of a text for each look-up."""
_HEX: Final = re.compile(rb"[0-9a-f]+")

_WINDOW: Final = 2 * _BLOCK - 1
"""Bytes in a row that always contain a whole block."""

Span = tuple[int, int]
_Blocks = dict[int, set[int]]
"""Block -> its offsets in forms."""


class SecretIndex:
    """An index of every form of some secrets, in folded UTF-8.

    A text is read in blocks of four bytes. Any seven bytes in a row contain one of these blocks, so the index has the
    four possible blocks of the last seven bytes of each form. It uses the last ones because many secrets begin like
    ordinary texts, such as `https://`, and few end so. A form that was cut is found by its first seven bytes.
    """

    def __init__(self, values: Iterable[str]) -> None:
        pieces = {piece for value in values for piece in _pieces(value[:MAX_LENGTH])}
        forms = sorted({form for piece in pieces for form in _forms_of(piece) if len(form) >= MIN_SECRET})
        self._sorted = forms
        self._parents = _parents(forms)
        self._small = [form for form in forms if len(form) < _WINDOW]
        self._large = [form for form in forms if len(form) >= _WINDOW]
        self._ends = _blocks_of((form, len(form) - _WINDOW) for form in self._large)
        self._misses = frozenset(self._ends).isdisjoint
        """Returns whether none of some blocks is in `_ends`, four times as fast as with the keys of a dict."""
        self._longest = max(map(len, forms), default=0)

    @cached_property
    def _beginnings(self) -> _Blocks:
        return _blocks_of((form, 0) for form in self._large)

    def absent(self, text: str, *, cut: bool = False) -> bool:
        """Returns whether no form, and with `cut` no beginning of one, can be in the text.

        It is a fast check that returns True for most texts.
        """
        if cut and CUT in text:
            return False
        data = (text.casefold() if text.isascii() else fold(text)).encode("utf-8", "surrogatepass")
        if self._small and self._small_spans(data):
            return False
        return self._misses(memoryview(data[: len(data) & -_BLOCK]).cast("I"))

    def spans(self, text: str, *, cut: bool = False, hex_only: bool = False) -> list[Span]:
        """Returns the spans of forms in a text, in characters. Spans of different forms may overlap.

        With `cut`, the beginning of a form before a `…` counts too. With `hex_only`, only hexadecimal digits count.
        """
        folded = fold(text)
        data = folded.encode("utf-8", "surrogatepass")
        spans = self._small_spans(data) if self._small else []
        blocks = memoryview(data[: len(data) & -_BLOCK]).cast("I")
        spans += self._block_spans(self._ends, data, blocks, self._end)
        if cut and CUT in text:
            spans += self._block_spans(self._beginnings, data, blocks, self._end_of_cut)
        if hex_only:
            spans = [span for span in spans if _HEX.fullmatch(data, *span)]
        if spans and len(data) != len(folded):
            starts = list(accumulate((len(char.encode("utf-8", "surrogatepass")) for char in folded), initial=0))
            spans = [(bisect_left(starts, start), bisect_left(starts, end)) for start, end in spans]
        return spans

    def _small_spans(self, data: bytes) -> list[Span]:
        spans = []
        for form in self._small:
            at = data.find(form)
            while at >= 0:
                spans.append((at, at + len(form)))
                at = data.find(form, at + len(form))
        return spans

    def _block_spans(
        self, index: _Blocks, data: bytes, blocks: memoryview[int], end_of: Callable[[bytes, int], int | None]
    ) -> list[Span]:
        if index.keys().isdisjoint(blocks):
            return []
        end_by_start: dict[int, int] = {}
        for number, block in enumerate(blocks):
            for offset in index.get(block, ()):
                start = number * _BLOCK - offset
                if start >= 0 and start not in end_by_start:
                    end = end_of(data, start)
                    if end is not None:
                        end_by_start[start] = end
        return list(end_by_start.items())

    def _end(self, data: bytes, start: int) -> int | None:
        """Returns the end of the longest form that begins at `start`, None if none does."""
        window = data[start : start + self._longest]
        index = bisect_right(self._sorted, window) - 1
        while index >= 0 and not window.startswith(self._sorted[index]):
            index = self._parents[index]
        return start + len(self._sorted[index]) if index >= 0 else None

    def _end_of_cut(self, data: bytes, start: int) -> int | None:
        """Returns the position of the cut within a form that begins at `start`, None if there is none."""
        end = data.find(CUT.encode(), start + MIN_CUT, start + self._longest + len(CUT.encode()))
        if end < 0:
            return None
        beginning = data[start:end]
        index = bisect_left(self._sorted, beginning)
        return end if index < len(self._sorted) and self._sorted[index].startswith(beginning) else None


def _blocks_of(windows: Iterable[tuple[bytes, int]]) -> _Blocks:
    """Returns the blocks in a window of each form; `windows`: (form, offset of the window)."""
    offsets: _Blocks = {}
    for form, window_start in windows:
        for offset in range(window_start, window_start + _BLOCK):
            block = memoryview(form[offset : offset + _BLOCK]).cast("I")[0]
            offsets.setdefault(block, set()).add(offset)
    return offsets


def fold(text: str) -> str:
    """Returns `text` in one case, with as many characters as before."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(map(_fold_one, text))


@lru_cache(maxsize=1024)
def _fold_one(char: str) -> str:
    return folded if len(folded := char.casefold()) == 1 else char


def squeezed(text: str) -> str:
    """Returns `text` without blanks and line ends."""
    return "".join(text.split())


def _pieces(value: str) -> Iterator[str]:
    yield value[:PIECE]
    for start in range(PIECE - _OVERLAP, len(value) - _OVERLAP, PIECE - _OVERLAP):
        yield value[start : start + PIECE] if start + PIECE <= len(value) else value[-PIECE:]


def _forms_of(value: str) -> Iterator[bytes]:
    """Yields what a piece of a secret may look like in a text, such as its base64; letters are folded to one case."""
    for cased in {value, value.upper(), value.lower(), value.swapcase()}:
        for plain in (cased, *decodings(cased)):
            yield from (_folded(variant) for variant in {plain, plain.replace(" ", "+"), squeezed(plain)})
    data = value.encode("utf-8", "surrogatepass")
    yield data.hex().encode()
    for encoded in _base64(data):
        yield _folded(encoded)
        yield from map(_folded, (double_encoded for double_encoded in _base64(encoded.encode())))


def _base64(data: bytes) -> Iterator[str]:
    """Yields the part of the base64 of some bytes that does not depend on the bytes around them."""
    for offset in range(3):
        first, last = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        core = base64.b64encode(bytes(offset) + data).decode()[first:last]
        yield core
        if "+" in core or "/" in core:
            yield core.replace("+", "-").replace("/", "_")


def _folded(text: str) -> bytes:
    return fold(text).encode("utf-8", "surrogatepass")


def _parents(forms: list[bytes]) -> list[int]:
    """Returns for each of the sorted forms the index of the longest other one that it starts with, -1 for none."""
    parents: list[int] = []
    stack: list[int] = []
    for index, form in enumerate(forms):
        while stack and not form.startswith(forms[stack[-1]]):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents
