"""A second, strict reader of HTTP/1.1: it returns only messages that are beyond doubt, and ignores ambiguous ones."""

from __future__ import annotations

import re
from typing import NamedTuple

Fields = list[tuple[bytes, bytes]]
"""Names in lower case and values, in their order."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/1\.([01])\r\n" % _TOKEN)
_ANSWER = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [\t\x20-\x7e]*)?\r\n")
_FIELD = re.compile(rb"(%s):[ \t]*([\t\x20-\x7e\x80-\xff]*)\r\n" % _TOKEN)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_ABSOLUTE_URL = re.compile(rb"http(s)?://([^/?#]*)")
MAX_HEAD = 65_536
_BODILESS = (204, 304)


class Answer(NamedTuple):
    """A complete response. `end`: its end in the text; `last`: whether the connection must end there."""

    status: int
    fields: Fields
    body: bytes
    end: int
    last: bool


def requests(text: bytes) -> list[bytes]:
    """Returns the bodies of the requests in a text, up to the first ambiguous one."""
    bodies: list[bytes] = []
    at = 0
    while True:
        while text[at : at + 1] in (b"\r", b"\n"):
            at += 1  # every reader skips blank lines before a request
        line = _REQUEST.match(text, at)
        read = fields(text, line.end()) if line is not None else None
        if line is None or read is None or not _is_head(line, read[0], read[1] - at):
            return bodies
        body = sized_body(text, read[1], read[0])
        if body is None:
            return bodies
        data, at = body
        bodies.append(data)


def _is_head(line: re.Match[bytes], head: Fields, size: int) -> bool:
    """Whether a head is short enough, says one host in one way, and has a coding only where its version knows them."""
    hosts = [value.lower() for value in _all(head, b"host")]
    url = _ABSOLUTE_URL.match(line[2].lower())
    port = b":443" if url is not None and url[1] else b":80"
    return (
        size <= MAX_HEAD
        and (url is None or [url[2].removesuffix(port)] == [host.removesuffix(port) for host in hosts])
        and not (line[3] == b"0" and _all(head, b"transfer-encoding"))
    )


def answer(text: bytes, at: int, *, ended: bool) -> Answer | None:
    """Returns the final response at `at`, after interim ones. `ended`: no bytes follow the text."""
    while (line := _ANSWER.match(text, at)) is not None and (read := fields(text, line.end())) is not None:
        head, at = read
        status, keeps = int(line[2]), line[1] == b"1"
        if status == 101:
            return None
        if status < 200:
            continue
        tokens = [token.strip().lower() for token in b",".join(_all(head, b"connection")).split(b",")]
        last = b"close" in tokens or not (keeps or b"keep-alive" in tokens)
        if status in _BODILESS:
            return Answer(status, head, b"", at, last)
        if not _all(head, b"content-length") and not _all(head, b"transfer-encoding"):
            return Answer(status, head, text[at:], len(text), True) if ended else None
        if _all(head, b"transfer-encoding") and not keeps:
            return None
        body = sized_body(text, at, head)
        return Answer(status, head, *body, last) if body is not None else None
    return None


def fields(text: bytes, at: int) -> tuple[Fields, int] | None:
    """Returns the header fields behind the first line, and where they end."""
    head = []
    while not text.startswith(b"\r\n", at):
        field = _FIELD.match(text, at)
        if field is None:
            return None
        head.append((field[1].lower(), field[2].strip(b" \t")))
        at = field.end()
    return head, at + 2


def sized_body(text: bytes, at: int, head: Fields) -> tuple[bytes, int] | None:
    """Returns the body that the head delimits, and its end; without a length or coding it is empty."""
    lengths = _all(head, b"content-length")
    codings = [value.lower() for value in _all(head, b"transfer-encoding")]
    if codings:
        return _chunks(text, at) if codings == [b"chunked"] and not lengths else None
    if not lengths:
        return b"", at
    if len(lengths) > 1 or not re.fullmatch(rb"\d{1,15}", lengths[0]):
        return None
    end = at + int(lengths[0])
    return (text[at:end], end) if end <= len(text) else None


def _all(head: Fields, name: bytes) -> list[bytes]:
    return [value for field, value in head if field == name]


def _chunks(text: bytes, at: int) -> tuple[bytes, int] | None:
    data = b""
    while True:
        size = _CHUNK.match(text, at)
        if size is None:
            return None
        length, at = int(size[1], 16), size.end()
        if length == 0:
            break
        if text[at + length : at + length + 2] != b"\r\n":
            return None
        data += text[at : at + length]
        at += length + 2
    trailers = fields(text, at)
    return (data, trailers[1]) if trailers is not None else None
