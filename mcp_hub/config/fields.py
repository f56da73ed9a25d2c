"""Reads the keys of one mapping, in any dialect. A wrong value becomes a finding, never an exception."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.dialect import (
    ALIASES,
    DEADLINES,
    DEFAULTS,
    ENTRY_KEYS,
    FILTERS,
    RESTRICTIONS,
    TIMEOUTS,
    TRANSPORT_NAMES,
    WITHOUT_EFFECT,
    Dialect,
)
from mcp_hub.config.field_types import parse_duration
from mcp_hub.config.findings import Findings, KeyPath, is_remark, only_known
from mcp_hub.config.variables import VariableScope

T = TypeVar("T")

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class FieldValue(msgspec.Struct, frozen=True):
    """A value and its place in the file."""

    value: Any
    at: KeyPath
    unit: float = 1.0
    """Seconds in one unit, if the value is a plain number and a duration."""


class Fields:
    """Typed access to the keys of one mapping. Methods return None, or an empty value, for absent and wrong values.

    Errors are added to the findings, which never quote a value. Values at places in `unresolved`, which have a variable
    without a value, are not reported.
    """

    def __init__(
        self,
        values: Mapping[str, FieldValue],
        findings: Findings,
        scope: VariableScope,
        written: Mapping[KeyPath, str],
        unresolved: Iterable[KeyPath] = (),
    ) -> None:
        self.values = values
        self.scope = scope
        self._findings = findings
        self._written = written
        self._unresolved = tuple(unresolved)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def inner(self, values: Mapping[str, FieldValue]) -> Fields:
        """Returns Fields for other keys, with the same findings and scope."""
        return Fields(values, self._findings, self.scope, self._written, self._unresolved)

    def error(self, at: KeyPath, text: str) -> None:
        """Reports an error at a key, unless a variable in its value is unresolved, which is an error already."""
        if not self.is_unresolved(at):
            self._findings.error(at, text)

    def is_unresolved(self, at: KeyPath) -> bool:
        """Returns whether the value at a key has a variable without a value."""
        return any(place[: len(at)] == at for place in self._unresolved)

    def warning(self, at: KeyPath, text: str, code: str = codes.VALUE_WRONG) -> None:
        """Reports a warning at a key."""
        self._findings.warning(at, text, code)

    def text(self, name: str) -> str | None:
        """Reads a text. Reports an error if the value is not one; None if there is none or it is not usable."""
        if (given := self._get(name)) is None:
            return None
        if not isinstance(given.value, str):
            self.error(given.at, "must be a text")
            return None
        return self._usable(given.value, given.at)

    def texts(self, name: str) -> tuple[str, ...]:
        """Reads a list of texts. Numbers and booleans in it become texts."""
        if (given := self._get(name)) is None:
            return ()
        if not isinstance(given.value, list):
            self.error(given.at, "must be a list of texts")
            return ()
        found = [self.scalar(item, (*given.at, index)) for index, item in enumerate(given.value)]
        return tuple(text for text in found if text is not None)

    def flag(self, name: str) -> bool | None:
        """Reads a boolean, also one written as a word such as `true`. Reports an error for anything else."""
        if (given := self._get(name)) is None:
            return None
        if isinstance(given.value, bool):
            return given.value
        word = given.value.strip().lower() if isinstance(given.value, str) else None
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        self.error(given.at, "must be true or false")
        return None

    def choice(self, name: str, words: Mapping[str | bool, T] | Mapping[str, T]) -> T | None:
        """Reads one of the given words and returns what it stands for. Reports an error for anything else."""
        if (given := self._get(name)) is None:
            return None
        known: Mapping[Any, T] = words
        if isinstance(given.value, str | bool) and given.value in known:
            return known[given.value]
        self.error(given.at, f"must be one of {', '.join(word for word in known if isinstance(word, str))}")
        return None

    def parsed(self, name: str, parse: Callable[[Any], T]) -> T | None:
        """Returns what `parse` makes of the value. Its ValueError becomes the finding."""
        if (given := self._get(name)) is None:
            return None
        try:
            return parse(given.value)
        except (ValueError, OverflowError) as error:
            self.error(given.at, str(error))
            return None

    def seconds(self, name: str) -> float | None:
        """Reads a duration and returns it in seconds. Reports an error if the value is not a duration."""
        unit = self.values[name].unit if name in self.values else 1.0

        def parse(value: Any) -> float:
            return parse_duration(value) * (unit if isinstance(value, int | float) else 1.0)

        return self.parsed(name, parse)

    def path(self, name: str) -> Path | None:
        """Reads a path. Reports an error if it is empty or not a text."""
        text = self.text(name)
        if text is None:
            return None
        if not text:
            self.error(self.values[name].at, "must not be empty")
            return None
        return self.scope.path(text)

    def mapping(self, name: str, *, pairs: bool = False) -> dict[str, FieldValue] | None:
        """Reads a mapping of names to values. With `pairs` a list of `NAME=value` counts too (1MCP).

        A `NAME` alone in such a list is left out: it asks for the hub's own variable.
        """
        if (given := self._get(name)) is None:
            return None
        if isinstance(given.value, dict):
            return {key: FieldValue(value, (*given.at, key)) for key, value in given.value.items()}
        if not pairs or not isinstance(given.value, list):
            self.error(given.at, "must be a mapping of names to values")
            return None
        found: dict[str, FieldValue] = {}
        for index, item in enumerate(given.value):
            key, equals, value = item.partition("=") if isinstance(item, str) else ("", "", "")
            if not key:
                self.error((*given.at, index), "must be a text NAME=value, or NAME")
            elif equals:
                found[key] = FieldValue(value, (*given.at, index))
        return found

    def scalar(self, value: Any, at: KeyPath) -> str | None:
        """Returns a text, number or boolean as the text that was written."""
        if isinstance(value, str):
            return self._usable(value, at)
        if isinstance(value, bool):
            written = self._written.get(at, "")
            # YAML reads the words `no` and `on` as booleans.
            return written if written.lower() not in ("", "true", "false") else str(value).lower()
        if (isinstance(value, int) and value.bit_length() <= 64) or (isinstance(value, float) and math.isfinite(value)):
            return self._written.get(at) or str(value)
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        self.error(at, "must be a text")
        return None

    def _get(self, name: str) -> FieldValue | None:
        given = self.values.get(name)
        return None if given is None or given.value is None else given

    def _usable(self, text: str, at: KeyPath) -> str | None:
        """Returns the text; None, with an error, if it has a NUL or cannot be encoded, as no process accepts it."""
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            self.error(at, "holds half of a surrogate pair")
            return None
        if "\0" in text:
            self.error(at, "holds a NUL character")
            return None
        return text


def canonical_values(
    values: Mapping[str, Any], at: KeyPath, dialect: Dialect, findings: Findings
) -> dict[str, FieldValue]:
    """Returns `values` by canonical key. Deadlines of every spelling become `deadlines.call` and so on.

    An unknown key is a warning, two keys that contradict each other are an error.
    """
    found: dict[str, FieldValue] = {}
    owned = dialect.keys.entry_names
    for key, value in values.items():
        place = (*at, key)
        if key == "deadlines":
            for name, given in _read_deadlines(value, place, findings).items():
                _add_value(found, name, given, findings)
        elif key in owned:
            _add_value(found, owned[key], FieldValue(value, place), findings)
        elif key in TIMEOUTS:
            _add_value(found, *_timeout(key, value, place, dialect, findings), findings)
        elif key == "available_tools" and dialect.is_goose and not value:
            continue
        elif key in FILTERS:
            _add_value(found, f"filters.{FILTERS[key]}", FieldValue(value, place), findings)
        elif key == "tools":
            _add_value(
                found, "tools" if isinstance(value, dict) else "filters.tools.allow", FieldValue(value, place), findings
            )
        elif key in ALIASES:
            _add_value(found, ALIASES[key], FieldValue(_as_here(key, value), place), findings)
        elif key in WITHOUT_EFFECT:
            if value:
                findings.warning(place, f"has no effect: {WITHOUT_EFFECT[key]}")
        elif key not in ENTRY_KEYS and not is_remark(key):
            known = {"deadlines", "timeout", "tools", *ALIASES, *FILTERS, *owned}
            findings.unknown(place, known)
    return found


def read_defaults(root: Mapping[str, Any], dialect: Dialect, findings: Findings) -> dict[str, FieldValue]:
    """Returns the values of `defaults` (1MCP: `serverDefaults`) by canonical key."""
    found: dict[str, FieldValue] = {}
    known = DEFAULTS | dialect.keys.defaults
    for key in ("serverDefaults", "defaults"):
        values = root.get(key)
        if isinstance(values, dict):
            found |= canonical_values(only_known(values, known, (key,), findings), (key,), dialect, findings)
        elif values is not None:
            findings.error((key,), "must be a mapping of keys to values")
    return found


def restriction(values: Mapping[str, Any], kept: Container[str]) -> CodedText | None:
    """Returns why the entry must stay off, if it has a restriction that no policy keeps.

    Serving it anyway would silently widen what can be reached.

    Args:
        values: The entry as it is written.
        kept: The keys that policies implement.
    """
    for key, what in RESTRICTIONS.items():
        if key in kept:
            continue
        value = values.get(key)
        if value is True or (isinstance(value, dict) and value.get("enabled") is True):
            return CodedText(f"{what} ('{key}') cannot be enforced by the hub", codes.RESTRICTION_FOREIGN)
    return None


def _as_here(key: str, value: Any) -> Any:
    """Returns the hub's value for that of another program: MCPHub's `perSessionClient` is true or false."""
    if key == "perSessionClient" and isinstance(value, bool):
        return "client" if value else None
    return value


def _read_deadlines(value: Any, at: KeyPath, findings: Findings) -> dict[str, FieldValue]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        findings.error(at, f"must be a mapping with {', '.join(DEADLINES)}")
        return {}
    known = only_known(value, DEADLINES, at, findings)
    return {f"deadlines.{name}": FieldValue(inner, (*at, name)) for name, inner in known.items()}


def _timeout(key: str, value: Any, at: KeyPath, dialect: Dialect, findings: Findings) -> tuple[str, FieldValue]:
    deadline, unit = TIMEOUTS[key]
    if unit is None:
        unit = dialect.timeout_unit(value)
        deadline = "list" if dialect.timeout_of_list else deadline
        if unit != 1.0 and not dialect.counts_milliseconds:
            findings.warning(at, "is read as milliseconds; write it with its unit, such as '90s' or '2h'")
    return f"deadlines.{deadline}", FieldValue(value, at, unit)


def _add_value(found: dict[str, FieldValue], name: str, given: FieldValue, findings: Findings) -> None:
    before = found.setdefault(name, given)
    if before.value is None:
        found[name] = given
    elif given.value is not None and before is not given and _comparable(name, before) != _comparable(name, given):
        findings.error(given.at, f"says the same thing as '{before.at[-1]}' in another way; keep one of them")


def _comparable(name: str, given: FieldValue) -> Any:
    if name == "transport" and isinstance(given.value, str):
        return TRANSPORT_NAMES.get(given.value.lower(), given.value)
    return given.value
