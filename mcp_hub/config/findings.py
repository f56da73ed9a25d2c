"""Findings: the errors, warnings and advice about a configuration file, each with its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

KeyPath = tuple[str | int, ...]
"""The keys and list positions that lead from the top of a document to a value."""

_ELSEWHERE: Final = {
    "allowaddresses": "web.allow_addresses at the top of the file",
    "docintelendpoint": "web.docintel_endpoint at the top of the file",
    "maxmemory": "web.max_memory at the top of the file",
    **dict.fromkeys((
        "disabletools", "disabledtools", "disallowedtools", "excludetools", "denytools", "deniedtools", "blocktools",
        "blockedtools", "forbiddentools", "hidetools", "hiddentools", "denylist", "blocklist",
    ), "disable_tools in the entry of the server"),
    **dict.fromkeys((
        "enabletools", "enabledtools", "allowtools", "allowedtools", "includetools", "allowlist", "whitelist",
    ), "enable_tools in the entry of the server"),
    **{name: f"{name} in the entry of the server" for name in ("confirm", "limits", "preset", "retry")},
    "guard": "guard at the top of the file",
    "denyurls": "guard.deny_urls at the top of the file",
}  # fmt: skip
"""Keys in another place than their own, and words of other programs for rules, without `_` -> what to write."""
REMOVED_ROOTS: Final = {
    "expose_recent": "it has no effect any more; write the tools that are always listed as expose_always",
}
"""Keys of the root that the hub once had -> what to write in their place."""
_PLAIN_KEY: Final = re.compile(r"[^\s.:\[\]'\"]+")
_MIN_SIMILARITY: Final = 0.7
MAX_EDITS: Final = 2
_SHORT: Final = 4
"""Letters of keys that are another word when two letters change."""


def dotted(at: KeyPath) -> str:
    """Returns a place as `servers.github.args[2]`. A key that would be misread is quoted."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = printable(part, 80)
        text += ("." if text else "") + (key if _PLAIN_KEY.fullmatch(key) else repr(key))
    return text


def nearest(key: str, known: Iterable[str]) -> str | None:
    """Returns the known key that `key` is most likely a misspelling of; None if there is none."""
    folded = {name.lower(): name for name in sorted(known)}
    matches = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=_MIN_SIMILARITY)
    return folded[matches[0]] if matches else None


def misspelt(key: str, known: Iterable[str]) -> str | None:
    """Returns the known key that `key` is but for one or two letters, their order or case; None if there is none."""
    folded = key.lower().replace("-", "_")
    distances = {name: _edits(folded, name.lower()) for name in known if abs(len(name) - len(key)) <= MAX_EDITS}
    close = [name for name, edits in distances.items() if edits <= (MAX_EDITS if len(name) > _SHORT else 1)]
    return min(close, key=lambda name: (distances[name], name), default=None)


