"""The secrets the hub knows, found in a text in every form they may have taken on the way into it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final
from urllib.parse import unquote

from mcp_hub.redaction.telltale import MASK

MIN_SECRET: Final = 6
"""Characters; shorter values are too likely to be ordinary words, replacing them would only garble the text."""

_MIN_CUT: Final = 8
"""Characters of the beginning of a secret that give it away where a text was cut."""
MAX_LEARNED: Final = 256
"""Tokens live for minutes or hours, and there are two for each server that has some."""
_LEVELS: Final = 6
"""How many encodings around each other are undone."""
_CUT: Final = "…"
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|([\"'/bfnrt\\]))")
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class KnownSecrets:
    """Values that must not be shown: as they are, in base64 at any offset, percent-encoded, escaped as JSON does."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {part for secret in secrets for part in (secret, secret.strip(), *map(str.strip, secret.splitlines()))}
        self._forms = sorted({form for value in values if len(value) >= MIN_SECRET for form in _forms(value)})
        self._by_start: dict[str, list[str]] = {}
        for form in self._forms:
            self._by_start.setdefault(form[:MIN_SECRET], []).append(form)
        self._disguised: dict[str, re.Pattern[str]] = {}
        self.longest = max(map(len, self._forms), default=0)
        """Characters of the longest form."""

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        # Compiled at the first use, which is after the hub's first answer.
        return re.compile(_any_of(sorted(self._by_start)))

    def hidden(self, text: str, *, cut: bool = False) -> str:
        """`text` with `***` in their places; itself where there is none.

        With `cut` the beginning of one before a `…` counts too. Not for what goes back to a caller, who could find
        a secret out by it, character by character.
        """
        if not self._forms or len(text) < MIN_SECRET:
            return text
        if self._starts.search(text) is not None:
            text = self._without(text, cut)
        if "%" in text or "\\" in text:
            text = self._without_disguised(text)
        return text

    def _without(self, text: str, cut: bool) -> str:
        kept: list[str] = []
        done, at = 0, self._starts.search(text)
        while at is not None:
            end = self._end_of_secret(text, at.start(), cut)
            if end is not None:
                if at.start() >= done:
                    kept += text[done : at.start()], MASK
                done = max(done, end)
            at = self._starts.search(text, at.start() + 1)
        return "".join((*kept, text[done:])) if kept else text

    def _end_of_secret(self, text: str, start: int, cut: bool) -> int | None:
        """Where the longest secret that begins at `start` ends, or the text was cut in the middle of one."""
        forms = self._by_start[text[start : start + MIN_SECRET]]
        ends = [start + len(form) for form in forms if text.startswith(form, start)]
        if ends or not cut:
            return max(ends, default=None)
        end = text.find(_CUT, start + _MIN_CUT, start + self.longest)
        return end if end >= 0 and any(form.startswith(text[start:end]) for form in forms) else None

    def _without_disguised(self, text: str) -> str:
        """Secrets of which some characters are percent-encoded or escaped, in whatever mixture."""
        forms = {form for plain in _undone(text) for form in self._within(plain)}
        for form in sorted(forms, key=len, reverse=True):
            text = self._disguise(form).sub(MASK, text)
        if forms and any(self._within(plain) for plain in _undone(text)):
            return MASK
        return text

    def _within(self, text: str) -> list[str]:
        if self._starts.search(text) is None:
            return []
        return [form for form in self._forms if form in text]

    def _disguise(self, form: str) -> re.Pattern[str]:
        if form not in self._disguised:
            self._disguised[form] = re.compile("".join(map(_any_spelling, form)), re.IGNORECASE)
        return self._disguised[form]


class LearnedSecrets:
    """Secrets that come up while the hub runs: tokens it is given. Can be used from any thread."""

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()
        self.known = KnownSecrets(())
        """What has been learned up to now."""

    def learn(self, *values: str | None) -> None:
        """Take them in; beyond `MAX_LEARNED` the oldest are forgotten."""
        new = tuple(value for value in values if value and value not in self._values)
        if new:
            self._values = (*self._values, *new)[-MAX_LEARNED:]
            self.known = KnownSecrets(self._values)


LEARNED: Final = LearnedSecrets()
"""Those of this process: whoever hides secrets hides these too."""


def _forms(value: str) -> Iterator[str]:
    yield value
    if " " in value:
        yield value.replace(" ", "+")
    data = value.encode("utf-8", "surrogatepass")
    for offset in range(3):
        # Only what does not depend on the bytes around it.
        first, last = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        core = base64.b64encode(bytes(offset) + data).decode()[first:last]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _any_of(words: list[str]) -> str:
    """A pattern for any of some words of one length, as a tree, so that no place is compared with all of them."""
    if len(words) == 1 or not words[0]:
        return re.escape(words[0])
    branches: dict[str, list[str]] = {}
    for word in words:
        branches.setdefault(word[0], []).append(word[1:])
    return "(?:" + "|".join(re.escape(first) + _any_of(rest) for first, rest in branches.items()) + ")"


def _undone(text: str) -> Iterator[str]:
    """`text` with percent-encodings and backslash escapes taken off, in any order: a secret may hold a `%`."""
    known, level = {text}, [text]
    for _ in range(_LEVELS):
        found = [plain for one in level for plain in (unquote(one), _unescaped(one))]
        level = [plain for plain in dict.fromkeys(found) if plain not in known]
        known.update(level)
        yield from level


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(_unescape, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescape(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return _SHORT.get(found[4], found[4])
    number = int(code, 16)
    return chr(number) if number < 0x110000 else found[0]


def _any_spelling(char: str) -> str:
    """A pattern for one character, however it is encoded or escaped."""
    percent = "".join(f"%(?:25)*{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    units = char.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\{{1,8}}u{units[n : n + 4]}" for n in range(0, len(units), 4))
    ways = [rf"\\{{0,8}}(?-i:{re.escape(char)})", percent, escaped]
    if ord(char) < 0x100:
        ways.append(rf"\\{{1,8}}x{ord(char):02x}")
    ways += [rf"\\{{1,8}}{letter}" for letter, meant in _SHORT.items() if meant == char]
    return f"(?:{'|'.join(ways)})"
