"""What is wrong or odd in a configuration file: every finding on a line of its own, with its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

KeyPath = tuple[str | int, ...]
"""The keys and list positions that lead from the top of the document to a value."""

_PLAIN_KEY: Final = re.compile(r"[^\s.:\[\]'\"]+")
_CLOSE_ENOUGH: Final = 0.7


def dotted(at: KeyPath) -> str:
    """`servers.github.args[2]`; a key that would be misread is quoted."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = printable(part, 80)
        text += ("." if text else "") + (key if _PLAIN_KEY.fullmatch(key) else repr(key))
    return text


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that `key` is most likely a misspelling of."""
    folded = {name.lower(): name for name in sorted(known)}
    found = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=_CLOSE_ENOUGH)
    return folded[found[0]] if found else None


class Finding(msgspec.Struct, frozen=True):
    line: int | None
    text: str


class Findings:
    """Errors and warnings of one file, in the order of its lines when told.

    No text given to it may contain a value that could be a secret.
    """

    def __init__(self, file: str, line_of: Callable[[KeyPath], int | None]) -> None:
        self._file = file
        self._line_of = line_of
        self.errors: list[Finding] = []
        self.warnings: list[Finding] = []
        self.advice: list[Finding] = []
        """What works, and could be safer; for who asks."""
        self._misspelt: list[Finding] = []

    def error(self, at: KeyPath, text: str) -> None:
        self.errors.append(self._finding(at, f"{dotted(at)}: {text}" if at else text))

    def warning(self, at: KeyPath, text: str) -> None:
        self.warnings.append(self._finding(at, f"{dotted(at)}: {text}" if at else text))

    def advise(self, at: KeyPath, text: str) -> None:
        self.advice.append(self._finding(at, f"{dotted(at)}: {text}" if at else text))

    def unknown(self, at: KeyPath, known: Iterable[str]) -> None:
        """The key at `at` means nothing here."""
        near = nearest(str(at[-1]), known)
        meant = f"; did you mean '{near}'?" if near else " and is ignored"
        finding = self._finding(at, f"{dotted(at)} is not known{meant}")
        self.warnings.append(finding)
        if near:
            self._misspelt.append(finding)

    def part(self) -> Findings:
        """An empty collection of the same file, to be added by `add` once its weight is known."""
        return Findings(self._file, self._line_of)

    def add(self, part: Findings, *, errors_as_warnings: bool = False) -> None:
        (self.warnings if errors_as_warnings else self.errors).extend(part.errors)
        self.warnings.extend(part.warnings)
        self.advice.extend(part.advice)
        self._misspelt.extend(part._misspelt)

    def told(self) -> tuple[str, ...]:
        """The warnings as lines of text."""
        return self._lines(self.warnings)

    def advised(self) -> tuple[str, ...]:
        """The advice as lines of text."""
        return self._lines(self.advice)

    def wrong(self) -> tuple[str, ...]:
        """The errors as lines of text, with the misspelt keys that may be their cause."""
        return self._lines(self.errors + self._misspelt) if self.errors else ()

    def raise_errors(self, also: Iterable[str] = ()) -> None:
        """ConfigError with all errors, if there are any, and the lines `also`, which may be their cause."""
        if self.errors:
            raise ConfigError("\n".join([*self.wrong(), *also]))

    def _finding(self, at: KeyPath, text: str) -> Finding:
        return Finding(self._line_of(at), text)

    def _lines(self, findings: list[Finding]) -> tuple[str, ...]:
        ordered = sorted(findings, key=lambda finding: finding.line or 0)
        return tuple(dict.fromkeys(f"{self._where(finding.line)}: {finding.text}" for finding in ordered))

    def _where(self, line: int | None) -> str:
        return self._file if line is None else f"{self._file}:{line}"
