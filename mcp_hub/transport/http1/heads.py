"""Heads of HTTP messages on the server: parsing those of requests, and writing those of replies."""

from __future__ import annotations

import re
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

HeaderLines = list[tuple[bytes, bytes]]
"""Header lines: names in lower case, values unchanged."""

BLANKS: Final = " \t"
"""White space that HTTP allows around a header's value; `str.strip()` alone would remove more."""

LONG_TARGET: Final = 512
"""Bytes of a target up to which its parts are cached."""

MAX_HEAD: Final = 64 * 1024
"""Bytes of request line and headers; each header counts with one blank after its colon."""
MAX_KNOWN: Final = 8 * 1024
"""Bytes of header lines up to which a connection caches a head."""
AROUND: Final = len(b"  HTTP/1.1\r\n\r\n")
"""Bytes of a head besides method, target and header lines."""
LENGTH: Final = len(b"content-length: \r\n")
LINE: Final = 4
"""Bytes of a header line besides its name and value: colon, blank and the end of the line."""

_LENGTH_LINE: Final = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)
_ABSOLUTE: Final = re.compile(rb"http(s)?://([^/?#@]+)", re.IGNORECASE)
"""A target in absolute form (a whole URL), up to its path."""
_UNSOUND_NAME: Final = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\\[\]={}"]')
_UNSOUND_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class BadHead(ValueError):
    """A head that is refused and ends its connection. `status`: of the reply. `cause`: its name in statistics."""

    def __init__(self, text: str, status: int = 400, cause: str = "bad_request") -> None:
        super().__init__(text)
        self.status = status
        self.cause = cause


class BadTarget(BadHead):
    """The target of a request is not valid."""


class RequestHead:
    """The head of a request without Content-Length. Equal requests of a connection may share one object."""

    __slots__ = (
        *("_accepted", "_by_name", "_text", "_values", "authority", "facts", "in_chunks", "lines", "method", "passed"),
        *("path", "peer", "prefix", "query", "route", "size", "target"),
    )

    def __init__(self, method: str, target: bytes, lines: HeaderLines) -> None:
        """Raises BadHead."""
        self.method = method
        self.target = target
        split = split_target(target) if len(target) <= LONG_TARGET else _split(target)
        self.path, self.query, self.authority = split
        self.prefix = ""
        """The path at which the hub is mounted in another application; `path` does not include it."""
        self.lines = lines
        self.size = sum(len(name) + len(value) + LINE for name, value in lines)
        """Bytes of all header lines."""
        self.in_chunks = _in_chunks([value for name, value in lines if name == b"transfer-encoding"])
        """Whether the body is in chunked transfer coding."""
        self.peer = ""
        """The client's address: that of the peer, or the one that a trusted proxy names. Set by the handler."""
        self.passed: object = None
        """The gate that has accepted this head, so that equal heads are not checked again. Set by the handler."""
        self.route: Any = None
        """The handler of requests with this head, once the gate has accepted it. Set by the handler of all requests."""
        self.facts: object = None
        """What `route` has parsed of the head, so that equal heads are not parsed again. Set by `route`."""
        self._by_name: dict[bytes, list[bytes]] | None = None
        self._values: dict[bytes, list[str]] = {}
        self._text: list[tuple[str, str]] | None = None
        self._accepted: dict[bytes, bool] = {}

    def raw(self, name: bytes) -> list[bytes]:
        """Returns every value of one header (name in lower case), unchanged and in order."""
        if self._by_name is None:
            self._by_name = {}
            for key, value in self.lines:
                self._by_name.setdefault(key, []).append(value)
        return self._by_name.get(name, [])

    def values(self, name: bytes) -> list[str]:
        """Returns the values of one header as stripped text, in order. The list must not be changed."""
        values = self._values.get(name)
        if values is None:
            values = self._values[name] = [value.decode("latin-1").strip(BLANKS) for value in self.raw(name)]
        return values

    @property
    def text(self) -> list[tuple[str, str]]:
        """Every header line as stripped text. The list must not be changed."""
        if self._text is None:
            self._text = [(name.decode("latin-1"), value.decode("latin-1").strip(BLANKS)) for name, value in self.lines]
        return self._text

    def accepts(self, kind: bytes) -> bool:
        """Returns whether the client accepts the media type `kind` (`type/subtype`)."""
        is_accepted = self._accepted.get(kind)
        if is_accepted is None:
            is_accepted = self._accepted[kind] = accepts(self.values(b"accept"), kind=kind)
        return is_accepted


