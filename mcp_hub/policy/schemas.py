"""Input schemas compiled once, without ever reading anything but the schema itself."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from mcp_hub.catalog import Route
from mcp_hub.config.rules import Validation
from mcp_hub.loosening import loosened
from mcp_hub.wire.frames import FrameError, encode

log = logging.getLogger("mcp_hub.policy")

Json = dict[str, Any]

MAX_COMPILED: Final = 2000
"""Tools whose schemas are kept compiled; the longest unused goes first."""
MAX_SIZE: Final = 256 * 1024
"""Bytes of a schema; a larger one is not checked against."""
_BACKTRACKS: Final = 10_000
"""Steps back a regular expression may take for one value."""
_REGEX_SIZE: Final = 1024 * 1024

_DRAFTS: Final = (
    "json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-04/schema",
)


@dataclass(frozen=True)
class Compiled:
    """A schema as it decides (`accepts`) and as it explains (`exact`)."""

    schema: Json
    mode: Validation
    accepts: Any
    exact: Any


class Schemas:
    """The compiled schemas of tools, by route; one that cannot be used is told of once."""

    def __init__(self) -> None:
        self._known: OrderedDict[Route, tuple[Json, Validation, Compiled | None]] = OrderedDict()

    def compiled(self, route: Route, schema: Json, mode: Validation) -> Compiled | None:
        """The schema of a tool, compiled at the first call; None if it cannot be checked against."""
        known = self._known.get(route)
        if known is not None and known[0] is schema and known[1] == mode:
            self._known.move_to_end(route)
            return known[2]
        found = _compile(route, schema, mode)
        self._known[route] = (schema, mode, found)
        self._known.move_to_end(route)
        if len(self._known) > MAX_COMPILED:
            self._known.popitem(last=False)
        return found


def _compile(route: Route, schema: Json, mode: Validation) -> Compiled | None:
    try:
        if len(encode(schema)) > MAX_SIZE:
            raise ValueError(f"it is larger than {MAX_SIZE:,} bytes")
        accepts = _validator(loosened(schema) if mode == "lenient" else _plain(schema))
        exact = _explaining(schema, accepts) if mode == "lenient" else accepts
    except (FrameError, ValueError, RecursionError) as error:
        log.warning("%s: arguments of %s are not checked: %s", route.upstream, route.name, error)
        return None
    except Exception as error:  # the library's own errors share no base
        text = str(error).partition("\n")[0]
        log.warning("%s: arguments of %s are not checked: %s", route.upstream, route.name, text)
        return None
    return Compiled(schema, mode, accepts, exact)


def accepts(schema: Json, value: Any) -> bool:
    """Whether a value fits a schema exactly; False for a schema that cannot be used."""
    try:
        return bool(_validator(_plain(schema)).is_valid(value))
    except Exception:
        return False


def _explaining(schema: Json, accepts: Any) -> Any:
    """The schema as it is, where that can be compiled: a regular expression of another dialect cannot."""
    try:
        return _validator(_plain(schema))
    except Exception:
        return accepts


def _plain(schema: Json) -> Json:
    """The schema without a dialect that would have to be fetched."""
    dialect = schema.get("$schema")
    known = isinstance(dialect, str) and any(draft in dialect for draft in _DRAFTS)
    return schema if known or "$schema" not in schema else {k: one for k, one in schema.items() if k != "$schema"}


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
