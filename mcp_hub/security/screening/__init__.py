"""The screen: flags suspicious texts and characters in the instructions and items of a server.

It does no I/O and takes bounded time for any input. It proves nothing: an honest text may be flagged, a clever one
may not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Generator, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from mcp_hub.protocol.kinds import PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS, Kind
from mcp_hub.security.screening.poisoning_rules import RULES, match_rules
from mcp_hub.text import (
    BIDI,
    CONTROL,
    INVISIBLE,
    TAGS,
    find_hidden_characters,
    fold_text,
    hidden_characters,
)

MAX_DESCRIPTION: Final = 4096
"""Characters of one text; a longer one is flagged. Descriptions of real servers have a few hundred."""
MAX_INSTRUCTIONS: Final = 4096
"""Characters of a server's instructions that are passed on, and so read."""
MAX_LOOKED_AT: Final = 64 * 1024
"""Characters of one item that are read. An item with more is flagged."""
MAX_TEXTS: Final = 4000
"""Texts of one item that are read, keys of its schemas included."""
_MAX_DEPTH: Final = 64
_EXCERPT: Final = 60
_BLANK_LINES: Final = 12
_MIN_PHRASE: Final = 8
"""Characters; a shorter text, such as `string`, cannot be an instruction."""

MAX_OF_SERVER: Final = 2 * 1024 * 1024
"""Characters of all items of one server, which take half a second. Items beyond that are flagged unread."""

MAX_FOREIGN: Final = 10
"""Names of other servers' tools that are reported for one item."""

TOO_LONG: Final = "too-long"
PADDING: Final = "hidden-by-padding"
ENCODED: Final = "encoded-text"
FOREIGN_TOOLS: Final = "names-other-tools"

RULE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    CONTROL: "control characters, which steer a terminal or break a line",
    BIDI: "characters that turn the direction of writing",
    INVISIBLE: "characters that cannot be seen",
    TAGS: "tag characters, an alphabet that cannot be seen",
    TOO_LONG: "longer than a description has to be",
    PADDING: "text pushed out of sight by blanks or empty lines",
    ENCODED: "a long encoded text that nobody can read",
    **{rule.name: rule.description for rule in RULES},
    FOREIGN_TOOLS: "names a tool of another server",
}
"""Rule -> what it finds."""
REPORT_ONLY: Final = frozenset({FOREIGN_TOOLS, *(rule.name for rule in RULES if rule.report_only)})
"""Rules that never hide an item, as they cannot show intent."""
HIDDEN_CHARACTER_RULES: Final = frozenset({CONTROL, BIDI, INVISIBLE, TAGS})

_ENCODED: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[A-Za-z0-9+/_-]{0,119}\d)[A-Za-z0-9+/_-]{120,}+")
_SPACES: Final = re.compile(r"(?<![ \t\u00a0\u3000])[ \t\u00a0\u3000]{80,}+(?=\S)")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_DISTINCT: Final = re.compile(r"[A-Za-z0-9][_.\-][A-Za-z0-9]|[a-z][A-Z]")
"""Matches names that are not words of prose."""


class Flag(msgspec.Struct, frozen=True):
    """One finding: its rule, the part of the item, and the text around it, which may not be safe to print."""

    rule: str
    where: str
    excerpt: str


class Budget:
    """The characters that may still be read."""

    def __init__(self, characters: int = MAX_OF_SERVER) -> None:
        self.remaining = characters


def names_of(kind: Kind, wire: Any) -> Iterator[tuple[str, str]]:
    """Yields (key, text) of the names of an item."""
    if isinstance(wire, dict):
        for key in dict.fromkeys((kind.name_key, "name")):
            if isinstance(wire.get(key), str):
                yield key, wire[key]
        if kind is not TOOLS and not wire.get("name") and isinstance(wire.get("title"), str):
            yield "title", wire["title"]  # it is listed as the name, too


