"""The head of one HTTP message: what a request says before its body, and the bytes that begin an answer."""

from __future__ import annotations

import re
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

HeaderLines = list[tuple[bytes, bytes]]
"""Names in lower case, values as they are."""

BLANKS: Final = " \t"
"""What may stand around a header's value and is no part of it; Python's own idea of blanks has more."""

LONG_TARGET: Final = 512
"""Bytes; longer targets are not remembered."""

_UNSOUND_NAME: Final = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\\[\]={}"]')
_UNSOUND_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class BadTarget(ValueError):
    """What is asked for is no path of a URL."""


class Head:
    """What one request says before its body, but for the length of it. Requests that say the same may share one."""

    __slots__ = ("_accepted", "_by_name", "_text", "_values", "lines", "method", "passed", "path", "query", "target")

    def __init__(self, method: str, target: bytes, lines: HeaderLines) -> None:
        """Raises BadTarget."""
        self.method = method
        self.target = target
        self.path, self.query = split_target(target) if len(target) <= LONG_TARGET else _split(target)
        self.lines = lines
        self.passed: object = None
        """The gate that has let these lines in."""
        self._by_name: dict[bytes, list[bytes]] | None = None
        self._values: dict[bytes, list[str]] = {}
        self._text: list[tuple[str, str]] | None = None
        self._accepted: dict[bytes, bool] = {}

    def raw(self, name: bytes) -> list[bytes]:
        """Every line of one header (name in lower case) as it came, in order."""
        if self._by_name is None:
            self._by_name = {}
            for key, value in self.lines:
                self._by_name.setdefault(key, []).append(value)
        return self._by_name.get(name, [])

    def values(self, name: bytes) -> list[str]:
        """The same as text, without the blanks around it; not to be changed."""
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = [value.decode("latin-1").strip(BLANKS) for value in self.raw(name)]
        return found

    @property
    def text(self) -> list[tuple[str, str]]:
        """Every line as text, without the blanks around its value; not to be changed."""
        if self._text is None:
            self._text = [(name.decode("latin-1"), value.decode("latin-1").strip(BLANKS)) for name, value in self.lines]
        return self._text

    def accepts(self, kind: bytes) -> bool:
        """Whether an answer may be of `kind` (`type/subtype`)."""
        found = self._accepted.get(kind)
        if found is None:
            found = self._accepted[kind] = accepts(self.values(b"accept"), kind=kind)
        return found


def _split(target: bytes) -> tuple[str, bytes]:
    """(path, query) of a request's target. Raises BadTarget."""
    import httptools

    try:
        url = httptools.parse_url(target)
        path = (url.path or b"\xff").decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise BadTarget(repr(target[:100])) from None
    return unquote(path) if "%" in path else path, url.query or b""


split_target: Final = lru_cache(maxsize=256)(_split)


def accepts(values: list[str], *, kind: bytes) -> bool:
    """Whether the lines of an Accept header allow `kind` (`type/subtype`); no such header allows everything."""
    if not values:
        return True
    wanted = kind.decode()
    ranges = (wanted, wanted.partition("/")[0] + "/*", "*/*")
    best: tuple[int, bool] | None = None
    for item in ",".join(values).split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name in ranges:
            refused = any(_is_zero(parameter) for parameter in parameters)
            found = (ranges.index(name), not refused)
            best = found if best is None or found[0] < best[0] else best  # the closest range decides
    return best is not None and best[1]


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip() in ("0", "0.", "0.0", "0.00", "0.000")


# --- answers -----------------------------------------------------------------------------------------------------


class _Starts:
    """Status line and date of answers, made once a second for each status."""

    def __init__(self) -> None:
        self._second = 0
        self._made: dict[int, bytes] = {}

    def __call__(self, status: int) -> bytes:
        now = int(time())
        if now != self._second:
            self._second = now
            self._made.clear()
        found = self._made.get(status)
        if found is None:
            line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ndate: {formatdate(now, usegmt=True)}\r\n"
            found = self._made[status] = line.encode("ascii")
        return found


start: Final = _Starts()
"""Status line and date for a status, without the empty line."""


def written(lines: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines as bytes. Raises ValueError for what would not be read back as it is."""
    text = b""
    for name, value in lines:
        if _UNSOUND_NAME.search(name) or _UNSOUND_VALUE.search(value):
            raise ValueError(f"no header can carry {name!r}: {value!r}")
        text += name.lower() + b": " + value + b"\r\n"
    return text


def closes(lines: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an answer with these lines is the last one of its connection."""
    return any(name == b"connection" and b"close" in value.lower() for name, value in lines)
