"""Compiles input schemas, caches them, and bounds the work of checking a value. Nothing external is ever fetched."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from mcp_hub.catalog import Route
from mcp_hub.config.entry_rules import Validation
from mcp_hub.observability.stalls import in_thread
from mcp_hub.protocol.frames import encode, weighs_more
from mcp_hub.schema.lenient_schema import OWN_EXPRESSIONS, make_exact, make_lenient, resolve_pointer
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.policy")

Json = dict[str, Any]

MAX_COMPILED: Final = 500
"""Schemas in the cache, about 30 KiB each; the least recently used one is dropped first."""
MAX_SIZE: Final = 256 * 1024
"""Bytes of one schema; arguments are not checked against a larger one."""
MAX_SIZE_OF_ALL: Final = 8 * 1024 * 1024
"""Bytes of all schemas in the cache."""
MAX_WORK: Final = 1_000_000
"""Steps of checking one value, as `SchemaCost` counts them: at most about a tenth of a second."""
QUICK_WORK: Final = 50_000
"""Steps of a quick check: a few milliseconds."""
LITTLE_WORK: Final = 2_000
"""Steps below which a value need not be weighed."""
QUICK_SIZE: Final = 8 * 1024
"""Weight up to which a schema is compiled without a thread: a few milliseconds."""
MAX_EXPLAINED: Final = 5_000
"""Steps of explaining one value: making an error for a failed step takes a thousand times as long as the step."""
_COPIED_PER_STEP: Final = 4096
"""Characters whose copy in an error takes as long as one step."""
_BACKTRACKS: Final = 10_000
"""Backtracking steps of a regular expression for one value."""
_REGEX_SIZE: Final = 1024 * 1024

_DIALECT: Final = re.compile(r"https?://json-schema\.org/draft(/2020-12|/2019-09|-07|-06|-04)/schema#?")
"""The dialects that the compiler knows without fetching anything."""


class CompiledSchema:
    """One compiled schema: validates values and lists errors. The constructor raises for an unusable schema."""

    def __init__(self, schema: Json, mode: Validation) -> None:
        plain = _without_unknown_dialect(schema)
        self.schema = schema
        self.mode: Validation = mode
        self._effective_schema: Any = make_lenient(plain) if mode == "lenient" else plain
        self._cost = SchemaCost(self._effective_schema)
        self._validator = _validator(self._effective_schema)

    def accepts(self, value: Any) -> bool:
        """Returns whether a value is valid. Raises ValueError if it is not JSON or would take too long."""
        if self._cost.work(value, MAX_WORK) > MAX_WORK:
            raise ValueError("too large to be checked")
        return bool(self._validator.is_valid(value))

    def accepts_quickly(self, value: Any) -> bool:
        """Returns whether a value is valid and quick to check. Raises ValueError if the value is not JSON."""
        work = self._cost.work(value, QUICK_WORK)
        if work > QUICK_WORK or (work > LITTLE_WORK and weighs_more(value)):
            return False
        return bool(self._validator.is_valid(value))

    def errors(self, value: Any) -> list[Any]:
        """Returns all errors by the schema that `accepts` uses. Check `explainable` first, as this may take long."""
        return list(self._validator.iter_errors(value))

    def exact_errors(self, value: Any) -> list[Any]:
        """Returns all errors by the schema as it is written, without leniency."""
        return list(self._exact[1].iter_errors(value)) if self.mode == "lenient" else self.errors(value)

    def explainable(self, value: Any) -> bool:
        """Returns whether the errors of a value can be listed in reasonable time."""
        cost = self._cost.work(value, MAX_EXPLAINED, _COPIED_PER_STEP)
        exact = self._exact[2].work(value, MAX_EXPLAINED, _COPIED_PER_STEP) if self.mode == "lenient" else cost
        return cost + exact <= MAX_EXPLAINED

    @property
    def may_give_up(self) -> bool:
        """Whether a value may be refused only because a regular expression reached its limit of backtracking."""
        return self._cost.may_give_up

    @property
    def expected(self) -> Any:
        """The schema that `exact_errors` points into."""
        return self._exact[0] if self.mode == "lenient" else self._effective_schema

    @cached_property
    def _exact(self) -> tuple[Any, Any, SchemaCost]:
        exact = make_exact(_without_unknown_dialect(self.schema))
        return exact, _validator(exact), SchemaCost(exact)


class SchemaCache:
    """A cache of compiled schemas by route and identity. A schema that cannot be used is logged once."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Route, int], tuple[Json, Validation, CompiledSchema | None, int]] = (
            OrderedDict()
        )
        self._size = 0

    def find(self, route: Route, schema: Json, mode: Validation) -> CompiledSchema | None:
        """Returns the compiled schema from the cache; None if it is not there or cannot be used."""
        key = (route, id(schema))  # a server may list the same tool with other schemas to other callers
        entry = self._entries.get(key)
        if entry is None or entry[1] != mode:
            return None
        self._entries.move_to_end(key)
        return entry[2]

    async def compiled(self, route: Route, schema: Json, mode: Validation) -> CompiledSchema | None:
        """Returns a tool's schema, compiled at the first call; None if it cannot be used."""
        key = (route, id(schema))
        entry = self._entries.get(key)
        if entry is not None and entry[1] == mode:
            self._entries.move_to_end(key)
            return entry[2]
        if weighs_more(schema, QUICK_SIZE):
            compiled, size = await in_thread(_compile, route, schema, mode)
        else:
            compiled, size = _compile(route, schema, mode)
        entry = self._entries.get(key)  # concurrent first calls may each have compiled it
        if entry is not None:
            self._size -= entry[3]
        self._entries[key] = (schema, mode, compiled, size)  # holding the schema keeps its id from another one
        self._entries.move_to_end(key)
        self._size += size
        while len(self._entries) > MAX_COMPILED or self._size > MAX_SIZE_OF_ALL:
            self._size -= self._entries.popitem(last=False)[1][3]
        return compiled