def flags_of_names(kind: Kind, wire: Any) -> tuple[Flag, ...]:
    """Returns flags for hidden characters in the names of an item."""
    flags = []
    for where, text in names_of(kind, wire):
        # The name of a resource beside its URI is for people and may be in any script.
        matches = find_hidden_characters(text[:MAX_DESCRIPTION], name=where == kind.name_key, lines=False)
        flags += [Flag(rule, where, _excerpt(text, at)) for rule, at in matches]
    return tuple(flags)


def flags_of_item(
    kind: Kind,
    wire: Any,
    *,
    without: Collection[str] = (),
    max_description: int = MAX_DESCRIPTION,
    budget: Budget | None = None,
) -> tuple[Flag, ...]:
    """Returns all findings in an item. `without`: top-level keys whose texts do not come from the server."""
    steps = flags_in_steps(kind, wire, without, max_description, budget or Budget())
    return tuple(flag for flag in steps if flag is not None)


def flags_in_steps(
    kind: Kind, wire: Any, without: Collection[str], max_description: int, budget: Budget
) -> Iterator[Flag | None]:
    """Yields what `flags_of_item` returns, in steps of a few milliseconds: each finding, and None after every step."""
    yield from flags_of_names(kind, wire)
    yield from _flags(_texts_of(kind, wire, without), max_description, budget)


def flags_of_instructions(text: str, *, max_description: int = MAX_DESCRIPTION) -> tuple[Flag, ...]:
    """Returns all findings in the part of a server's instructions that is passed on, and whether they are too long."""
    texts = iter((("instructions", text.strip()),))
    return tuple(flag for flag in _flags(texts, max_description, Budget(MAX_INSTRUCTIONS)) if flag is not None)


def foreign_names(kind: Kind, wire: Any, distinct: Container[str], plain: Container[str]) -> tuple[Flag, ...]:
    """Returns flags for names of other servers' tools in the first `MAX_DESCRIPTION` characters of each description.

    `distinct` names are not words of prose, such as `send_message`. `plain` names count only if the text calls them
    tools.
    """
    flags: list[Flag] = []
    reported: set[str] = set()
    remaining = MAX_LOOKED_AT
    for where, text in islice(_texts_of(kind, wire, ()), MAX_TEXTS):
        if not where.endswith("description") or remaining <= 0:
            continue
        remaining -= min(len(text), MAX_DESCRIPTION)
        for match in _NAME.finditer(text[:MAX_DESCRIPTION]):
            if len(reported) == MAX_FOREIGN:
                return tuple(flags)
            name = match[0].rstrip(".-")
            end = match.start() + len(name)
            is_foreign = name in distinct or (name in plain and _is_called_a_tool(text, match.start(), end))
            if is_foreign and name not in reported:
                reported.add(name)
                flags.append(Flag(FOREIGN_TOOLS, where, _excerpt(text, match.start())))
    return tuple(flags)


def is_distinct(name: str) -> bool:
    """Returns whether a tool's name is unlikely to be in prose by chance."""
    return _DISTINCT.search(name) is not None


def _is_called_a_tool(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 6) : start].lower(), text[end : end + 10].lower()
    is_quoted = before[-1:] in "`'\"" and after[:1] in "`'\"" and bool(before) and bool(after)
    return (is_quoted and "tool" in text[max(0, start - 30) : end + 30].lower()) or after.lstrip("`'\" ").startswith(
        "tool"
    )


def _flags(texts: Iterator[tuple[str, str]], max_description: int, budget: Budget) -> Iterator[Flag | None]:
    remaining = MAX_LOOKED_AT
    reported_rules: set[str] = set()
    for number, (where, text) in enumerate(texts):
        remaining = min(remaining, budget.remaining)
        if remaining <= 0 or number == MAX_TEXTS:
            if TOO_LONG not in reported_rules:
                yield Flag(TOO_LONG, where, "not screened from here on")
            return
        screened = text[:remaining]
        remaining -= len(screened) + 1
        budget.remaining -= len(screened) + 1
        for flag in _flags_of_text(where, text, screened, max_description, budget):
            # One flag for each rule is enough.
            if flag is None:
                yield None
            elif flag.rule not in reported_rules:
                reported_rules.add(flag.rule)
                yield flag


