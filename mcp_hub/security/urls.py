"""Parses URLs as browsers and HTTP clients do, and finds those in a text.

Clients differ: some resolve a segment as `..` that others read as a name, and a backslash may or may not end a host.
`parse` reads like a browser. `urls_in` yields every reading, so that rules about URLs hold for all clients.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

from mcp_hub.text import normalized

MAX_WORK: Final = 2_000_000
"""Steps for all texts of one request or result, each of a few microseconds at most. Every part that is read as a URL
takes some steps, a long one takes more."""
QUICK_WORK: Final = 5_000
"""Steps that take a few milliseconds, short enough for the event loop."""
MAX_HOST: Final = 4096
"""Characters of a host as written."""
MAX_NAME: Final = 253
"""Characters of a name that can be resolved."""
_COMPOSED: Final = 3
"""Characters that normalisation makes one of at most, apart from marks: the parts of a Korean syllable."""
MAX_STEPS_UP: Final = 64
"""Changes from a name to `..` in one path; a path with more is not read."""
_DECODINGS: Final = 5
_NESTED: Final = 16
"""Segments of a path that are read as hosts of other URLs."""
_DEPTH: Final = 3
"""Levels of URLs inside of URLs."""

_WEB: Final = frozenset({"http", "https", "ws", "wss", "ftp", "hf", ""})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+-]*):(?!\d+(?:[/\\?#]|$))")
_IGNORED: Final = re.compile(r"[\t\r\n\ud800-\udfff]")
"""Characters that clients drop anywhere in a URL. Lone surrogates cannot be encoded, and some clients drop them."""
_EDGES: Final = "".join(map(chr, range(0x21))) + "\x7f\x85\xa0\u200b\u2028\u2029\u3000\ufeff"
_DOTS: Final = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
_HOST: Final = re.compile(r"[^\s/?#@:\[\]]+\.[^\s/?#@:\[\].\d][^\s/?#@:\[\]]*\.?|\d[0-9a-fx.]*", re.IGNORECASE)
_TRIPLETS: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_DELIMITERS: Final = "/\\?#%;&=+"
_BLANK: Final = re.compile(r"\s")
_TOKEN: Final = re.compile(r"[^\s<>\"'`]+")
_MARK: Final = re.compile(r"[.:%\u3002\uff0e\uff61](?!$)")
_INNER: Final = re.compile(
    r"(?:https?|wss?|ftp|hf):(?=[/\\%])|(?<=[=&?/])[/\\]{2}(?=[^/\\]{1,4096}?[.%:\u3002\uff0e\uff61])", re.IGNORECASE
)
_BREAKS: Final = re.compile(r"[,;|(){}*=!\[\]]+")
_PUNCTUATION: Final = "([{*_~\u201c\u2018\u00ab.,;:!?-"
_TRAILING: Final = ")]}*_~\u201d\u2019\u00bb.,;:!?"
_STEP_UP: Final = frozenset({"..", ".%2e", "%2e.", "%2e%2e"})
_STAY: Final = frozenset({"", ".", "%2e"})
_TARGETS: Final = frozenset(
    {"url", "uri", "u", "link", "href", "src", "target", "dest", "destination", "goto"}
    | {"redirect", "redirect_to", "redirect_uri", "redirect_url"}
)
"""Parameters of a query whose value is a URL even without a scheme. In others it is rather a search term."""


def decoded_but_delimiters(text: str) -> str:
    """Percent-decodes a URI except for delimiters, whose encoded form has another meaning.

    Raises:
        ValueError: an encoded part is not UTF-8.
    """
    return _TRIPLETS.sub(_without_delimiters, text) if "%" in text else text


def _without_delimiters(triplets: re.Match[str]) -> str:
    decoded = bytes.fromhex(triplets[0].replace("%", "")).decode()
    return "".join(f"%{ord(char):02X}" if char in _DELIMITERS else char for char in decoded)


class Url(msgspec.Struct, frozen=True):
    """The parts of a URL, normalised. `scheme` is "" if the text has none.

    `host` is the name for a resolver: lower case, in ASCII if possible, without a trailing dot; an IPv4 address of any
    notation is written as four numbers. `path` is decoded, without dot segments, double slashes and parameters.
    """

    scheme: str
    host: str
    port: int | None
    path: str
    query: str
    userinfo: bool


def parse(text: str) -> Url | None:
    """Parses a URL, with or without a scheme; returns None for any other text."""
    parts = _parts(trimmed(text))
    return None if parts is None else parts.url(_path(parts.path))


def is_url(text: str) -> bool:
    """Returns whether a text may be a URL as a whole: no other text is a single word, or begins with a host."""
    text = trimmed(text)
    return _BLANK.search(text) is None or _parts(text) is not None


def urls_in(text: str, work: WorkBudget | None = None) -> Iterator[Url]:
    """Yields every URL in a text, in every reading: the text itself, its parts, and URLs inside of those.

    A URL may have another one in its path, as for reader services, or in its query, as for redirectors. A name without
    a scheme in a query counts only if its parameter is one for URLs. The texts of one value share `work`.

    Raises:
        ValueError: reading the text takes more steps than `work` has left.
    """
    work = work or WorkBudget()
    full_text = trimmed(text)
    if _parts(full_text) is not None or "@" in full_text[:MAX_HOST]:
        yield from _urls_of_token(full_text, work)
    else:
        full_text = ""
    for match in _TOKEN.finditer(text):
        if _MARK.search(text, match.start(), match.end()) is not None and match[0] != full_text:
            yield from _urls_of_token(match[0].rstrip(_TRAILING), work)


class WorkBudget:
    """The steps that are left for reading the texts of one value."""

    def __init__(self, steps: int = MAX_WORK) -> None:
        self._steps = steps

    def part(self) -> WorkBudget:
        """Returns a budget for one link, at most `QUICK_WORK`; `settle` subtracts the steps that it has spent."""
        return WorkBudget(max(0, min(QUICK_WORK, self._steps)))

    def settle(self, part: WorkBudget) -> None:
        """Subtracts the steps that a part has spent."""
        self._steps -= min(QUICK_WORK, max(0, self._steps)) - max(0, part._steps)

    @property
    def over(self) -> bool:
        """Whether more steps were needed than were left."""
        return self._steps < 0

    def spend(self, text: str) -> None:
        """Spends the steps that a text of this length takes. Raises ValueError if none are left."""
        size = len(text) >> 6 if text.isascii() else 30 + (len(text) >> 2)  # a name is normalised and encoded
        self._steps -= 10 + size + (text.count("/") + text.count("\\") >> 1) + text.count("%") + text.count("&")
        if self._steps < 0:
            raise ValueError("the text has too many parts that may be URLs")


class _Parts(NamedTuple):
    scheme: str
    host: str
    port: int | None
    path: str
    """As written, not decoded."""
    query: str
    userinfo: bool

    def url(self, path: str) -> Url:
        return Url(self.scheme, self.host, self.port, path, self.query, self.userinfo)


def trimmed(text: str) -> str:
    """Removes characters that clients drop from a URL: blanks at its ends, tabs and line breaks anywhere."""
    return _IGNORED.sub("", text.strip(_EDGES))


def _scheme_of(text: str) -> tuple[str, str]:
    match = _SCHEME.match(text)
    return (match[1].lower(), text[match.end() :]) if match is not None else ("", text)


def _parts(text: str, *, backslash_ends_host: bool = True) -> _Parts | None:
    scheme, remainder = _scheme_of(text)
    if scheme not in _WEB:
        return None
    rooted = remainder[:2].replace("\\", "/") == "//"
    if not scheme and not rooted and (not remainder or remainder[0] in "/\\?#"):
        return None
    remainder = remainder.lstrip("/\\")
    delimiters = "/\\?#" if backslash_ends_host else "/?#"
    end = min((index for index in map(remainder.find, delimiters) if index >= 0), default=len(remainder))
    authority, tail = remainder[:end], remainder[end:]
    host, port = host_and_port(authority)
    if not host or (not scheme and not rooted and not _is_host(host) and not _is_written_host(authority)):
        return None
    path, _, query = tail.partition("#")[0].partition("?")
    return _Parts(scheme, host, port, path, query, bool(authority.rpartition("@")[0]))


def _is_host(host: str) -> bool:
    return _HOST.fullmatch(host) is not None or ":" in host or host == "localhost"


def _is_written_host(authority: str) -> bool:
    """Returns whether the undecoded text is a host: some clients resolve `a%20b.example` without decoding it."""
    return "%" in authority and _HOST.fullmatch(authority.rpartition("@")[2].partition(":")[0]) is not None


def host_and_port(authority: str) -> tuple[str, int | None]:
    """Returns the host of an authority, normalised as in `Url`, and its port."""
    host_part = authority.rpartition("@")[2]
    if len(host_part) > MAX_HOST:
        return "", None
    if host_part.startswith("["):
        host, _, port_part = host_part[1:].partition("]")
        return _address_6(host), _number(port_part[1:])
    host, _, port = host_part.partition(":")
    return _host(host), _number(port.partition("\\")[0])


def _number(port: str) -> int | None:
    return int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else None


def _address_6(text: str) -> str:
    import ipaddress

    try:
        address = ipaddress.IPv6Address(text.partition("%")[0])
    except ValueError:
        return text.lower()
    if address.ipv4_mapped is None:
        return address.compressed
    high, low = divmod(int(address.ipv4_mapped), 1 << 16)
    return f"::ffff:{high:x}:{low:x}"  # as browsers write it, and Python before 3.13


def _host(raw_host: str) -> str:
    if raw_host.isascii() and raw_host.isprintable() and "%" not in raw_host and "\\" not in raw_host:
        host = raw_host.lower().rstrip(".")
        return (_address_4(host) or host) if host[:1].isdigit() else host
    host = _decoded(raw_host.partition("\\")[0])
    if len(_without_marks(host)) > _COMPOSED * MAX_NAME:
        return host.lower()  # no name, whatever it becomes; normalising it could take 40 ms
    host = normalized(host.translate(_DOTS)).translate(_DOTS).lower()
    host = _without_marks(host).rstrip(".")
    if not host.isascii() and len(host) <= MAX_NAME:  # the time of the codec grows with the square of a label
        with contextlib.suppress(UnicodeError):
            host = host.encode("idna").decode("ascii")
    return _address_4(host) or host


def _without_marks(host: str) -> str:
    """Removes characters that browsers drop from a name."""
    if host.isascii() and host.isprintable():
        return host
    return "".join(char for char in host if unicodedata.category(char) not in ("Cf", "Mn", "Cc"))


def _address_4(host: str) -> str | None:
    """Returns `127.0.0.1` for `0x7f.1`, `2130706433` and `0177.0.0.1`; None if it is not an IPv4 address."""
    parts = host.split(".")
    if not 1 <= len(parts) <= 4 or not all(part.isascii() and part.isalnum() for part in parts):
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
    *_, last = _decodings(text)
    return last


def _decodings(text: str) -> Iterator[str]:
    """Yields a text and its form after each round of percent-decoding."""
    yield text
    for _ in range(_DECODINGS):
        decoded = unquote(text, errors="replace") if "%" in text else text
        if decoded == text:
            return
        text = decoded
        yield text


def _path(raw_path: str, earlier_paths: list[str] | None = None) -> str:
    """Returns the fully decoded path. Appends to `earlier_paths` the path at each change from a name to `..`."""
    return _resolve_dots(_decoded(raw_path).replace("\\", "/").split("/"), earlier_paths, is_decoded=True)


def _paths(raw_path: str) -> Iterator[str]:
    """Yields the path in every reading: clients differ in the segments that they resolve as `..`."""
    earlier_paths: list[str] = []
    yield _path(raw_path, earlier_paths)
    if not earlier_paths:
        return
    yield _resolve_dots(raw_path.replace("\\", "/").split("/"), earlier_paths)
    yield _resolve_dots(raw_path.split("/"), earlier_paths)
    if len(earlier_paths) > 3 * MAX_STEPS_UP:
        raise ValueError("a path goes up and down too often")
    yield from dict.fromkeys(earlier_paths)


def _resolve_dots(parts: Iterable[str], earlier_paths: list[str] | None, *, is_decoded: bool = False) -> str:
    segments: list[str] = []
    after_name = False
    for part in parts:
        name = _name(part) if is_decoded else part.strip().lower()
        if name in _STEP_UP:
            if after_name and earlier_paths is not None and len(earlier_paths) <= 3 * MAX_STEPS_UP:
                earlier_paths.append("/" + "/".join(segments if is_decoded else map(_segment, segments)))
            segments[-1:] = []
            after_name = False
        elif name not in _STAY:
            segments.append(_segment(part, name) if is_decoded else part)
            after_name = True
    return "/" + "/".join(segments if is_decoded else map(_segment, segments))


def _name(part: str) -> str:
    name = part.partition(";")[0]
    if not name.isprintable():
        name = "".join(char for char in name if unicodedata.category(char) not in ("Cc", "Cf"))
    return name.strip()


def _segment(part: str, name: str | None = None) -> str:
    name = _name(_decoded(part)) if name is None else name
    return name if len(name) > MAX_HOST else normalized(name)


def _readings(text: str, work: WorkBudget) -> Iterator[Url]:
    """Yields the URL that browsers read in a text, and the one that other clients read."""
    work.spend(text)
    text = trimmed(text)
    parts = _parts(text)
    # `\\a@host` is a user and a host for a client that prepends `https://` and does not treat a backslash as a slash.
    rooted = f"//{text}" if text.startswith("\\") and "@" in text else text
    other_parts = _parts(rooted, backslash_ends_host=False) if "\\" in text else parts
    for reading in (parts, other_parts) if other_parts != parts else (parts,):
        if reading is not None:
            yield from map(reading.url, _paths(reading.path))


def _urls_of_token(token: str, work: WorkBudget) -> Iterator[Url]:
    for variant in _decodings(token):
        work.spend(variant)
        for match in _INNER.finditer(variant):
            yield from _urls_at(variant[match.start() :], work)
    fragments = _BREAKS.split(re.split(r"[?#]", token, maxsplit=1)[0])
    pieces = [token, *(piece.lstrip(_PUNCTUATION) for piece in (token, *(fragments if len(fragments) > 1 else ())))]
    for piece in dict.fromkeys(pieces):
        if piece is not token and _MARK.search(piece) is None:
            continue
        yield from _urls_at(piece, work)
        scheme, remainder = _scheme_of(piece)
        if scheme and scheme not in _WEB:  # such as `cache:host/path`, or a user with a password
            yield from _urls_at(remainder, work)
            yield from _urls_at("//" + piece, work)


def _urls_at(text: str, work: WorkBudget, depth: int = 0) -> Iterator[Url]:
    """Yields the URL that a text is and the URLs inside of it."""
    for url in _readings(text, work):
        yield url
        yield from _in_path(url)
        if depth < _DEPTH and url.query:
            yield from _in_query(url.query, work, depth + 1)


def _in_path(outer: Url) -> Iterator[Url]:
    """Yields each `host/path` in the path of a URL, and the original site of a translated page."""
    if outer.host.endswith(".translate.goog"):
        label = outer.host.removesuffix(".translate.goog").replace("--", "\0").replace("-", ".").replace("\0", "-")
        yield Url(outer.scheme, label, None, outer.path, outer.query, False)
    parts = outer.path.split("/")[1:]
    for index, part in enumerate(parts[:_NESTED]):
        if "." not in part or len(part) > MAX_HOST or (index + 1 == len(parts) > 1):
            continue  # the last of several segments is a file
        host, port = host_and_port(part)
        if _HOST.fullmatch(host):
            yield Url("", host, port, "/" + "/".join(parts[index + 1 :]), "", False)


def _in_query(query: str, work: WorkBudget, depth: int) -> Iterator[Url]:
    for pair in query.replace(";", "&").split("&"):
        name, _, value = pair.partition("=")
        value = _decoded(value)
        if _decoded(name).lower() in _TARGETS or _scheme_of(value)[0] in ("http", "https"):
            yield from _urls_at(value, work, depth)
