"""Input schemas compiled once, without ever reading anything but the schema itself."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from functools import cached_property
from typing import Any, Final

from mcp_hub.catalog.catalog import Route
from mcp_hub.config.rules import Validation
from mcp_hub.observability.stalls import in_thread
from mcp_hub.protocol.frames import encode, weighs_more
from mcp_hub.schema.loosening import loosened, stripped
from mcp_hub.schema.schema_cost import SchemaCost
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.policy")

Json = dict[str, Any]

MAX_COMPILED: Final = 500
"""Tools whose schemas are kept compiled, some 30 KiB each; the longest unused goes first."""
MAX_SIZE: Final = 256 * 1024
"""Bytes of a schema; a larger one is not checked against."""
MAX_SIZE_OF_ALL: Final = 8 * 1024 * 1024
"""Bytes of all schemas that are kept compiled."""
MAX_WORK: Final = 1_000_000
"""Single checks of one value, as `SchemaCost` counts: at most a tenth of a second or so."""
QUICK_WORK: Final = 50_000
"""The same where somebody waits: some milliseconds."""
QUICK_SIZE: Final = 8 * 1024
"""Weight of a schema that is compiled in some milliseconds."""
MAX_EXPLAINED: Final = 5_000
"""The same where every check that fails becomes an error with its place, which takes a thousand times as long."""
_COPIED: Final = 4096
"""Characters that take as long to copy into an error as a value to be checked."""
_BACKTRACKS: Final = 10_000
"""Steps back a regular expression may take for one value."""
_REGEX_SIZE: Final = 1024 * 1024

_DIALECT: Final = re.compile(r"https?://json-schema\.org/draft(/2020-12|/2019-09|-07|-06|-04)/schema#?")
"""What the compiler knows without asking anybody."""


class Compiled:
    """One schema, to decide with and to explain with. Raises an exception for a schema that cannot be used."""

    def __init__(self, schema: Json, mode: Validation) -> None:
        plain = _plain(schema)
        self.schema = schema
        self.mode: Validation = mode
        self._deciding: Any = loosened(plain) if mode == "lenient" else plain
        self._cost = SchemaCost(self._deciding)
        self._validator = _validator(self._deciding)

    def accepts(self, value: Any) -> bool:
        """Whether a value fits. Raises ValueError for one that would take too long or is not JSON."""
        if self._cost.work(value, MAX_WORK) > MAX_WORK:
            raise ValueError("too large to be checked")
        return bool(self._validator.is_valid(value))

    def accepts_quickly(self, value: Any) -> bool:
        """Whether a value fits and that was found out in a moment. Raises ValueError for what is not JSON."""
        return self._cost.work(value, QUICK_WORK) <= QUICK_WORK and bool(self._validator.is_valid(value))

    def errors(self, value: Any) -> list[Any]:
        """What is wrong as it was decided; all of it, so ask `explainable` before."""
        return list(self._validator.iter_errors(value))

    def exact_errors(self, value: Any) -> list[Any]:
        """The same as the schema is written: the types it names, not what could stand for them."""
        return list(self._exact[1].iter_errors(value)) if self.mode == "lenient" else self.errors(value)

    def explainable(self, value: Any) -> bool:
        """Whether the errors of a value can be had in reasonable time."""
        cost = self._cost.work(value, MAX_EXPLAINED, _COPIED)
        exact = self._exact[2].work(value, MAX_EXPLAINED, _COPIED) if self.mode == "lenient" else cost
        return cost + exact <= MAX_EXPLAINED

    @property
    def may_give_up(self) -> bool:
        """Whether a value may be refused for no other reason than that it would have taken too long."""
        return self._cost.may_give_up

    @property
    def expected(self) -> Any:
        """The schema that `exact_errors` points into."""
        return self._exact[0] if self.mode == "lenient" else self._deciding

    @cached_property
    def _exact(self) -> tuple[Any, Any, SchemaCost]:
        exact = stripped(_plain(self.schema))
        return exact, _validator(exact), SchemaCost(exact)


class Schemas:
    """The compiled schemas of tools, by route; one that cannot be used is told of once."""

    def __init__(self) -> None:
        self._known: OrderedDict[Route, tuple[Json, Validation, Compiled | None, int]] = OrderedDict()
        self._size = 0

    async def compiled(self, route: Route, schema: Json, mode: Validation) -> Compiled | None:
        """The schema of a tool, compiled at the first call; None if it cannot be checked against."""
        known = self._known.get(route)
        if known is not None and known[0] is schema and known[1] == mode:
            self._known.move_to_end(route)
            return known[2]
        if weighs_more(schema, QUICK_SIZE):
            found, size = await in_thread(_compile, route, schema, mode)
        else:
            found, size = _compile(route, schema, mode)
        known = self._known.get(route)  # of several first calls each may have compiled it
        if known is not None:
            self._size -= known[3]
        self._known[route] = (schema, mode, found, size)
        self._known.move_to_end(route)
        self._size += size
        while len(self._known) > MAX_COMPILED or self._size > MAX_SIZE_OF_ALL:
            self._size -= self._known.popitem(last=False)[1][3]
        return found


def _compile(route: Route, schema: Json, mode: Validation) -> tuple[Compiled | None, int]:
    """The schema, and what it counts in the cache."""
    try:
        size = _size(schema)
        return Compiled(schema, mode), size
    except Exception as error:  # the library's own errors share no base
        why = printable(str(error).partition("\n")[0], 300)
        log.warning("%s: arguments of %s are not checked: %s", route.upstream, printable(route.name, 200), why)
        return None, 0


def accepts(schema: Json, value: Any) -> bool:
    """Whether a value fits a schema exactly; False for a schema that cannot be used."""
    try:
        _size(schema)
        return Compiled(schema, "strict").accepts(value)
    except Exception:
        return False


def _size(schema: Json) -> int:
    size = len(encode(schema))
    if size > MAX_SIZE:
        raise ValueError(f"the schema is larger than {MAX_SIZE:,} bytes")
    return size


def _plain(schema: Json) -> Json:
    """The schema without a dialect that would have to be fetched."""
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
