"""URLs as a browser or an HTTP client would read them, and where they hide in a text."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

MAX_LENGTH: Final = 65_536
"""Characters of one URL that are read; no server takes a longer one."""
_OVERLAP: Final = 2048
"""Characters that the windows in which a longer word is read have in common."""
MAX_CANDIDATES: Final = 20_000
"""Words of one text that are read as URLs."""
_DECODINGS: Final = 5
_NESTED: Final = 16
"""URLs that are looked for inside of one."""

_WEB: Final = frozenset({"http", "https", "ws", "wss", "ftp", ""})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d+(?:[/?#]|$))")
_IGNORED: Final = re.compile(r"[\t\r\n]")
_DOTS: Final = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
_HOST: Final = re.compile(r"[^\s/?#@:\[\]]+\.[^\s/?#@:\[\].\d][^\s/?#@:\[\]]*\.?|\d[0-9a-fx.]*", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\s<>\"'`]+")
_MARK: Final = re.compile(r"[.:%\u3002\uff0e\uff61](?!$)")
_INNER: Final = re.compile(r"(?:https?|wss?|ftp):(?=[/\\%])|(?<=[=&?/])[/\\]{2}(?=[^/\\])", re.IGNORECASE)
_BREAKS: Final = re.compile(r"[,;|(){}*=!\[\]]+")
_PUNCTUATION: Final = "([{*_~\u201c\u2018\u00ab.,;:!?-"


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL, normalised. `scheme` is empty where the text had none.

    `host` is what a resolver would be asked: lower case, in ASCII where it can be, without a trailing dot, an IPv4
    address in any notation as four numbers. `path` is decoded, without dot segments, double slashes and parameters.
    """

    scheme: str
    host: str
    port: int | None
    path: str
    query: str
    userinfo: bool


def parse(text: str) -> Url | None:
    """The URL that a text is, `host/path` without a scheme counted; None if it is none."""
    text = _IGNORED.sub("", text[:MAX_LENGTH]).strip().strip("\0")
    scheme, rest = _scheme_of(text)
    if scheme not in _WEB:
        return None
    rest = rest.replace("\\", "/")
    if not scheme and not rest.startswith("//") and (not rest or rest[0] in "/?#"):
        return None
    rest = rest.lstrip("/")
    end = min((at for at in (rest.find(mark) for mark in "/?#") if at >= 0), default=len(rest))
    authority, tail = rest[:end], rest[end:]
    userinfo, at, place = authority.rpartition("@")
    host, port = _host_and_port(place)
    if not host or (not scheme and not text.startswith(("//", "\\\\")) and not _is_host(host)):
        return None
    path, _, _ = tail.partition("#")
    path, _, query = path.partition("?")
    return Url(scheme, host, port, _path(path), query, bool(at and userinfo))


def _scheme_of(text: str) -> tuple[str, str]:
    match = _SCHEME.match(text)
    return (match[1].lower(), text[match.end() :]) if match is not None else ("", text)


def _is_host(host: str) -> bool:
    return _HOST.fullmatch(host) is not None or ":" in host or host == "localhost"


def _host_and_port(place: str) -> tuple[str, int | None]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        return _address_6(host), _number(rest[1:])
    host, _, port = place.partition(":")
    return _host(host), _number(port)


def _number(port: str) -> int | None:
    return int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else None


def _address_6(text: str) -> str:
    import ipaddress

    try:
        return ipaddress.IPv6Address(text.partition("%")[0]).compressed
    except ValueError:
        return text.lower()


def _host(written: str) -> str:
    host = _decoded(written)
    host = unicodedata.normalize("NFKC", host.translate(_DOTS)).translate(_DOTS).lower()
    host = "".join(char for char in host if unicodedata.category(char) not in ("Cf", "Mn", "Cc"))
    host = host.rstrip(".")
    if not host.isascii():
        with contextlib.suppress(UnicodeError):
            host = host.encode("idna").decode("ascii")
    return _address_4(host) or host