def _compile(route: Route, schema: Json, mode: Validation) -> tuple[CompiledSchema | None, int]:
    """Returns the compiled schema, or None if it cannot be used, and its size in the cache."""
    try:
        size = _size(schema)
        return CompiledSchema(schema, mode), size
    except Exception as error:  # the errors of the library have no common base class
        reason = printable(str(error).partition("\n")[0], 300)
        log.warning("%s: arguments of %s are not checked: %s", route.upstream, printable(route.name, 200), reason)
        return None, 0


def schema_accepts(schema: Json, value: Any) -> bool:
    """Returns whether a value is strictly valid; False for a schema that cannot be used."""
    try:
        _size(schema)
        return CompiledSchema(schema, "strict").accepts(value)
    except Exception:
        return False


def _size(schema: Json) -> int:
    size = len(encode(schema))
    if size > MAX_SIZE:
        raise ValueError(f"the schema is larger than {MAX_SIZE:,} bytes")
    return size


def _without_unknown_dialect(schema: Json) -> Json:
    """Returns the schema without `$schema` if that names a dialect that would have to be fetched."""
    dialect = schema.get("$schema")
    if "$schema" not in schema or (isinstance(dialect, str) and _DIALECT.fullmatch(dialect)):
        return schema
    return {key: value for key, value in schema.items() if key != "$schema"}


def _validator(schema: Any) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema,
        retriever=_refuse,
        validate_formats=False,
        pattern_options=jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_BACKTRACKS, size_limit=_REGEX_SIZE, dfa_size_limit=_REGEX_SIZE
        ),
    )


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to another document, {uri[:200]!r}, and nothing is fetched")


