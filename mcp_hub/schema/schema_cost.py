"""How much work it is to check a value against a schema, known before it is begun.

A schema of a few lines can double the work at every step, and nothing stops a check that has started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mcp_hub.schema.loosening import OWN_EXPRESSIONS, pointed_at

Json = dict[str, Any]

MAX_LEVELS: Final = 64
"""Levels of a value that is checked."""
MAX_STEPS: Final = 128
"""Schemas that are applied to the same value one inside the other."""
MAX_EXPRESSIONS: Final = 200
"""Regular expressions of one schema; compiling one takes up to some milliseconds."""
UNBOUNDED: Final = 10**12
"""Stands for any number that is larger."""

_BACKTRACKING: Final = 1000
"""What an expression counts that may go back and try again; `schemas.py` bounds how often."""
_REVISITED: Final = 10
"""`unevaluated*` looks at its neighbours again."""
_GOES_BACK: Final = re.compile(r"\(\?[=!<]|\\[1-9k]")
_HERE: Final = ("not", "if", "then", "else")
_HERE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_HERE_MAPS: Final = ("dependentSchemas", "dependencies")
_BELOW: Final = (
    "additionalProperties", "unevaluatedProperties", "propertyNames",
    "items", "additionalItems", "unevaluatedItems", "contains",
)  # fmt: skip
_ELSEWHERE: Final = ("$dynamicRef", "$recursiveRef")


class SchemaCost:
    """The cost of one schema, in single checks. Raises ValueError for a schema whose cost nobody could tell.

    That is one with references that leave it, or that come back without having gone into the value.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self.may_give_up = False
        """Whether one of its regular expressions can end without an answer."""
        self._anchors: dict[str, Any] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._running: set[int] = set()
        self._look_through()
        self._levels = [self._cost(schema, 0, 0)]

    def work(self, value: Any, most: int, characters: int = 128) -> int:
        """The single checks a value can take, so many characters of a text counting like one value.

        Counting ends where there are more than `most`, or too many levels. Raises ValueError.
        """
        total, level = 0, [value]
        for depth in range(MAX_LEVELS):
            if depth == len(self._levels):
                self._levels.append(self._cost(self._root, depth, 0))
            cost = max(self._levels[depth], 1)
            if total + len(level) * cost > most:
                return UNBOUNDED
            weight, level = _weighed(level, characters)
            total += weight * cost
            if not level or total > most:
                return total
        return UNBOUNDED

    def _look_through(self) -> None:
        """Everything that is bounded for the schema as a whole."""
        expressions = 0
        found: list[Json] = []
        waiting: list[Any] = [self._root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, list):
                waiting.extend(node)
            if not isinstance(node, dict):
                continue
            waiting.extend(node.values())
            if isinstance(node.get("$id"), str) and node is not self._root:
                raise ValueError("it has documents inside it")
            named = node.get("patternProperties")
            written = [*named] if isinstance(named, dict) else []
            written += [node["pattern"]] if isinstance(node.get("pattern"), str) else []
            written = [one for one in written if one not in OWN_EXPRESSIONS]
            expressions += len(written)
            self.may_give_up = self.may_give_up or any(map(_GOES_BACK.search, written))
            for key in ("$anchor", "$dynamicAnchor"):
                name = node.get(key)
                if isinstance(name, str) and self._anchors.setdefault(f"#{name}", node) is not node:
                    raise ValueError(f"two of its parts have the name {name[:80]!r}")
            found.append(node)
        if expressions > MAX_EXPRESSIONS:
            raise ValueError(f"it has more than {MAX_EXPRESSIONS} regular expressions")
        for node in found:
            self._cost(node, 0, 0)

    def _target(self, reference: str) -> Any:
        own = self._root.get("$id")
        local = reference.removeprefix(own.rstrip("#")) if isinstance(own, str) else reference
        if local in ("", "#"):
            return self._root
        if local in self._anchors or not local.startswith("#/"):
            return self._anchor(local, reference)
        if "%2f" in local.lower() or "%7e" in local.lower():
            raise ValueError(f"its reference {reference[:200]!r} can be read in two ways")
        try:
            return pointed_at(self._root, local)
        except (LookupError, TypeError):
            raise ValueError(f"its reference {reference[:200]!r} leads nowhere") from None

    def _anchor(self, local: str, reference: str) -> Any:
        if not local.startswith("#"):
            raise ValueError(f"it refers to another document, {reference[:200]!r}, and nothing is fetched")
        return self._anchors.get(local)  # unknown ones the compiler refuses

    def _cost(self, schema: Any, levels: int, steps: int) -> int:
        """The most checks any one value can cause that is so many levels below the one `schema` is applied to."""
        if not isinstance(schema, dict):
            return 1
        known = self._known.get((id(schema), levels))
        if known is not None:
            return known
        if id(schema) in self._running:
            raise ValueError("it refers to itself without an end")
        if steps > MAX_STEPS:
            raise ValueError(f"more than {MAX_STEPS} of its parts apply to the same value, one inside the other")
        self._running.add(id(schema))
        total = _own_cost(schema) if levels == 0 else 0
        total += sum(self._cost(inner, levels, steps + 1) for inner in self._here(schema))
        self._running.discard(id(schema))
        if levels > 0:
            total += self._cost_below(schema, levels - 1)
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            total *= _REVISITED
        self._known[id(schema), levels] = total = min(total, UNBOUNDED)
        return total

    def _here(self, schema: Json) -> Iterator[Any]:
        """The schemas that are applied to the same value."""
        for key in ("$ref", *_ELSEWHERE):
            if isinstance(schema.get(key), str):
                yield self._target(schema[key])
        yield from (schema[key] for key in _HERE if key in schema)
        for key in _HERE_LISTS:
            if isinstance(schema.get(key), list):
                yield from schema[key]
        for key in _HERE_MAPS:
            if isinstance(schema.get(key), dict):
                yield from schema[key].values()

    def _cost_below(self, schema: Json, levels: int) -> int:
        running, self._running = self._running, set()  # a member is another value: coming back is no circle
        groups: list[list[Any]] = []
        for key in ("properties", "prefixItems"):  # a member is at one of these places only
            inner = schema.get(key)
            groups.append([*inner.values()] if isinstance(inner, dict) else inner if isinstance(inner, list) else [])
        for key in _BELOW:
            if key in schema:
                groups.append(schema[key] if isinstance(schema[key], list) else [schema[key]])
        total = sum(max((self._cost(inner, levels, 0) for inner in group), default=0) for group in groups)
        named = schema.get("patternProperties")
        if isinstance(named, dict):
            total += sum(_expression_cost(name) + self._cost(one, levels, 0) for name, one in named.items())
        self._running = running
        return total


def _own_cost(schema: Json) -> int:
    required, options = schema.get("required"), schema.get("enum")
    cost = 1 + (len(required) if isinstance(required, list) else 0)
    if isinstance(options, list) and any(isinstance(one, dict | list) for one in options):
        cost += len(options)
    pattern = schema.get("pattern")
    return cost + (_expression_cost(pattern) if isinstance(pattern, str) else 0)


def _expression_cost(pattern: str) -> int:
    if pattern in OWN_EXPRESSIONS:
        return 1
    return _BACKTRACKING if _GOES_BACK.search(pattern) else 1 + len(pattern) // 16


def _weighed(level: list[Any], characters: int) -> tuple[int, list[Any]]:
    """What the values of one level count, and the level below."""
    weight = len(level)
    below: list[Any] = []
    for one in level:
        kind = type(one)
        if kind is str:
            weight += len(one) // characters
        elif kind is dict:
            below.extend(one.values())
        elif kind is list:
            below.extend(one)
    return weight, below
