"""Patterns over original names and URIs, and the rules of one tool found by them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Final
from urllib.parse import unquote

from mcp_hub.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.config.rules import ToolRules

MAX_REMEMBERED: Final = 10_000
"""Names whose rules are remembered; an upstream may make up new ones for ever."""
_DECODINGS: Final = 4
"""Rounds of percent-decoding; whoever encodes more often than that is read as far as this."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
_TAIL: Final = re.compile(r"[?#;]")
_GLOB: Final = re.compile(r"[*?\[]")


class Patterns:
    """Names given exactly or with `*`, `?` and `[...]`; case counts."""

    def __init__(self, patterns: Iterable[str]) -> None:
        given = tuple(patterns)
        self._exact = frozenset(given)
        globs = [translate(pattern) for pattern in given if _GLOB.search(pattern)]
        self._glob = re.compile("|".join(globs)) if globs else None

    def __bool__(self) -> bool:
        return bool(self._exact)

    def match(self, name: str) -> bool:
        """Whether one of the patterns covers the name."""
        return name in self._exact or (self._glob is not None and self._glob.match(name) is not None)


def spellings(uri: str) -> tuple[str, ...]:
    """A URI and what a server may make of it: decoded, without invisible characters and dot segments, in one case.

    A rule that refuses one of them refuses the URI; one that allows has to allow them all.
    """
    found = [uri]
    text = uri
    for _ in range(_DECODINGS):
        decoded = unquote(text, errors="replace")
        if decoded == text:
            break
        text = decoded
        found.append(text)
    text = "".join(char for char in text.partition("\0")[0] if unicodedata.category(char) not in _INVISIBLE)
    plain = unicodedata.normalize("NFKC", text).replace("\\", "/").strip()
    scheme, colon, rest = plain.partition(":")
    plain = f"{scheme.lower()}{colon}{_without_dots(rest)}"
    found += [plain, plain.casefold()]
    return tuple(dict.fromkeys(found))


def roots(uri: str) -> tuple[str, ...]:
    """The spellings of a URI without its query and fragment, with which many servers read the same."""
    return tuple(dict.fromkeys(_TAIL.split(spelling, maxsplit=1)[0].rstrip("/ ") for spelling in spellings(uri)))


def _without_dots(path: str) -> str:
    head = "//" if path.startswith("//") else "/" if path.startswith("/") else ""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return head + "/".join(parts)


class RulesOfTools:
    """The ToolRules of each tool: of all patterns that match, in the order of the file, the last word wins."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._rules = {
            id: [(Patterns((pattern,)), rules) for pattern, rules in server.tools.items()]
            for id, server in servers.items()
            if server.tools
        }
        self._known: dict[tuple[str, str], ToolRules] = {}

    def __call__(self, route: Route) -> ToolRules:
        """The rules of the tool a route leads to; of anything but a tool there are none."""
        if route.upstream not in self._rules or route.kind.name != "tools":
            return NO_RULES
        key = (route.upstream, route.name)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._merged(*key)
        return found

    def _merged(self, upstream: str, name: str) -> ToolRules:
        merged = NO_RULES
        for patterns, rules in self._rules[upstream]:
            if patterns.match(name):
                said = {field: getattr(rules, field) for field in rules.model_fields_set}
                said["preset"] = {**merged.preset, **rules.preset}
                merged = merged.model_copy(update=said)
        return merged


NO_RULES: Final = ToolRules()
