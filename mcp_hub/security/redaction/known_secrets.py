"""Replaces the secrets that the hub knows in a text, in every form that SECURITY.md names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcp_hub.security.redaction.heuristics import MASK
from mcp_hub.security.redaction.secret_index import (
    MIN_SECRET,
    PIECE,
    SecretIndex,
    Span,
    decodings,
    has_escapes,
    squeezed,
    unescaped_with_places,
)

MAX_LEARNED: Final = 256
"""Tokens live for minutes or hours, and a server that has some has two."""
MAX_HELD: Final = 1024
"""Values that are kept for one owner: more than the presets of any directory of tools."""

_SPELLING: Final = 12
"""Characters that an encoded or escaped character usually takes at most."""
_BLANKS: Final = re.compile(r"\s+")
_SEPARATORS: Final = re.compile(r"[\s:,;.|_-]+(?:0[xX])?")
_GROUPS: Final = (
    r"[0-9a-fA-F]{3}|[0-9a-fA-F])(?:[\s:,;.|_-]{1,3}(?:0[xX])?[0-9a-fA-F]{2}(?:[0-9a-fA-F]{2})?(?![0-9a-fA-F])){2}"
)
_HEX_GROUPS: Final = re.compile(rf"[0-9a-fA-F](?:{_GROUPS}")
"""Three groups of one or two bytes in hexadecimal. Words are hardly ever three such groups in a row."""
_ASCII_GROUPS: Final = re.compile(rf"[0-7](?:{_GROUPS}")
"""The same for ASCII secrets. It begins with a digit below 8, which makes it faster."""
_MIN_GROUPS: Final = 14
"""Characters the shortest secret takes in such groups."""


class KnownSecrets:
    """Values that must not be shown. Their index is made at the first use."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in (secret, secret.strip(), *map(str.strip, secret.splitlines()))}
        self._values = {part for part in parts if len(part) >= MIN_SECRET}
        self._numbers = frozenset(value for value in self._values if value[-1].isdigit())
        self._groups = _ASCII_GROUPS if all(map(str.isascii, self._values)) else _HEX_GROUPS
        longest = min(max(map(len, self._values), default=0), PIECE)
        self.reach = longest * _SPELLING
        """Characters of a text that a secret, or a piece of a long one, takes at most."""

    @cached_property
    def _forms(self) -> SecretIndex:
        return SecretIndex(self._values)

    def contains(self, number: float) -> bool:
        """Returns whether a number equals one of the secrets."""
        return bool(self._numbers) and str(number) in self._numbers

    def mask(self, text: str, *, cut: bool = False) -> str:
        """Returns `text` with `***` in place of secrets; the same object where there are none.

        With `cut` the beginning of a secret before a `…` counts too. Do not use it for what goes back to a caller, who
        could find a secret by it, character by character.
        """
        if not self._values or len(text) < MIN_SECRET:
            return text
        if self._forms.absent(text) and text.isprintable() and self._is_simple(text):
            return text
        if self._spans(text, cut=cut) or (has_escapes(text) and any(map(self._spans, decodings(text)))):
            return _masked(text, self._all_spans(text, cut=cut))
        return text

    def _is_simple(self, text: str) -> bool:
        """Returns whether a text of one line has neither escapes nor groups of hexadecimal digits."""
        return not has_escapes(text) and (len(text) < _MIN_GROUPS or self._groups.search(text) is None)

    def _all_spans(self, text: str, *, cut: bool) -> list[Span]:
        """Returns where secrets stand in a text, escaped or not."""
        found = self._spans(text, cut=cut)
        view, places = text, list(range(len(text) + 1))
        for _ in decodings(text):
            view, places = unescaped_with_places(view, places)
            found += [_in_escaped(places, span) for span in self._spans(view)]
        return found

    def _spans(self, text: str, *, cut: bool = False) -> list[Span]:
        """Returns where secrets stand in a text: whole, broken by line ends, or in groups of hexadecimal digits."""
        found = self._forms.spans(text, cut=cut)
        if ("\n" in text or "\r" in text) and self._forms.spans(squeezed(text)):
            kept, places = _without(_BLANKS, text)
            spans = [_in_whole(places, span) for span in self._forms.spans(kept)]
            found += [(start, end) for start, end in spans if not {"\n", "\r"}.isdisjoint(text[start:end])]
        if len(text) >= _MIN_GROUPS and self._groups.search(text) is not None:
            kept, places = _without(_SEPARATORS, text)
            found += [_in_whole(places, span) for span in self._forms.spans(kept, hex_only=True)]
        return found


class LearnedSecrets:
    """Secrets that the hub learns while it runs: tokens, and presets of functions in other processes.

    It can be used from any thread.
    """

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()
        self._held: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
        self.known = KnownSecrets(())
        """The secrets that were learned up to now."""

    def learn(self, *values: str | None) -> None:
        """Adds secrets. Beyond `MAX_LEARNED` the oldest are forgotten."""
        new = tuple(value for value in values if value and value not in self._values)
        if new:
            self._values = (*self._values, *new)[-MAX_LEARNED:]
            self._renew()

    def hold(self, owner: object, values: Iterable[str]) -> None:
        """Keeps the last `MAX_HELD` of these values as long as `owner` lives. They replace those that it had before."""
        held = tuple(dict.fromkeys(values))[-MAX_HELD:]
        if held != self._held.get(owner, ()):
            self._held[owner] = held
            self._renew()

    def _renew(self) -> None:
        self.known = KnownSecrets((*self._values, *(value for held in list(self._held.values()) for value in held)))


LEARNED: Final = LearnedSecrets()
"""The secrets that this process has learned. Every Redactor replaces them."""


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """Returns `text` without what a pattern matches, and where each character of it, and its end, comes from."""
    kept: list[str] = []
    places: list[int] = []
    done = 0
    for found in pattern.finditer(text):
        kept.append(text[done : found.start()])
        places += range(done, found.start())
        done = found.end()
    kept.append(text[done:])
    places += range(done, len(text) + 1)
    return "".join(kept), places


def _in_whole(places: list[int], span: Span) -> Span:
    """Returns the span from the first character to the end of the last."""
    return places[span[0]], places[span[1] - 1] + 1


def _in_escaped(places: list[int], span: Span) -> Span:
    """Returns the span from the first character to the next one, as one escape may stand for several characters."""
    start, end = span
    while end < len(places) - 1 and places[end] == places[end - 1]:
        end += 1
    return places[start], places[end]


def _masked(text: str, spans: list[Span]) -> str:
    kept: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            kept += text[done:start], MASK
        done = max(done, end)
    return "".join((*kept, text[done:]))
