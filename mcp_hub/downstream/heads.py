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

MAX_HEAD: Final = 64 * 1024
"""Bytes of request line and headers, each with one blank behind its colon."""
MAX_KNOWN: Final = 8 * 1024
"""Bytes of a head that an idle connection keeps."""
AROUND: Final = len(b"  HTTP/1.1\r\n\r\n")
"""Bytes of a head besides method, target and header lines."""
LENGTH: Final = len(b"content-length: \r\n")
LINE: Final = 4
"""Bytes of a header line besides its name and value: colon, blank and the end of the line."""

_ABSOLUTE: Final = re.compile(rb"http(s)?://([^/?#@]+)", re.IGNORECASE)
"""A target that is a whole URL, up to its path."""
_UNSOUND_NAME: Final = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\\[\]={}"]')
_UNSOUND_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class BadHead(ValueError):
    """A head that ends its connection. `cause` is how it is counted, `status` how it is answered."""

    def __init__(self, text: str, status: int = 400, cause: str = "bad_request") -> None:
        super().__init__(text)
        self.status = status
        self.cause = cause


class BadTarget(BadHead):
    """What is asked for is no path of a URL."""


class Head:
    """What one request says before its body, but for the length of it. Requests that say the same may share one."""

    __slots__ = (
        *("_accepted", "_by_name", "_text", "_values", "authority", "in_chunks", "lines", "method", "passed", "path"),
        *("peer", "query", "size", "target"),
    )

    def __init__(self, method: str, target: bytes, lines: HeaderLines) -> None:
        """Raises BadHead."""
        self.method = method
        self.target = target
        split = split_target(target) if len(target) <= LONG_TARGET else _split(target)
        self.path, self.query, self.authority = split
        self.lines = lines
        self.size = sum(len(name) + len(value) + LINE for name, value in lines)
        """Bytes of the header lines."""
        self.in_chunks = _in_chunks([value for name, value in lines if name == b"transfer-encoding"])
        """Whether the body comes in chunks."""
        self.peer = ""
        """The address of whoever sends it, as the gate that has let these lines in sees it."""
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


class Heads:
    """Those of one connection. The last one is kept: the next request says the same, nearly always."""

    __slots__ = ("_known", "_length_at")

    def __init__(self) -> None:
        self._known: Head | None = None
        self._length_at = 0

    def head(self, method: bytes, target: bytes, lines: HeaderLines) -> tuple[Head, int | None]:
        """The head with these lines, and the length of its body where one of them says it. Raises BadHead."""
        at, length, size = self._length_at, None, 0
        if at >= len(lines) or lines[at][0] != b"content-length":
            at = next((n for n, (name, _) in enumerate(lines) if name == b"content-length"), -1)
        if at >= 0:
            self._length_at = at
            said = lines.pop(at)[1]
            length, size = int(said), len(said)  # the parser has seen that it is a number
        known = self._known
        if known is None or known.lines != lines or known.target != target or known.method != method.decode():
            known = Head(method.decode("ascii"), target, lines)
            if known.size + len(method) + len(target) + AROUND + size > MAX_HEAD - (at >= 0) * LENGTH:
                raise BadHead("the head is too long", 431, "head_too_large")
            self._known = known if known.size <= MAX_KNOWN else None
        return known, length


def _in_chunks(codings: list[bytes]) -> bool:
    """Whether the one transfer coding is `chunked`; readers disagree on where a body of any other ends.

    Raises BadHead: 501 for a coding below `chunked`, 400 where the end of the body is not known at all.
    """
    if not codings:
        return False
    named = [coding.strip(b" \t").lower() for coding in b",".join(codings).split(b",")]
    if named == [b"chunked"]:
        return True
    status = 501 if named[-1] == b"chunked" else 400
    raise BadHead("the only transfer coding that is taken is `chunked`", status, "transfer_encoding")


def _split(target: bytes) -> tuple[str, bytes, frozenset[bytes] | None]:
    """(path, query, authority) of a request's target. Raises BadTarget.

    The authority is how `Host` can name that of a whole URL, in lower case; None: the target is a path alone.
    """
    import httptools

    try:
        url = httptools.parse_url(target)
        path = (url.path or b"\xff").decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise BadTarget(repr(target[:100])) from None
    authority = None
    if url.schema is not None or url.host is not None:
        found = _ABSOLUTE.match(target)
        if found is None or url.userinfo is not None:
            raise BadTarget(repr(target[:100]))
        host, default = found[2].lower(), b":443" if found[1] else b":80"
        bare = host.removesuffix(default)
        authority = frozenset({bare, bare + default} if bare != host or not url.port else {host})
    return unquote(path) if "%" in path else path, url.query or b"", authority


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


RETRY: Final = b"retry-after: 1\r\n"


def last_answer(status: int, lines: bytes = b"") -> bytes:
    """A whole answer to what is no request, or to nothing; then its connection ends."""
    text = b"Invalid HTTP request received." if status == 400 else HTTPStatus(status).phrase.encode()
    lines += b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
    return start(status) + lines + text


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
