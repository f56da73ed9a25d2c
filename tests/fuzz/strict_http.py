"""A second reader of HTTP/1.1, strict in everything: what it finds is beyond doubt, what is in doubt it leaves."""

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
_WHOLE = re.compile(rb"http(s)?://([^/?#]*)")
MAX_HEAD = 65_536
_BODILESS = (204, 304)


class Answer(NamedTuple):
    """One that has come whole. `end`: where it ends in the text; `last`: whether the connection has to end there."""

    status: int
    fields: Fields
    body: bytes
    end: int
    last: bool


def requests(text: bytes) -> list[bytes]:
    """The bodies of the requests in a text, up to the first thing that is not beyond doubt."""
    found: list[bytes] = []
    at = 0
    while True:
        while text[at : at + 1] in (b"\r", b"\n"):
            at += 1  # blank lines before a request are passed over, by everybody
        line = _REQUEST.match(text, at)
        read = fields(text, line.end()) if line is not None else None
        if line is None or read is None or not _is_head(line, read[0], read[1] - at):
            return found
        body = sized_body(text, read[1], read[0])
        if body is None:
            return found
        data, at = body
        found.append(data)


def _is_head(line: re.Match[bytes], head: Fields, size: int) -> bool:
    """Whether a head is short enough, says one host in one way, and has a coding only where its version knows them."""
    hosts = [value.lower() for value in _all(head, b"host")]
    whole = _WHOLE.match(line[2].lower())
    port = b":443" if whole is not None and whole[1] else b":80"
    return (
        size <= MAX_HEAD
        and (whole is None or [whole[2].removesuffix(port)] == [host.removesuffix(port) for host in hosts])
        and not (line[3] == b"0" and _all(head, b"transfer-encoding"))
    )


def answer(text: bytes, at: int, *, ended: bool) -> Answer | None:
    """The answer that begins there, behind what stands before it. `ended`: nothing comes after the text."""
    while (line := _ANSWER.match(text, at)) is not None and (read := fields(text, line.end())) is not None:
        found, at = read
        status, keeps = int(line[2]), line[1] == b"1"
        if status == 101:
            return None
        if status < 200:
            continue
        words = [word.strip().lower() for word in b",".join(_all(found, b"connection")).split(b",")]
        last = b"close" in words or not (keeps or b"keep-alive" in words)
        if status in _BODILESS:
            return Answer(status, found, b"", at, last)
        if not _all(found, b"content-length") and not _all(found, b"transfer-encoding"):
            return Answer(status, found, text[at:], len(text), True) if ended else None
        if _all(found, b"transfer-encoding") and not keeps:
            return None
        body = sized_body(text, at, found)
        return Answer(status, found, *body, last) if body is not None else None
    return None


def fields(text: bytes, at: int) -> tuple[Fields, int] | None:
    """The lines of a head behind its first, and where they end."""
    found = []
    while not text.startswith(b"\r\n", at):
        field = _FIELD.match(text, at)
        if field is None:
            return None
        found.append((field[1].lower(), field[2].strip(b" \t")))
        at = field.end()
    return found, at + 2


def sized_body(text: bytes, at: int, head: Fields) -> tuple[bytes, int] | None:
    """A body whose head says where it ends, and where that is; a head that says nothing has none."""
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
