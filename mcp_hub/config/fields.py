"""The keys of one mapping, read one by one: what does not fit becomes a finding, never an exception."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.quantities import parse_duration
from mcp_hub.config.variables import Scope

T = TypeVar("T")

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class Given(msgspec.Struct, frozen=True):
    """A value and where it stands."""

    value: Any
    at: KeyPath
    unit: float = 1.0
    """Seconds in one, of a plain number that is a duration."""


class Fields:
    """Typed access to `given`. Every method returns None, or something empty, for what is absent or wrong.

    No message quotes a value. Places in `unresolved` are excused: they hold a variable without a value.
    """

    def __init__(
        self,
        given: Mapping[str, Given],
        findings: Findings,
        scope: Scope,
        written: Mapping[KeyPath, str],
        unresolved: Iterable[KeyPath] = (),
    ) -> None:
        self.given = given
        self.scope = scope
        self._findings = findings
        self._written = written
        self._unresolved = tuple(unresolved)

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def inner(self, given: Mapping[str, Given]) -> Fields:
        """The same reading of other keys."""
        return Fields(given, self._findings, self.scope, self._written, self._unresolved)

    def error(self, at: KeyPath, text: str) -> None:
        if not any(place[: len(at)] == at for place in self._unresolved):
            self._findings.error(at, text)

    def warning(self, at: KeyPath, text: str) -> None:
        self._findings.warning(at, text)

    def text(self, name: str) -> str | None:
        if (given := self._get(name)) is None:
            return None
        if not isinstance(given.value, str):
            self.error(given.at, "must be a text")
            return None
        return self._usable(given.value, given.at)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; numbers and booleans in it become texts."""
        if (given := self._get(name)) is None:
            return ()
        if not isinstance(given.value, list):
            self.error(given.at, "must be a list of texts")
            return ()
        found = [self.scalar(item, (*given.at, index)) for index, item in enumerate(given.value)]
        return tuple(text for text in found if text is not None)

    def flag(self, name: str) -> bool | None:
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
        if (given := self._get(name)) is None:
            return None
        known: Mapping[Any, T] = words
        if isinstance(given.value, str | bool) and given.value in known:
            return known[given.value]
        self.error(given.at, f"must be one of {', '.join(word for word in known if isinstance(word, str))}")
        return None

    def parsed(self, name: str, parse: Callable[[Any], T]) -> T | None:
        """What `parse` makes of the value; its ValueError is the finding."""
        if (given := self._get(name)) is None:
            return None
        try:
            return parse(given.value)
        except (ValueError, OverflowError) as error:
            self.error(given.at, str(error))
            return None

    def seconds(self, name: str) -> float | None:
        unit = self.given[name].unit if name in self.given else 1.0

        def parse(value: Any) -> float:
            return parse_duration(value) * (unit if isinstance(value, int | float) else 1.0)

        return self.parsed(name, parse)

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        if text is None:
            return None
        if not text:
            self.error(self.given[name].at, "must not be empty")
            return None
        return self.scope.path(text)

    def mapping(self, name: str, *, pairs: bool = False) -> dict[str, Given] | None:
        """The mapping's values with their places. `pairs`: a list of `NAME=value` counts as one (1MCP)."""
        if (given := self._get(name)) is None:
            return None
        if isinstance(given.value, dict):
            return {key: Given(value, (*given.at, key)) for key, value in given.value.items()}
        if not pairs or not isinstance(given.value, list):
            self.error(given.at, "must be a mapping of names to values")
            return None
        found: dict[str, Given] = {}
        for index, item in enumerate(given.value):
            key, equals, value = item.partition("=") if isinstance(item, str) else ("", "", "")
            if not equals:
                self.error((*given.at, index), "must be a text NAME=value")
            else:
                found[key] = Given(value, (*given.at, index))
        return found

    def scalar(self, value: Any, at: KeyPath) -> str | None:
        """A text, number or boolean as the text it was written as."""
        if isinstance(value, str):
            return self._usable(value, at)
        if isinstance(value, bool):
            written = self._written.get(at, "")
            # YAML reads `no` and `on` as booleans; whoever wrote them meant the words.
            return written if written.lower() not in ("", "true", "false") else str(value).lower()
        if (isinstance(value, int) and value.bit_length() <= 64) or (isinstance(value, float) and math.isfinite(value)):
            return self._written.get(at) or str(value)
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        self.error(at, "must be a text")
        return None

    def _get(self, name: str) -> Given | None:
        given = self.given.get(name)
        return None if given is None or given.value is None else given

    def _usable(self, text: str, at: KeyPath) -> str | None:
        """The system refuses a NUL in what a process is started with, and what no encoding can hold."""
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            self.error(at, "holds half of a surrogate pair")
            return None
        if "\0" in text:
            self.error(at, "holds a NUL character")
            return None
        return text