def _edits(text: str, other: str) -> int:
    """Returns how many letters must be added, taken away, replaced or exchanged with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(text):
        following = [i + 1]
        for j, wanted in enumerate(other):
            edits = min(row[j] + (letter != wanted), row[j + 1] + 1, following[j] + 1)
            if i and j and letter == other[j - 1] and text[i - 1] == wanted:
                edits = min(edits, before[j - 1] + 1)
            following.append(edits)
        before, row = row, following
    return row[-1]


Place = Callable[[KeyPath], tuple[str, int | None]]
"""Returns the file that a key is in, and its line, if known."""


class FileFinding(msgspec.Struct, frozen=True):
    """One message about a configuration file, and the line that it is about, if known."""

    file: str
    line: int | None
    text: str
    code: str = codes.VALUE_WRONG


class Findings:
    """Collects the errors, warnings and advice about files, and returns them in the order of their lines.

    No text that is added may contain a value that could be a secret.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.errors: list[FileFinding] = []
        self.warnings: list[FileFinding] = []
        self.advice: list[FileFinding] = []
        """Advice on settings that work but could be safer. `check` shows it."""
        self._beside: list[FileFinding] = []
        """The warnings that are told with errors: misspelt keys, which may be the cause, and faults of entries."""

    def error(self, at: KeyPath, text: str, code: str = codes.VALUE_WRONG) -> None:
        """Adds an error about the key at `at`."""
        self.errors.append(self._finding(at, f"{dotted(at)}: {text}" if at else text, code))

    def warning(self, at: KeyPath, text: str, code: str = codes.VALUE_WRONG) -> None:
        """Adds a warning about the key at `at`."""
        self.warnings.append(self._finding(at, f"{dotted(at)}: {text}" if at else text, code))

    def advise(self, at: KeyPath, text: str, code: str = codes.VALUE_WRONG) -> None:
        """Adds advice about the key at `at`."""
        self.advice.append(self._finding(at, f"{dotted(at)}: {text}" if at else text, code))

    def unknown(self, at: KeyPath, known: Iterable[str], rules: Iterable[str] = ()) -> None:
        """Warns that the key at `at` is unknown, and names its right place, or a known key of similar name.

        A misspelling of one of the `rules` is an error, as nothing would be refused. So is a rule in a wrong place,
        or in a word of another program.
        """
        if (rule := misspelt(str(at[-1]), rules)) is not None:
            self.error(at, f"is not known; did you mean '{rule}'?", codes.KEY_UNKNOWN)
            return
        if (location := _ELSEWHERE.get(re.sub("[_-]", "", str(at[-1]).lower()))) is not None:
            is_rule = rules and not location.startswith("web.")
            add = self.error if is_rule else self.warning
            add(at, f"has no effect here; write it as {location}", codes.KEY_UNKNOWN)
            return
        if len(at) == 1 and (advice := REMOVED_ROOTS.get(str(at[0]))) is not None:
            self.warning(at, advice, codes.KEY_UNKNOWN)
            return
        suggestion = nearest(str(at[-1]), known)
        hint = f"; did you mean '{suggestion}'?" if suggestion else " and is ignored"
        finding = self._finding(at, f"{dotted(at)} is not known{hint}", codes.KEY_UNKNOWN)
        self.warnings.append(finding)
        if suggestion:
            self._beside.append(finding)

    def part(self) -> Findings:
        """Returns empty findings of the same files. `add` adds them later, as errors or as warnings."""
        return Findings(self.place)

    def add(self, part: Findings, *, errors_as_warnings: bool = False) -> None:
        """Adds the findings of a `part`, on request with its errors as warnings."""
        (self.warnings if errors_as_warnings else self.errors).extend(part.errors)
        self.warnings.extend(part.warnings)
        self.advice.extend(part.advice)
        self._beside.extend(part._beside)

    def switch_off(self, at: KeyPath) -> CodedText:
        """Makes one warning of the errors: that the entry at `at` is switched off. Returns the reason."""
        own = dotted(at)
        errors = [error for error in self.errors if error.text.startswith(own)] or self.errors  # else of `defaults`
        texts = [error.text.removeprefix(own).removeprefix(".").removeprefix(": ") for error in errors]
        reason = CodedText("; ".join(dict.fromkeys(texts)), errors[0].code)
        finding = msgspec.structs.replace(errors[0], text=f"{own}: is switched off: {reason}")
        self.warnings.append(finding)
        self._beside.append(finding)
        self.errors.clear()
        return reason

    def warning_lines(self) -> tuple[CodedText, ...]:
        """Returns the warnings as lines of text."""
        return self._lines(self.warnings)

    def advice_lines(self) -> tuple[CodedText, ...]:
        """Returns the advice as lines of text."""
        return self._lines(self.advice)

    def error_lines(self) -> tuple[CodedText, ...]:
        """Returns the errors as lines of text, with the warnings that are told with them."""
        return self._lines(self.errors + self._beside) if self.errors else ()

    def raise_errors(self, also: Iterable[str] = ()) -> None:
        """Raises ConfigError with all errors if there are any, and with the lines `also`, which may be their cause."""
        if self.errors:
            own, extra_lines = self.error_lines(), tuple(also)
            line_codes = [*(line.code for line in own), *(codes.FILE_LEFT_OUT for _ in extra_lines)]
            raise ConfigError("\n".join([*own, *extra_lines]), *line_codes)

    def _finding(self, at: KeyPath, text: str, code: str) -> FileFinding:
        return FileFinding(*self.place(at), text, code)

    @staticmethod
    def _lines(findings: list[FileFinding]) -> tuple[CodedText, ...]:
        files = list(dict.fromkeys(finding.file for finding in findings))
        ordered = sorted(findings, key=lambda finding: (files.index(finding.file), finding.line or 0))
        return tuple(
            dict.fromkeys(CodedText(f"{_location(finding)}: {finding.text}", finding.code) for finding in ordered)
        )


def _location(finding: FileFinding) -> str:
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"


def only_known(
    values: Mapping[str, Any], known: Iterable[str], at: KeyPath, findings: Findings, rules: Iterable[str] = ()
) -> dict[str, Any]:
    """Returns `values` without the keys that are not `known`, and warns of each of those (`Findings.unknown`)."""
    names = set(known)
    for key in values:
        if key not in names and not is_remark(key):
            findings.unknown((*at, key), names, rules)
    return {key: value for key, value in values.items() if key in names}


def is_remark(key: str) -> bool:
    """Returns whether a key is only a comment in JSON, or holds anchors in YAML."""
    return key.startswith(("_", "//", "#", "x-", "$comment"))
