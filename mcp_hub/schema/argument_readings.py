"""The readings of arguments: everything that some server may see in them, for the rules that refuse calls.

A text that holds JSON is a text for one server and a list or an object for another: the SDK for Python parses it unless
the function says `str`, FastMCP does not. So rules see it as both, and what is refused in one reading is refused. What
is sent stays as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.schema.lenient_schema import pointed_to

MAX_MEMBERS: Final = 200_000
"""Members in all readings of one call's arguments."""
MAX_LEVELS: Final = 8
"""Texts with JSON inside of each other."""
_MAX_REFERENCES: Final = 16
"""References and unions with null that are followed to one part of a schema."""

_BLANKS: Final = "".join(char for char in map(chr, range(0x3001)) if char.isspace() or char <= " ") + "\u200b\ufeff"
"""What programs remove before they parse a text, also if it is no white space of JSON."""
_BEGINNINGS: Final = ("[", "{", '"', "/*", "//")
"""Those of JSON, and of comments before it, which parsers of JSON5 skip."""
_ESCAPE: Final = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL
)
"""An escape in any dialect of JSON."""
_CONTROLS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BETWEEN_QUOTES: Final = re.compile("[^\"'`]+")
_URL_NAMES: Final = frozenset({"url", "urls", "uri", "uris", "href", "hrefs", "link", "links", "website", "websites"})
_NAME_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

Place = tuple["Place", str | None] | None
"""Where an argument is: the place of the member around it, and its name, None for a member of a list."""


class AmbiguousArguments(ValueError):
    """No rule can be sure of what a server would see; the text says why, and what to send instead."""


class ArgumentText(NamedTuple):
    """A text in one of the readings of arguments."""

    text: str
    for_url: bool
    """Whether the name of an argument around it says that it holds URLs, such as `url`, `pageUrl`, `start_urls`."""
    in_plain_text: bool
    """Whether it is a part of a text that servers hardly parse: its schema is `string`, or it is no JSON."""


class _Member(NamedTuple):
    value: Any
    place: Place = None
    for_url: bool = False
    in_plain_text: bool = False
    level: int = 0
    """The number of texts around it."""


def may_hold_json(text: str) -> bool:
    """Returns whether a text begins like a list, an object or a text of JSON, or like a comment."""
    return text.lstrip(_BLANKS).startswith(_BEGINNINGS)


def argument_texts(arguments: Any, schema: Any) -> Iterator[ArgumentText]:
    """Yields every text in every reading of the arguments of a call, names of members included.

    Args:
        arguments: What is sent.
        schema: The input schema that the server lists; None if it is unknown.

    Raises:
        AmbiguousArguments: two parsers would read a text differently, or there are too many members or levels.
    """
    stack = [_Member(arguments)]
    for _ in range(MAX_MEMBERS):
        if not stack:
            return
        member = stack.pop()
        value, place, for_url, in_plain_text, level = member
        if isinstance(value, str):
            yield ArgumentText(value, for_url, in_plain_text)
            if not may_hold_json(value):
                continue
            in_plain_text = in_plain_text or (level == 0 and _is_string(schema, place))
            parsed = _parsed(value, exactly=not in_plain_text)
            if parsed is None:
                for part in _parts(value):
                    yield ArgumentText(part, for_url, True)
            elif level == MAX_LEVELS:
                raise AmbiguousArguments(f"more than {MAX_LEVELS} texts with JSON are inside of each other")
            else:
                stack.append(member._replace(value=parsed, in_plain_text=in_plain_text, level=level + 1))
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield ArgumentText(name, False, in_plain_text)
                holds_url = for_url or (not in_plain_text and _means_url(name))
                stack.append(_Member(inner, (place, name), holds_url, in_plain_text, level))
        elif isinstance(value, list):
            stack += [_Member(inner, (place, None), for_url, in_plain_text, level) for inner in value]
    if stack:
        raise AmbiguousArguments(f"there are more than {MAX_MEMBERS:,} values")


def _means_url(name: str) -> bool:
    return not _URL_NAMES.isdisjoint(term.lower() for term in _NAME_WORDS.findall(name))


# --- what the schema says --------------------------------------------------------------------------------------


def _is_string(schema: Any, place: Place) -> bool:
    """Returns whether the schema of an argument is `string`, or that and null, and does not say that it holds JSON."""
    steps: list[str | None] = []
    while place is not None:
        place, step = place
        steps.append(step)
    part = _resolved(schema, schema)
    for step in reversed(steps):
        properties = part.get("properties")
        if step is None:
            part = _resolved(part.get("items"), schema)
        elif isinstance(properties, dict) and step in properties:
            part = _resolved(properties[step], schema)
        else:
            part = _resolved(part.get("additionalProperties"), schema)
    types = part.get("type")
    is_string = types in ("string", ["string"], ["string", "null"], ["null", "string"])
    return is_string and "contentMediaType" not in part and "contentSchema" not in part


def _resolved(part: Any, root: Any) -> dict[str, Any]:
    """Returns the schema that a part refers to, or its only branch besides null; {} if there is none."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(part, dict):
            break
        branches = part.get("anyOf")
        if isinstance(reference := part.get("$ref"), str) and reference.startswith("#"):
            part = pointed_to(root, reference)
        elif isinstance(branches, list) and len(found := [b for b in branches if b != {"type": "null"}]) == 1:
            part = found[0]
        else:
            return part
    return {}


# --- what a text holds -----------------------------------------------------------------------------------------


class _Objects:
    """Makes objects of their members, and notes whether one has a name twice."""

    repeated = False

    def made(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Returns the object. One that has a name twice gets the list of its values for each name."""
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.repeated = True
        values: dict[str, list[Any]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        return dict(values)


def _parsed(text: str, *, exactly: bool) -> Any:
    """Returns what the most lenient parser reads in a text of JSON; None if it is no JSON.

    Raises AmbiguousArguments for `exactly` if other parsers read something else or refuse it.
    """
    objects = _Objects()
    decoder = json.JSONDecoder(object_pairs_hook=objects.made, parse_int=float, strict=False)
    try:
        value = decoder.decode(text.strip(_BLANKS))
    except RecursionError:
        raise AmbiguousArguments("a text holds JSON that is nested too deeply") from None
    except ValueError:
        return None
    if exactly and not isinstance(value, str) and (objects.repeated or not _is_strict_json(text)):
        raise AmbiguousArguments("a text holds JSON that not every parser reads alike")
    return value


def _is_strict_json(text: str) -> bool:
    """Returns whether strict parsers accept a text too: it has no NaN, lone surrogates, control characters, 1e400."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _parts(text: str) -> Iterator[str]:
    """Yields what stands between quotes in a text that is no JSON, after each round of replacing escapes.

    So it sees every text that a parser of another dialect (with comments, other quotes, an unexpected end) could read.
    """
    for _ in range(MAX_LEVELS):
        halves = _ESCAPE.sub(_character, text)
        unescaped = halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # joins them
        for part in _BETWEEN_QUOTES.finditer(unescaped):
            yield part[0]
        if unescaped == text:
            return
        text = unescaped
    raise AmbiguousArguments(f"a text has escapes of more than {MAX_LEVELS} levels")


def _character(escape: re.Match[str]) -> str:
    *codes, char = escape.groups()
    if char is not None:
        return _CONTROLS.get(char, char)
    code = int(next(filter(None, codes)), 16)
    return chr(code) if code <= 0x10FFFF else escape[0]