MAX_LEVELS: Final = 64
"""Levels of nesting of a checked value."""
MAX_STEPS: Final = 128
"""Nested subschemas that apply to the same value."""
MAX_EXPRESSIONS: Final = 200
"""Regular expressions in one schema; compiling one takes up to a few milliseconds."""
UNBOUNDED: Final = 10**12
"""Stands for this and every larger cost."""

_BACKTRACKING: Final = 1000
"""Cost of an expression that may backtrack; `_BACKTRACKS` bounds how often."""
_UNEVALUATED_FACTOR: Final = 10
"""Factor for `unevaluated*`, which evaluates its siblings again."""
_BACKTRACKING_SYNTAX: Final = re.compile(r"\(\?[=!<]|\\[1-9k]")
_IN_PLACE: Final = ("not", "if", "then", "else")
_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_CHILDREN: Final = (
    "additionalProperties", "unevaluatedProperties", "propertyNames",
    "items", "additionalItems", "unevaluatedItems", "contains",
)  # fmt: skip
_DYNAMIC_REFERENCES: Final = ("$dynamicRef", "$recursiveRef")


class SchemaCost:
    """The cost of checks by one schema in steps, which must be known before, as a check cannot be interrupted.

    The constructor raises ValueError for a schema whose cost has no bound: its references lead outside, or in a circle
    without going deeper into the value.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self.may_give_up = False
        """Whether one of its regular expressions may reach the limit of backtracking."""
        self._anchors: dict[str, Any] = {}
        self._costs: dict[tuple[int, int], int] = {}
        self._running: set[int] = set()
        self._check_bounds()
        self._levels = [self._cost(schema, 0, 0)]

    def work(self, value: Any, limit: int, characters: int = 128) -> int:
        """Returns the most steps that checking a value can take; `characters` of a text count like one value.

        Stops counting above `limit` steps, and returns UNBOUNDED if it cannot continue. Raises ValueError if the schema
        has no bound for the depth of the value.
        """
        total, level = 0, [value]
        for depth in range(MAX_LEVELS):
            if depth == len(self._levels):
                self._levels.append(self._cost(self._root, depth, 0))
            cost = max(self._levels[depth], 1)
            if total + len(level) * cost > limit:
                return UNBOUNDED
            weight, children = len(level), []
            for member in level:
                kind = type(member)
                if kind is str:
                    weight += len(member) // characters
                elif kind is dict:
                    children.extend(member.values())
                elif kind is list:
                    children.extend(member)
            total, level = total + weight * cost, children
            if not level or total > limit:
                return total
        return UNBOUNDED

    def _check_bounds(self) -> None:
        """Checks the bounds of the schema as a whole."""
        expressions = 0
        nodes: list[Json] = []
        stack: list[Any] = [self._root]
        while stack:
            node = stack.pop()
            if isinstance(node, list):
                stack.extend(node)
            if not isinstance(node, dict):
                continue
            stack.extend(node.values())
            if isinstance(node.get("$id"), str) and node is not self._root:
                raise ValueError("it has documents inside it")
            by_pattern = node.get("patternProperties")
            patterns = [*by_pattern] if isinstance(by_pattern, dict) else []
            patterns += [node["pattern"]] if isinstance(node.get("pattern"), str) else []
            patterns = [pattern for pattern in patterns if pattern not in OWN_EXPRESSIONS]
            expressions += len(patterns)
            self.may_give_up = self.may_give_up or any(map(_BACKTRACKING_SYNTAX.search, patterns))
            for key in ("$anchor", "$dynamicAnchor"):
                name = node.get(key)
                if isinstance(name, str) and self._anchors.setdefault(f"#{name}", node) is not node:
                    raise ValueError(f"two of its parts have the name {name[:80]!r}")
            nodes.append(node)
        if expressions > MAX_EXPRESSIONS:
            raise ValueError(f"it has more than {MAX_EXPRESSIONS} regular expressions")
        for node in nodes:
            self._cost(node, 0, 0)

    def _target(self, reference: str) -> Any:
        base = self._root.get("$id")
        local = reference.removeprefix(base.rstrip("#")) if isinstance(base, str) else reference
        if local in ("", "#"):
            return self._root
        if local in self._anchors or not local.startswith("#/"):
            return self._anchor(local, reference)
        if "%2f" in local.lower() or "%7e" in local.lower():
            raise ValueError(f"its reference {reference[:200]!r} can be read in two ways")
        try:
            return resolve_pointer(self._root, local)
        except (LookupError, TypeError):
            raise ValueError(f"its reference {reference[:200]!r} leads nowhere") from None

    def _anchor(self, local: str, reference: str) -> Any:
        if not local.startswith("#"):
            raise ValueError(f"it refers to another document, {reference[:200]!r}, and nothing is fetched")
        return self._anchors.get(local)  # the compiler refuses unknown anchors

    def _cost(self, schema: Any, levels: int, steps: int) -> int:
        """Returns the most steps for one value that is `levels` below the value to which `schema` applies."""
        if not isinstance(schema, dict):
            return 1
        cached = self._costs.get((id(schema), levels))
        if cached is not None:
            return cached
        if id(schema) in self._running:
            raise ValueError("it refers to itself without an end")
        if steps > MAX_STEPS:
            raise ValueError(f"more than {MAX_STEPS} of its parts apply to the same value, one inside the other")
        self._running.add(id(schema))
        total = _own_cost(schema) if levels == 0 else 0
        total += sum(self._cost(inner, levels, steps + 1) for inner in self._in_place_subschemas(schema))
        self._running.discard(id(schema))
        if levels > 0:
            total += self._child_cost(schema, levels - 1)
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            total *= _UNEVALUATED_FACTOR
        self._costs[id(schema), levels] = total = min(total, UNBOUNDED)
        return total

    def _in_place_subschemas(self, schema: Json) -> Iterator[Any]:
        """Yields the subschemas that apply to the same value."""
        for key in ("$ref", *_DYNAMIC_REFERENCES):
            if isinstance(schema.get(key), str):
                yield self._target(schema[key])
        yield from (schema[key] for key in _IN_PLACE if key in schema)
        for key in _IN_PLACE_LISTS:
            if isinstance(schema.get(key), list):
                yield from schema[key]
        for key in _IN_PLACE_MAPS:
            if isinstance(schema.get(key), dict):
                yield from schema[key].values()

    def _child_cost(self, schema: Json, levels: int) -> int:
        running, self._running = self._running, set()  # a member is another value, so the same schema again is no cycle
        groups: list[list[Any]] = []
        for key in ("properties", "prefixItems"):  # a member matches one of these only
            inner = schema.get(key)
            groups.append([*inner.values()] if isinstance(inner, dict) else inner if isinstance(inner, list) else [])
        for key in _CHILDREN:
            if key in schema:
                groups.append(schema[key] if isinstance(schema[key], list) else [schema[key]])
        total = sum(max((self._cost(inner, levels, 0) for inner in group), default=0) for group in groups)
        by_pattern = schema.get("patternProperties")
        if isinstance(by_pattern, dict):
            total += sum(
                _expression_cost(pattern) + self._cost(subschema, levels, 0)
                for pattern, subschema in by_pattern.items()
            )
        self._running = running
        return total


def _own_cost(schema: Json) -> int:
    required, options = schema.get("required"), schema.get("enum")
    cost = 1 + (len(required) if isinstance(required, list) else 0)
    if isinstance(options, list) and any(isinstance(option, dict | list) for option in options):
        cost += len(options)
    pattern = schema.get("pattern")
    return cost + (_expression_cost(pattern) if isinstance(pattern, str) else 0)


def _expression_cost(pattern: str) -> int:
    if pattern in OWN_EXPRESSIONS:
        return 1
    return _BACKTRACKING if _BACKTRACKING_SYNTAX.search(pattern) else 1 + len(pattern) // 16
