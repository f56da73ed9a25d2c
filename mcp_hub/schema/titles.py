"""JSON schemas without the titles that generators put everywhere."""

from __future__ import annotations

from typing import Any, Final

_VALUES: Final = frozenset({"default", "const", "enum", "examples"})
"""Keywords with values of the user's in them, which are left as they are."""
_OF_NAMES: Final = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
"""Keywords whose keys are names of the user's, not keywords."""


def without_titles(schema: Any, *, names: bool = False) -> Any:
    """A copy of a schema without the keyword `title` at any depth; a property that is called `title` stays.

    `names`: the keys of this mapping are names of the user's.
    """
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if not names and key in _VALUES else without_titles(value, names=not names and key in _OF_NAMES)
        for key, value in schema.items()
        if names or key != "title" or not isinstance(value, str)
    }
