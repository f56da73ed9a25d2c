"""The keys of an entry, whatever its dialect, under the names `entry.py` reads; the others are told of or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcp_hub.config.dialect import Dialect
from mcp_hub.config.fields import Given
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.keys import (
    ALIASES,
    DEADLINES,
    DEFAULTS,
    ENTRY_KEYS,
    FILTERS,
    RESTRICTIONS,
    TIMEOUTS,
    TRANSPORTS,
    WITHOUT_EFFECT,
    is_remark,
)


def canonical(values: Mapping[str, Any], at: KeyPath, dialect: Dialect, findings: Findings) -> dict[str, Given]:
    """`values` by canonical key; deadlines of every spelling as `deadlines.call` and so on.

    A key nobody knows is a warning, two that say the same thing differently are an error.
    """
    found: dict[str, Given] = {}
    for key, value in values.items():
        place = (*at, key)
        if key == "deadlines":
            for name, given in _deadlines(value, place, findings).items():
                _put(found, name, given, findings)
        elif key in TIMEOUTS:
            _put(found, *_timeout(key, value, place, dialect, findings), findings)
        elif key in FILTERS:
            _put(found, f"filters.{FILTERS[key]}", Given(value, place), findings)
        elif key == "tools":
            _put(found, "tools" if isinstance(value, dict) else "filters.tools.allow", Given(value, place), findings)
        elif key in ALIASES:
            _put(found, ALIASES[key], Given(value, place), findings)
        elif key in WITHOUT_EFFECT:
            if value:
                findings.warning(place, f"has no effect: {WITHOUT_EFFECT[key]}")
        elif key not in ENTRY_KEYS and not is_remark(key):
            findings.unknown(place, {"deadlines", "timeout", "tools", *ALIASES, *FILTERS})
    return found


def read_defaults(root: Mapping[str, Any], dialect: Dialect, findings: Findings) -> dict[str, Given]:
    """`defaults` (1MCP: `serverDefaults`) under canonical names."""
    found: dict[str, Given] = {}
    for key in ("serverDefaults", "defaults"):
        values = root.get(key)
        if isinstance(values, dict):
            found |= canonical(only_known(values, DEFAULTS, (key,), findings), (key,), dialect, findings)
        elif values is not None:
            findings.error((key,), "must be a mapping of keys to values")
    return found


def only_known(values: Mapping[str, Any], known: Iterable[str], at: KeyPath, findings: Findings) -> dict[str, Any]:
    """`values` without the keys that are not `known`, each of which is a warning."""
    names = set(known)
    for key in values:
        if key not in names and not is_remark(key):
            findings.unknown((*at, key), names)
    return {key: value for key, value in values.items() if key in names}


def restriction(values: Mapping[str, Any]) -> str | None:
    """Why the entry must stay off: a rule in it that its user relies on and the hub cannot keep.

    Serving it all the same would silently widen what can be reached.
    """
    for key, what in RESTRICTIONS.items():
        value = values.get(key)
        if value is True or (isinstance(value, dict) and value.get("enabled") is True):
            return f"{what} ('{key}') cannot be kept by the hub"
    return None


def _deadlines(value: Any, at: KeyPath, findings: Findings) -> dict[str, Given]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        findings.error(at, f"must be a mapping with {', '.join(DEADLINES)}")
        return {}
    known = only_known(value, DEADLINES, at, findings)
    return {f"deadlines.{name}": Given(inner, (*at, name)) for name, inner in known.items()}


def _timeout(key: str, value: Any, at: KeyPath, dialect: Dialect, findings: Findings) -> tuple[str, Given]:
    deadline, unit = TIMEOUTS[key]
    if unit is None:
        unit = dialect.timeout_unit(value)
        deadline = "list" if dialect.timeout_of_list else deadline
        if unit != 1.0 and not dialect.counts_milliseconds:
            findings.warning(at, "is taken for milliseconds; write it with its unit, such as '90s' or '2h'")
    return f"deadlines.{deadline}", Given(value, at, unit)


def _put(found: dict[str, Given], name: str, given: Given, findings: Findings) -> None:
    before = found.setdefault(name, given)
    if before.value is None:
        found[name] = given
    elif given.value is not None and before is not given and _meaning(name, before) != _meaning(name, given):
        findings.error(given.at, f"says the same thing as '{before.at[-1]}' in another way; keep one of them")


def _meaning(name: str, given: Given) -> Any:
    if name == "transport" and isinstance(given.value, str):
        return TRANSPORTS.get(given.value.lower(), given.value)
    return given.value