def _flags_of_text(
    where: str, text: str, screened: str, max_description: int, budget: Budget
) -> Generator[Flag | None]:
    for hidden in hidden_characters(screened):
        yield None if hidden is None else Flag(hidden[0], where, _excerpt(screened, hidden[1]))
    yield None
    if len(text) > max_description:
        yield Flag(TOO_LONG, where, f"{len(text):,} characters")
    if len(screened) < _MIN_PHRASE:
        return
    if (padding := _padding(screened)) is not None:
        yield Flag(PADDING, where, _excerpt(screened, padding))
    if len(screened) >= 120 and (encoded := _ENCODED.search(screened)) is not None:
        yield Flag(ENCODED, where, _excerpt(screened, encoded.start()))
    yield None
    plain, is_complete = yield from fold_text(screened)
    budget.remaining -= max(0, len(plain) - len(screened))
    if not is_complete:
        yield Flag(TOO_LONG, where, "its characters stand for a text more than four times as long")
    for match in match_rules(plain):
        yield None if match is None else Flag(match[0].name, where, _excerpt(plain, match[1]))


def _padding(text: str) -> int | None:
    """Returns where text follows many empty lines or blanks; None if it does not."""
    if len(text) < _BLANK_LINES:
        return None
    spaces = _SPACES.search(text)
    if spaces is not None:
        return spaces.end()
    if text.count("\n") < _BLANK_LINES:
        return None
    start = empty_lines = 0
    for line in text.split("\n"):
        if not line.strip():
            empty_lines += 1
        elif empty_lines >= _BLANK_LINES and start > empty_lines:
            return start
        else:
            empty_lines = 0
        start += len(line) + 1
    return None


def _excerpt(text: str, at: int) -> str:
    start = max(0, at - 10)
    cut = text[start : at + _EXCERPT]
    return ("…" if start else "") + cut + ("…" if at + _EXCERPT < len(text) else "")


def _texts_of(kind: Kind, wire: Any, without: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields (place, text) of all texts of an item that a model may read, keys of schemas included; not its name."""
    if not isinstance(wire, dict):
        return
    for key in ("title", "description"):
        if isinstance(wire.get(key), str) and key not in without:
            yield key, wire[key]
    if kind in (RESOURCES, TEMPLATES):
        return
    annotations = wire.get("annotations")
    if isinstance(annotations, dict) and isinstance(annotations.get("title"), str):
        yield "annotations.title", annotations["title"]
    if kind is TOOLS:
        for key in ("inputSchema", "outputSchema"):
            yield from _texts_inside(wire.get(key), key)
    elif kind is PROMPTS:
        yield from _texts_inside(wire.get("arguments"), "arguments")
    elif kind is SKILLS:
        yield from _texts_inside(wire.get("frontmatter"), "frontmatter")


def _texts_inside(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yields (place, text) of all texts of a JSON value, the keys of `properties` included."""
    # Iterators instead of lists, as queueing the members of a large object would block for tens of milliseconds.
    stack: list[Iterator[tuple[str, Any]]] = [iter(((where, value),))]
    while stack:
        at, member = next(stack[-1], ("", None))
        if not at:
            stack.pop()
        elif isinstance(member, str):
            yield at, member
        elif len(stack) > _MAX_DEPTH:
            continue
        elif isinstance(member, dict):
            stack.append(_members(member, at))
        elif isinstance(member, list):
            stack.append((f"{at}[{index}]", inner) for index, inner in enumerate(member))


def _members(value: dict[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    holds_names = at.endswith((".properties", ".patternProperties", ".$defs", ".definitions"))
    for key, member in value.items():
        if holds_names:
            yield f"{at} (a name)", f"property {key}"
        yield f"{at}.{key[:60]}", member
