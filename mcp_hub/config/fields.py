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
from mcp_hub.config.field_types import boolean, check_of, parse_duration
from mcp_hub.config.findings import Findings, KeyPath, is_remark, only_known
from mcp_hub.config.settings import restricting
from mcp_hub.config.variables import VariableScope

T = TypeVar("T")

_ABSENT_IF_EMPTY: Final = frozenset({
    "command", "args", "env", "env_file", "env_vars", "env_keys", "cwd", "url", "headers", "env_http_headers",
    "api_key", "api_key_header", "bearer_token_env_var", "auth", "transport", "tools_dir", "builtin", "session", "era",
})  # fmt: skip
"""Keys whose empty value means that they are absent, as templates of clients write every key. No rule is one."""
_RULES: Final = ("tools", "preset", "validate_arguments", "max_result_bytes", "postprocess", "allow")
"""Keys of entries that restrict what is allowed and that belong to no single policy."""


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
        return any(key_path[: len(at)] == at for key_path in self._unresolved)

    def warning(self, at: KeyPath, text: str, code: str = codes.VALUE_WRONG) -> None:
        """Reports a warning at a key."""
        self._findings.warning(at, text, code)

    def text(self, name: str) -> str | None:
        """Reads a text. Reports an error if the value is not one; None if there is none or it is not usable."""
        if (field := self._get(name)) is None:
            return None
        if not isinstance(field.value, str):
            self.error(field.at, "must be a text")
            return None
        return self._usable(field.value, field.at)

    def texts(self, name: str) -> tuple[str, ...]:
        """Reads a list of texts. Numbers and booleans in it become texts."""
        if (field := self._get(name)) is None:
            return ()
        if not isinstance(field.value, list):
            self.error(field.at, "must be a list of texts")
            return ()
        texts = [self.scalar(item, (*field.at, index)) for index, item in enumerate(field.value)]
        return tuple(text for text in texts if text is not None)

    def flag(self, name: str) -> bool | None:
        """Reads a boolean, also one written as a word such as `yes`. Reports an error for anything else."""
        return self.parsed(name, check_of(bool))

    def choice(self, name: str, choices: Mapping[str | bool, T] | Mapping[str, T]) -> T | None:
        """Reads one of the keys of `choices` and returns its value. Reports an error for anything else."""
        if (field := self._get(name)) is None:
            return None
        members: Mapping[Any, T] = choices
        if isinstance(field.value, str | bool) and field.value in members:
            return members[field.value]
        self.error(field.at, f"must be one of {', '.join(choice for choice in members if isinstance(choice, str))}")
        return None

    def parsed(self, name: str, parse: Callable[[Any], T]) -> T | None:
        """Returns what `parse` makes of the value. Its ValueError becomes the finding."""
        if (field := self._get(name)) is None:
            return None
        try:
            return parse(field.value)
        except (ValueError, OverflowError) as error:
            self.error(field.at, str(error))
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
        if (field := self._get(name)) is None:
            return None
        if isinstance(field.value, dict):
            return {key: FieldValue(value, (*field.at, key)) for key, value in field.value.items()}
        if not pairs or not isinstance(field.value, list):
            self.error(field.at, "must be a mapping of names to values")
            return None
        fields: dict[str, FieldValue] = {}
        for index, item in enumerate(field.value):
            key, equals, value = item.partition("=") if isinstance(item, str) else ("", "", "")
            if not key:
                self.error((*field.at, index), "must be a text NAME=value, or NAME")
            elif equals:
                fields[key] = FieldValue(value, (*field.at, index))
        return fields

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
        field = self.values.get(name)
        return None if field is None or field.value is None else field

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
    fields: dict[str, FieldValue] = {}
    policy_keys = dialect.keys.entry_names
    for key, value in values.items():
        key_path = (*at, key)
        if key == "deadlines":
            for name, field in _read_deadlines(value, key_path, findings).items():
                _add_value(fields, name, field, findings)
        elif key in policy_keys:
            _add_value(fields, policy_keys[key], FieldValue(value, key_path), findings)
        elif key in TIMEOUTS:
            _add_value(fields, *_timeout(key, value, key_path, dialect, findings), findings)
        elif key == "available_tools" and dialect.is_goose and not value:
            continue
        elif key in FILTERS:
            _add_value(fields, f"filters.{FILTERS[key]}", FieldValue(value, key_path), findings)
        elif key == "tools":
            _add_value(
                fields,
                "tools" if isinstance(value, dict) else "filters.tools.allow",
                FieldValue(value, key_path),
                findings,
            )
        elif key in ALIASES:
            _add_value(fields, ALIASES[key], FieldValue(_hub_value(ALIASES[key], key, value), key_path), findings)
        elif key in WITHOUT_EFFECT:
            if value:
                findings.warning(key_path, f"has no effect: {WITHOUT_EFFECT[key]}")
        elif key not in ENTRY_KEYS and not is_remark(key):
            known_keys = {"deadlines", "timeout", "tools", *ALIASES, *FILTERS, *policy_keys}
            findings.unknown(key_path, known_keys, {*_RULES, *FILTERS, *restricting(dialect.keys.entry)})
    return fields