def _address_4(host: str) -> str | None:
    """`0x7f.1`, `2130706433` and `0177.0.0.1` as `127.0.0.1`; None for what is no such number."""
    parts = host.split(".")
    if not 1 <= len(parts) <= 4 or not all(parts):
        return None
    numbers: list[int] = []
    for part in parts:
        try:
            base = 16 if part.startswith("0x") else 8 if part.startswith("0") and part != "0" else 10
            numbers.append(int(part[2:] or "0", 16) if base == 16 else int(part, base))
        except ValueError:
            return None
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(numbers)):
        return None
    value = last
    for index, number in enumerate(first):
        value += number << (8 * (3 - index))
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _decoded(text: str) -> str:
    for _ in range(_DECODINGS):
        if "%" not in text:
            break
        decoded = unquote(text, errors="replace")
        if decoded == text:
            break
        text = decoded
    return text


def _path(written: str) -> str:
    parts: list[str] = []
    for part in _decoded(written).replace("\\", "/").split("/"):
        name = "".join(char for char in part.partition(";")[0] if unicodedata.category(char) not in ("Cc", "Cf"))
        if name == "..":
            parts[-1:] = []
        elif name.strip() not in ("", "."):
            parts.append(unicodedata.normalize("NFKC", name.strip()))
    return "/" + "/".join(parts)


def urls_in(text: str) -> Iterator[Url]:
    """Every URL in a text: the text itself, those in it, and those that one of them carries inside.

    Readers take the page's URL in their path, redirectors in their query. A name in a query without a scheme is a
    search for it and no URL. Raises ValueError for a text of more words than can be looked at.
    """
    if (whole := parse(text)) is not None and not _has_space(text):
        yield whole
    candidates = 0
    for match in _WORD.finditer(text):
        if _MARK.search(text, match.start(), match.end()) is None:
            continue
        for start in range(match.start(), match.end(), MAX_LENGTH - _OVERLAP):
            candidates += 1
            if candidates > MAX_CANDIDATES:
                raise ValueError("the text has too many parts that may be URLs")
            yield from _urls_of_word(text[start : min(match.end(), start + MAX_LENGTH)])


def _has_space(text: str) -> bool:
    return any(char in " \u00a0" for char in text.strip())


def _urls_of_word(word: str) -> Iterator[Url]:
    variants = [word]
    for _ in range(_DECODINGS):
        if "%" not in variants[-1]:
            break
        decoded = unquote(variants[-1], errors="replace")
        if decoded == variants[-1]:
            break
        variants.append(decoded)
    seen = 0
    for variant in variants:
        for match in _INNER.finditer(variant):
            seen += 1
            if seen > _NESTED * len(variants):
                raise ValueError("the text has too many URLs inside of one")
            if (found := parse(variant[match.start() :])) is not None:
                yield found
                yield from _carried(found)
    head = re.split(r"[?#]", word, maxsplit=1)[0]
    for piece in (head, *_BREAKS.split(head)):
        piece = piece.lstrip(_PUNCTUATION)
        scheme, rest = _scheme_of(piece)
        if scheme and scheme not in _WEB:
            piece = rest  # `cache:host/path` and the like
        if (found := parse(piece)) is not None:
            yield found
            yield from _carried(found)


def _carried(outer: Url) -> Iterator[Url]:
    """What stands as `host/path` in the path of another URL, and the site behind a translated one."""
    if outer.host.endswith(".translate.goog"):
        label = outer.host.removesuffix(".translate.goog").replace("--", "\0").replace("-", ".").replace("\0", "-")
        yield Url(outer.scheme, label, None, outer.path, outer.query, False)
    parts = outer.path.split("/")[1:]
    for index, part in enumerate(parts[:_NESTED]):
        host = _host(part.rpartition("@")[2].partition(":")[0])
        if "." in part and index + 1 < len(parts) and _HOST.fullmatch(host):
            yield Url("", host, None, "/" + "/".join(parts[index + 1 :]), "", False)
