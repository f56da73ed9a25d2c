"""Makes exposed names and URIs from original ones. The way back is the catalog's index, never a parse of the name.

An exposed tool or prompt name has 1 to 60 characters of `[A-Za-z0-9_-]`. A pair that needs no change becomes
`namespace__name`, which splits back into the pair if the namespace has no `__` and does not end in `_`. This module
reserves no names; where different pairs have equal results, the catalog gives one of them another name.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from mcp_hub.security.urls import decoded_but_delimiters
from mcp_hub.text import latin_lookalike

MAX_LENGTH: Final = 60
"""The 64 characters of a tool's name that model interfaces allow, less what a client adds (`Client.prefix`)."""
SEPARATOR: Final = "__"
URI_PREFIX: Final = "mcp-hub://"
"""Prefix of URIs that only the hub gives out."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_RUN: Final = re.compile(r"_{2,}")
_SIMILAR: Final = str.maketrans("01-", "ol_")
_HASH_LENGTH: Final = 8


def expose(namespace: str, name: str) -> str:
    """Returns `namespace__name` in characters and a length that every client accepts; the same for the same pair.

    An empty namespace puts nothing in front. Each illegal character becomes `_`; a name that is too long is cut and
    ends in `_` and 8 hexadecimal digits of a hash of the full pair.
    """
    legal = _ILLEGAL.sub("_", _full(namespace, name))
    return legal if len(legal) <= MAX_LENGTH else _hashed(legal, namespace, name)


def renamed(namespace: str, name: str, attempt: int = 0) -> str:
    """Returns another name for the same pair, for when that of `expose` is taken; it always ends in a hash.

    Each `attempt` gives another name; the same arguments always give the same one.
    """
    legal = _ILLEGAL.sub("_", _full(namespace, name))
    return _hashed(legal, namespace, name, str(attempt))


def lookalike(namespace: str, name: str) -> str:
    """Returns a key that is equal for names that look alike.

    They differ by case, by NFKC, by letters of other scripts, by `0` and `o`, `1` and `l`, or by where `_` or `-` is.
    """
    legal = _ILLEGAL.sub("_", latin_lookalike(_full(namespace, name)))
    return _RUN.sub("_", legal.casefold().translate(_SIMILAR))


def did_you_mean(name: str, exposed: Collection[str]) -> str:
    """Returns `; did you mean A or B?` for an unknown tool, or "". With thousands of names it takes some 100 ms.

    Args:
        name: An exposed name, `server/tool` or an original name.
        exposed: The names that may be suggested. Those of tools with the same original name come first.
    """
    name = name.replace("/", SEPARATOR)
    ending = SEPARATOR + name.rpartition(SEPARATOR)[2]
    same = [candidate for candidate in exposed if candidate.endswith(ending)]
    matches = difflib.get_close_matches(name, same or exposed, n=3, cutoff=0.0 if same else 0.6)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


def _full(namespace: str, name: str) -> str:
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def _hashed(legal: str, *parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{legal[: MAX_LENGTH - _HASH_LENGTH - 1]}_{digest}"


def expose_uri(upstream: str, uri: str) -> str:
    """Returns the prefixed URI (or URI template) of a resource, for when another upstream has the same one.

    Different pairs give different URIs: the upstream's id is percent-encoded, so the first slash ends it.
    """
    return f"{URI_PREFIX}{quote(upstream, safe='', errors='surrogatepass')}/{uri}"


def original_uri(exposed: str) -> tuple[str, str] | None:
    """Returns (upstream, URI) of a URI made by `expose_uri`; None for any other URI."""
    if not exposed.startswith(URI_PREFIX):
        return None
    upstream, slash, uri = exposed[len(URI_PREFIX) :].partition("/")
    if not slash or not upstream:
        return None
    try:
        return unquote(upstream, errors="surrogatepass"), uri
    except UnicodeDecodeError:
        return None  # bytes that are not UTF-8: no id of an upstream is encoded so


EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
"""An expression of a URI template: its operator and its variables."""
MAX_EXPRESSIONS: Final = 16
"""Expressions that one URI template may have; no server needs more."""


class _Gap(msgspec.Struct, frozen=True):
    """What one expression matches: nothing, or `lead` and any text without a character of `stops`."""

    lead: str
    stops: re.Pattern[str]


_TAIL: Final = re.compile(r"[?#]")
_NOT_A_PART: Final = re.compile(r"[/?#]")
_GAPS: Final = {
    "": _Gap("", _NOT_A_PART),
    "*": _Gap("", _TAIL),  # FastMCP's `{path*}`: several segments
    "+": _Gap("", re.compile(r"(?!)")),
    "#": _Gap("#", re.compile(r"(?!)")),
    ".": _Gap(".", _NOT_A_PART),
    "/": _Gap("/", _TAIL),
    ";": _Gap(";", _NOT_A_PART),
    "?": _Gap("?", re.compile(r"#")),
    "&": _Gap("&", re.compile(r"#")),
}


class UriPattern(msgspec.Struct, frozen=True):
    """A pattern for the URIs of one RFC 6570 template. Matching takes at most expressions × characters steps."""

    parts: tuple[str | _Gap, ...]
    literal: int
    """Literal characters of the template: of two templates that match, the one with more is more specific."""

    def cost(self, uri: str) -> int:
        """Returns the most steps that `fullmatch` can take; 0 for a URI that begins differently."""
        first = self.parts[0] if self.parts else ""
        return len(self.parts) * len(uri) if not isinstance(first, str) or uri.startswith(first) else 0

    def takes(self, uri: str) -> bool:
        """Returns whether a readable URI matches, with or without its query and fragment."""
        return self.fullmatch(uri) is not None or self.fullmatch(without_tail(uri)) is not None

    def fullmatch(self, uri: str) -> str | None:
        """Returns the URI if it matches; else None."""
        # All positions at which a part can end are followed at the same time: nothing is tried twice.
        positions = [0]
        for part in self.parts:
            if isinstance(part, str):
                positions = [end + len(part) for end in positions if uri.startswith(part, end)]
            else:
                positions = _beyond(part, positions, uri)
            if not positions:
                return None
        return uri if positions[-1] == len(uri) else None


def _beyond(gap: _Gap, starts: list[int], uri: str) -> list[int]:
    """Returns every position at which a gap that begins at one of `starts` can end. Both lists are ascending."""
    reached = set(starts)
    covered = -1
    for start in starts:
        if not uri.startswith(gap.lead, start):
            continue
        begin = start + len(gap.lead)
        if begin > covered:
            stop = gap.stops.search(uri, begin)
            covered = stop.start() if stop is not None else len(uri)
            reached.update(range(begin, covered + 1))
    return sorted(reached)


def is_template(uri: str) -> bool:
    """Returns whether a URI is a template."""
    return EXPRESSION.search(uri) is not None


_LEGAL: Final = "%:/?#[]@!$&'()*+,;="
_ESCAPE: Final = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_SEPARATORS: Final = {"": ",", "+": ",", "#": ",", "?": "&"}


def filled(template: str, values: Mapping[str, str]) -> str:
    """Fills in the variables with known values, unescaped; expressions without a known value stay."""

    def expanded(expression: re.Match[str]) -> str:
        operator, listed = expression[1], expression[2].split(",")
        variables = [variable for name in listed if (variable := name.removesuffix("*").partition(":")[0]) in values]
        if not variables or (len(variables) < len(listed) and operator not in (";", "?", "&")):
            return expression[0]
        pairs = (f"{name}={values[name]}" if operator in (";", "?", "&") else values[name] for name in variables)
        return operator.replace("+", "") + _SEPARATORS.get(operator, operator).join(pairs)

    return EXPRESSION.sub(expanded, template)


def normal_uri(uri: str) -> str:
    """Returns the RFC 3986 form of a URI, into which many clients bring it before they send it.

    What must be escaped is escaped, hexadecimal digits are upper case, the scheme is lower case. Dot segments stay.
    """
    prefixed = original_uri(uri)
    if prefixed is not None:
        return expose_uri(prefixed[0], normal_uri(prefixed[1]))
    scheme, colon, remainder = quote(uri, safe=_LEGAL, errors="surrogatepass").partition(":")
    if "%" in remainder:
        remainder = _ESCAPE.sub(lambda escape: escape[0].upper(), remainder)
    return f"{scheme.lower()}{colon}{remainder}" if colon else scheme


def readable(uri: str) -> str:
    """Normalises a URI for matching: the scheme in lower case, everything decoded but delimiters."""
    return _readable_part(uri, first=True)


def without_tail(uri: str) -> str:
    """Returns a URI without query and fragment."""
    return _TAIL.split(uri, maxsplit=1)[0]


def _readable_part(text: str, *, first: bool) -> str:
    with contextlib.suppress(ValueError):  # bytes that are not UTF-8 stay percent-encoded
        text = decoded_but_delimiters(text)
    scheme, colon, remainder = text.partition(":")
    return f"{scheme.lower()}{colon}{remainder}" if first and colon and scheme.isascii() and "/" not in scheme else text


def template_pattern(template: str) -> UriPattern | None:
    """Compiles an RFC 6570 template; returns None for one with too many expressions.

    It supports every operator of the RFC and FastMCP's `{path*}`, but not the number and length of an expression's
    values, which the upstream checks. URIs have to be normalised by `readable` before they are matched.
    """
    expressions = list(EXPRESSION.finditer(template))
    if len(expressions) > MAX_EXPRESSIONS:
        return None
    parts: list[str | _Gap] = []
    literal = end = 0
    for expression in expressions:
        if expression.start() > end:
            parts.append(_readable_part(template[end : expression.start()], first=end == 0))
        literal += expression.start() - end
        is_multi_segment = not expression[1] and any(variable.endswith("*") for variable in expression[2].split(","))
        parts.append(_GAPS["*" if is_multi_segment else expression[1]])
        end = expression.end()
    if end < len(template):
        parts.append(_readable_part(template[end:], first=end == 0))
    return UriPattern(tuple(parts), literal + len(template) - end)