class RequestHeadCache:
    """Caches the last request head of a connection: the next request nearly always has the same."""

    __slots__ = ("_cached", "_length_index", "_template")

    def __init__(self) -> None:
        self._cached: RequestHead | None = None
        self._length_index = 0
        self._template: tuple[bytes, bytes, RequestHead] | None = None
        """The last head that came with its whole body: the bytes before and after the digits of Content-Length."""

    def known(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """Returns head and body if `data` is a whole request whose head equals the cached one; else None.

        Only the digits of Content-Length may differ.
        """
        if self._template is None:
            return None
        prefix, suffix, head = self._template
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH_LINE.search(data, 0, end)
        if length is None or not data.startswith(prefix) or data[length.end(1) : end] != suffix:
            return None
        if length.start(1) != len(prefix) or len(data) - end != int(length[1]):
            return None
        return head, data[end:]

    def learn(self, data: bytes, size: int | None) -> None:
        """Caches the bytes of the last head, which was parsed from `data`, if `data` is exactly its request.

        `size`: its Content-Length.
        """
        head, end = self._cached, data.find(b"\r\n\r\n") + 4
        length = _LENGTH_LINE.search(data, 0, end)
        if head is None or length is None or head.method != "POST":
            return
        if size == int(length[1]) == len(data) - end and not head.raw(b"expect"):
            self._template = (data[: length.start(1)], data[length.end(1) : end], head)

    def head(self, method: bytes, target: bytes, lines: HeaderLines) -> tuple[RequestHead, int | None]:
        """Returns the head with these lines, and the Content-Length if there is one. Raises BadHead."""
        index, length, size = self._length_index, None, 0
        if index >= len(lines) or lines[index][0] != b"content-length":
            index = next((n for n, (name, _) in enumerate(lines) if name == b"content-length"), -1)
        if index >= 0:
            self._length_index = index
            value = lines.pop(index)[1]
            length, size = int(value), len(value)  # the parser has checked that it is a number
        head = self._cached
        if head is None or head.lines != lines or head.target != target or head.method != method.decode():
            head = RequestHead(method.decode("ascii"), target, lines)
            if head.size + len(method) + len(target) + AROUND + size > MAX_HEAD - (index >= 0) * LENGTH:
                raise BadHead("the head is too long", 431, "head_too_large")
            self._cached = head if head.size <= MAX_KNOWN else None
        return head, length


def _in_chunks(codings: list[bytes]) -> bool:
    """Returns whether the only transfer coding is `chunked`. Programs disagree on where bodies in other codings end.

    Raises BadHead: 501 for another coding inside of `chunked`, 400 if the end of the body is unknown.
    """
    if not codings:
        return False
    names = [coding.strip(b" \t").lower() for coding in b",".join(codings).split(b",")]
    if names == [b"chunked"]:
        return True
    status = 501 if names[-1] == b"chunked" else 400
    raise BadHead("the only transfer coding that is taken is `chunked`", status, "transfer_encoding")


def _split(target: bytes) -> tuple[str, bytes, frozenset[bytes] | None]:
    """Returns (path, query, authority) of a request's target. Raises BadTarget.

    `authority` is the set of values that `Host` may have for a target in absolute form, in lower case; None for a path.
    """
    import httptools

    try:
        url = httptools.parse_url(target)
        path = (url.path or b"\xff").decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise BadTarget(repr(target[:100])) from None
    authority = None
    if url.schema is not None or url.host is not None:
        match = _ABSOLUTE.match(target)
        if match is None or url.userinfo is not None:
            raise BadTarget(repr(target[:100]))
        host, default = match[2].lower(), b":443" if match[1] else b":80"
        bare_host = host.removesuffix(default)
        authority = frozenset({bare_host, bare_host + default} if bare_host != host or not url.port else {host})
    return unquote(path) if "%" in path else path, url.query or b"", authority


split_target: Final = lru_cache(maxsize=256)(_split)


def accepts(values: list[str], *, kind: bytes) -> bool:
    """Returns whether the values of Accept allow the media type `kind` (`type/subtype`).

    Without the header, everything is allowed.
    """
    if not values:
        return True
    media_type = kind.decode()
    ranges = (media_type, media_type.partition("/")[0] + "/*", "*/*")
    best: tuple[int, bool] | None = None
    for item in ",".join(values).split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name in ranges:
            refused = any(_is_zero(parameter) for parameter in parameters)
            candidate = (ranges.index(name), not refused)
            best = candidate if best is None or candidate[0] < best[0] else best  # the closest range decides
    return best is not None and best[1]


def is_json(values: list[str]) -> bool:
    """Returns whether there is exactly one Content-Type and it is JSON, whatever its parameters."""
    return len(values) == 1 and values[0].partition(";")[0].strip().lower() == "application/json"


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip() in ("0", "0.", "0.0", "0.00", "0.000")


# --- answers -----------------------------------------------------------------------------------------------------


class _StatusLines:
    """Makes the status line and date of replies; each status is cached for a second."""

    def __init__(self) -> None:
        self._second = 0
        self._cache: dict[int, bytes] = {}

    def __call__(self, status: int) -> bytes:
        now = int(time())
        if now != self._second:
            self._second = now
            self._cache.clear()
        encoded = self._cache.get(status)
        if encoded is None:
            line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ndate: {formatdate(now, usegmt=True)}\r\n"
            encoded = self._cache[status] = line.encode("ascii")
        return encoded


start: Final = _StatusLines()
"""Returns status line and date for a status, without the empty line."""


RETRY: Final = b"retry-after: 1\r\n"
EVENT_STREAM: Final[HeaderLines] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
"""The header lines of an event stream."""


def last_answer(status: int, lines: bytes = b"") -> bytes:
    """Returns a complete reply to invalid HTTP, or to a connection without a slot; the connection closes after it."""
    text = b"Invalid HTTP request received." if status == 400 else HTTPStatus(status).phrase.encode()
    lines += b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
    return start(status) + lines + text


def written(lines: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns header lines as bytes. Raises ValueError for names and values that HTTP cannot carry."""
    text = b""
    for name, value in lines:
        if _UNSOUND_NAME.search(name) or _UNSOUND_VALUE.search(value):
            raise ValueError(f"no header can carry {name!r}: {value!r}")
        text += name.lower() + b": " + value + b"\r\n"
    return text


def closes(lines: Iterable[tuple[bytes, bytes]]) -> bool:
    """Returns whether these lines have `Connection: close`."""
    return any(name == b"connection" and b"close" in value.lower() for name, value in lines)
