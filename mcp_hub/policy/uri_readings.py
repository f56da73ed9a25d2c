"""The readings of a resource URI, or of a rule about URIs: how the servers that get it may interpret it. Pure.

Servers differ: some decode a URI once, some twice, some resolve `..`, some ignore the host or the query. `readings`
returns one text for each of these ways, always in the same order, so that a rule is compared only with a URI read in
the same way. A text has no certain reading if it is too long, is encoded too often, has control characters or bytes
that are not UTF-8, or if its `..` leads to different places for different readers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import unquote

from mcp_hub.security.urls import decoded_but_delimiters, host_and_port
from mcp_hub.text import normalized

MAX_URI: Final = 8192
"""Characters of a URI that is read; a longer one has no certain reading."""
DECODINGS: Final = 3
"""Rounds of percent-decoding that are followed; what is encoded more often has no certain reading."""
LITERAL, RESOLVED, HOSTLESS = range(3)
"""Ways to read `..`: kept; resolved, with double slashes ignored; resolved, and a file URI loses its host."""
MARKS: Final = "".join(map(chr, range(0xFDD0, 0xFDF0)))
"""Noncharacters, which no URI has. They replace the wildcards and expressions of a rule while it is read."""

_UNICODE_ESCAPE: Final = re.compile(r"%u[0-9A-Fa-f]{4}", re.IGNORECASE)
_MARK: Final = re.compile(f"[{MARKS}]")
_DELIMITERS: Final = "/\\.:%?#"
_TAIL: Final = re.compile(r"[?#;]")
_UNCERTAIN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DRIVE: Final = re.compile(r"[A-Za-z][:|]")
_SHORT_NAME: Final = re.compile(r"[^/.]{1,6}~[0-9]{1,6}(?:\.[^/.]{0,3})?")
"""The short name that Windows gives to a file with a long name, such as `PRIVAT~1`."""
_LOCAL_HOSTS: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


class UriReading(NamedTuple):
    """The text of a URI as one kind of server reads it."""

    text: str
    root: str
    """The text without query, fragment and parameters, which many servers ignore."""


def readings(text: str) -> tuple[UriReading, ...] | None:
    """Returns a text in every way that servers read it. The index modulo 3 is LITERAL, RESOLVED or HOSTLESS.

    Returns None if no reading is certain. `MARKS` are kept as characters with unknown meaning.
    """
    if len(text) > MAX_URI or _UNICODE_ESCAPE.search(text):
        return None
    levels = _levels(text)
    if levels is None:
        return None
    if "%" not in text and text.isascii() and _compatible(text) == text:
        # The case of nearly every URI: nothing to decode, and no ambiguous characters.
        variant_readings = _variant_readings(text)
        return None if variant_readings is None else variant_readings * (2 * (DECODINGS + 1))
    result: list[UriReading] = []
    cache: dict[str, tuple[UriReading, ...] | None] = {}
    for level in levels:
        if _is_doubtful(level):
            return None
        for variant in (normalized(level, "NFC"), _compatible(level)):
            if variant not in cache:
                cache[variant] = _variant_readings(variant)
            variant_readings = cache[variant]
            if variant_readings is None:
                return None
            result += variant_readings
    return tuple(result)


def folded(text: str) -> str:
    """Returns a reading without differences in case and compatibility forms."""
    return normalized(normalized(text).casefold())


def trimmed(text: str) -> str:
    """Returns a resolved reading without what Windows ignores: dots and spaces after a name, names of streams."""
    scheme, mark, path = text.partition("://")
    parts = [part if part in (".", "..") else part.partition("::$")[0].rstrip(" .") for part in path.split("/")]
    if scheme == "file":
        parts = [part if _DRIVE.fullmatch(part) else part.partition(":")[0] for part in parts]
    return f"{scheme}{mark}{'/'.join(parts).rstrip('/')}"


def _levels(text: str) -> tuple[str, ...] | None:
    """Returns the text with everything decoded except delimiters, then after each round of decoding everything."""
    if "%" not in text:
        return (text,) * (DECODINGS + 1) if _is_certain(text) else None
    try:
        levels = [decoded_but_delimiters(text)]
        for _ in range(DECODINGS):
            text = unquote(text, errors="strict")
            levels.append(text)
        if unquote(text, errors="strict") != text:
            return None
    except ValueError:
        return None
    marks = len(_MARK.findall(levels[0]))
    all_certain = all(_is_certain(level) and len(_MARK.findall(level)) == marks for level in levels)
    return tuple(levels) if all_certain else None


def _is_certain(text: str) -> bool:
    if text.isascii():
        return text.isprintable()
    return not any(unicodedata.category(char) in _UNCERTAIN_CATEGORIES for char in text)


def _compatible(text: str) -> str:
    """Returns the text with lookalikes replaced, invisible characters dropped and backslashes turned into slashes."""
    if not text.isascii():
        text = normalized(text)
        text = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return text.replace("\\", "/").strip()


def _is_doubtful(text: str) -> bool:
    """Returns whether a text has a lookalike of a slash, or of another delimiter and a backslash or invisible one."""
    if text.isascii():
        return False
    plain = normalized(text)
    if any(plain.count(char) != text.count(char) for char in "/\\"):
        return True
    lookalike = any(plain.count(char) != text.count(char) for char in _DELIMITERS)
    return lookalike and ("\\" in plain or any(unicodedata.category(char) == "Cf" for char in plain))


def _variant_readings(text: str) -> tuple[UriReading, ...] | None:
    base = _TAIL.split(text, maxsplit=1)[0]
    result: list[UriReading] = []
    for mode in (LITERAL, RESOLVED, HOSTLESS):
        full_text = _normalised(text, mode)
        root = full_text if base == text else _normalised(base, mode)
        if full_text is None or root is None:
            return None
        result.append(UriReading(full_text, root))
    return tuple(result)


def _normalised(text: str, mode: int) -> str | None:
    scheme, colon, remainder = text.partition(":")
    if not colon or not scheme or "/" in scheme:
        scheme, remainder = "", text
    scheme = scheme.lower()
    if scheme == "file":
        return _file(remainder, mode)
    if scheme in _DEFAULT_PORTS:
        authority, slash, path = remainder.lstrip("/").partition("/")
        host, port = host_and_port(authority)
        host_port = host if port in (None, _DEFAULT_PORTS[scheme]) else f"{host}:{port}"
        remainder = f"//{host_port or authority}{slash}{path}"
    if mode == LITERAL:
        return f"{scheme}:{remainder}" if scheme else remainder
    resolved = _path(remainder.split("/"))
    return None if resolved is None else f"{scheme}://{resolved}"


def _file(remainder: str, mode: int) -> str | None:
    """Normalises `file:/x`, `file:///x` and `file://localhost/x` to one text; HOSTLESS drops any other host too."""
    path = remainder.lstrip("/")
    slashes = len(remainder) - len(path)
    host = ""
    if slashes == 2 or slashes > 3:
        first, _, after = path.partition("/")
        if _DRIVE.fullmatch(first):
            path = path if mode != HOSTLESS else after
        elif not _MARK.search(first):
            host, path = host_and_port(first)[0] or first, after
            if slashes == 2 and host in _LOCAL_HOSTS:
                host = ""
    parts = path.split("/")
    if any(_SHORT_NAME.fullmatch(part) for part in (host, *parts)):
        return None
    if _DRIVE.fullmatch(parts[0]):
        parts[0] = f"{parts[0][0].lower()}:"
    if mode == LITERAL:
        resolved = _path(parts, keep_up=True)
        return None if resolved is None else f"file://{host}/{resolved}"
    resolved = _path([host, *parts] if mode == RESOLVED else parts)
    return None if resolved is None else f"file://{resolved}"


def _path(parts: Iterable[str], *, keep_up: bool = False) -> str | None:
    """Returns the path without `.`, `..` and double slashes, or None if servers would resolve it differently."""
    segments: list[str] = []
    up = gap = inner = False
    part = ""
    for part in parts:
        if part in ("", "."):
            inner = inner or (part == "" and (up or bool(segments)))
            continue
        gap = gap or inner
        if part == "..":
            up = True
            if keep_up:
                segments.append(part)
            else:
                segments[-1:] = []
        elif _looks_like_dots(part):
            return None
        else:
            segments.append(part)
    if up and gap:
        return None
    return "/".join(segments) + ("/" if segments and part in ("", ".", "..") and segments[-1] != ".." else "")


def _looks_like_dots(part: str) -> bool:
    """Returns whether a part is like `. .`, `...` or `..;x`: some servers read it as `..`, others as a name."""
    name = part.partition(";")[0]
    return "." in name and not name.strip(" .")
