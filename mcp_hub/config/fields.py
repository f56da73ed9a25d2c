"""Reads the keys of one mapping, in any dialect. A wrong value becomes a finding, never an exception."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mcp_hub import codes
from mcp_hub.config.field_types import SecretStr, ValidationError, check_of, is_list, plain
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.settings import Frozen
from mcp_hub.config.variables import VariableScope


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

    def get(self, name: str) -> FieldValue | None:
        """Returns the value of a key and its place; None if it is absent or null."""
        field = self.values.get(name)
        return None if field is None or field.value is None else field

    def resolved(self, name: str) -> FieldValue | None:
        """Returns the same; None also if a variable in it has no value, which switches the entry off."""
        field = self.get(name)
        return None if field is None or self.is_unresolved(field.at) else field

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
        if (field := self.get(name)) is None:
            return None
        if not isinstance(field.value, str):
            self.error(field.at, "must be a text")
            return None
        return self._usable(field.value, field.at)

    def texts(self, name: str) -> tuple[str, ...]:
        """Reads a list of texts. Numbers and booleans in it become texts."""
        if (field := self.get(name)) is None:
            return ()
        if not isinstance(field.value, list):
            self.error(field.at, "must be a list of texts")
            return ()
        texts = [self.scalar(item, (*field.at, index)) for index, item in enumerate(field.value)]
        return tuple(text for text in texts if text is not None)

    def read(self, name: str, hint: Any) -> Any:
        """Reads a value of the type of a model's field. Reports errors for others; None if there is none.

        Paths are relative to the file. A single text may stand for a list of texts.
        """
        if (field := self.get(name)) is None:
            return None
        kind, value = plain(hint), field.value
        if kind is Path:
            value = self.path(name)
        elif kind in (str, SecretStr):
            value = self.text(name)
            value = value.strip() if kind is SecretStr and value is not None else value
        elif is_list(kind) and not isinstance(value, str):
            value = self.texts(name)
        if value is None:
            return None
        try:
            if isinstance(value, int | float) and not isinstance(value, bool) and field.unit != 1.0:
                value *= field.unit
            return check_of(hint)(value)
        except ValidationError as error:
            for at, text in error.errors:
                self.error((*field.at, *at), text)
        except (ValueError, OverflowError) as error:
            self.error(field.at, str(error))
        return None

    def typed(self, model: type[Frozen], names: Iterable[str]) -> dict[str, Any]:
        """Reads fields of a model by their types. Absent and wrong ones are left out."""
        values = {name: self.read(name, model.model_fields[name].type) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def path(self, name: str) -> Path | None:
        """Reads a path. Reports an error if it is empty or not a text."""
        text = self.text(name)
        if text == "":
            self.error(self.values[name].at, "must not be empty")
        return self.scope.path(text) if text else None

    def mapping(self, name: str, *, pairs: bool = False) -> dict[str, FieldValue] | None:
        """Reads a mapping of names to values. With `pairs` a list of `NAME=value` counts too (1MCP).

        A `NAME` alone in such a list is left out: it asks for the hub's own variable.
        """
        if (field := self.get(name)) is None:
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