def read_defaults(root: Mapping[str, Any], dialect: Dialect, findings: Findings) -> dict[str, FieldValue]:
    """Returns the values of `defaults` (1MCP: `serverDefaults`) by canonical key."""
    defaults: dict[str, FieldValue] = {}
    known_keys = DEFAULTS | dialect.keys.defaults
    rules = {*_RULES, *restricting(dialect.keys.entry)} & known_keys
    for key in ("serverDefaults", "defaults"):
        values = root.get(key)
        if isinstance(values, dict):
            known_values = only_known(values, known_keys, (key,), findings, rules)
            defaults |= canonical_values(known_values, (key,), dialect, findings)
        elif values is not None:
            findings.error((key,), "must be a mapping of keys to values")
    return defaults


def restriction(values: Mapping[str, Any], policy_keys: Container[str]) -> CodedText | None:
    """Returns why the entry must stay off, if it has a restriction that no policy keeps.

    Serving it anyway would silently widen what can be reached.

    Args:
        values: The entry as it is written.
        policy_keys: The keys that policies implement.
    """
    for key, label in RESTRICTIONS.items():
        if key in policy_keys:
            continue
        value = values.get(key)
        if boolean(value.get("enabled") if isinstance(value, dict) else value):
            return CodedText(f"{label} ('{key}') cannot be enforced by the hub", codes.RESTRICTION_FOREIGN)
    return None


def _hub_value(name: str, key: str, value: Any) -> Any:
    """Returns the hub's value of the key `name`: None for an empty one, and for MCPHub's `perSessionClient: false`."""
    if name in _ABSENT_IF_EMPTY and (value in ({}, []) or (isinstance(value, str) and not value.strip())):
        return None
    if key == "perSessionClient" and (is_own := boolean(value)) is not None:
        return "client" if is_own else None
    return value


def _read_deadlines(value: Any, at: KeyPath, findings: Findings) -> dict[str, FieldValue]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        findings.error(at, f"must be a mapping with {', '.join(DEADLINES)}")
        return {}
    deadlines = only_known(value, DEADLINES, at, findings)
    return {f"deadlines.{name}": FieldValue(inner, (*at, name)) for name, inner in deadlines.items()}


def _timeout(key: str, value: Any, at: KeyPath, dialect: Dialect, findings: Findings) -> tuple[str, FieldValue]:
    deadline, unit = TIMEOUTS[key]
    if unit is None:
        unit = dialect.timeout_unit(value)
        deadline = "list" if dialect.timeout_of_list else deadline
        if unit != 1.0 and not dialect.counts_milliseconds:
            findings.warning(at, "is read as milliseconds; write it with its unit, such as '90s' or '2h'")
    return f"deadlines.{deadline}", FieldValue(value, at, unit)


def _add_value(fields: dict[str, FieldValue], name: str, field: FieldValue, findings: Findings) -> None:
    existing = fields.setdefault(name, field)
    if existing.value is None:
        fields[name] = field
    elif field.value is not None and existing is not field and _comparable(name, existing) != _comparable(name, field):
        findings.error(field.at, f"says the same thing as '{existing.at[-1]}' in another way; keep one of them")


def _comparable(name: str, field: FieldValue) -> Any:
    if name == "transport" and isinstance(field.value, str):
        return TRANSPORT_NAMES.get(field.value.lower(), field.value)
    return field.value
