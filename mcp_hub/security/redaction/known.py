"""The secrets the hub knows, found in a text in every form that SECURITY.md promises."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcp_hub.security.redaction.escapes import has_escapes, levels, unescaped_with_places
from mcp_hub.security.redaction.forms import MIN_SECRET, PIECE, Forms, Span, squeezed
from mcp_hub.security.redaction.telltale import MASK

MAX_LEARNED: Final = 256
"""Tokens live for minutes or hours, and there are two for each server that has some."""
MAX_HELD: Final = 1024
"""Values that one owner can have kept: more than the tools of any directory have presets."""

_SPELLING: Final = 12
"""Characters an encoded or escaped character takes, usually at most."""
_BLANKS: Final = re.compile(r"\s+")
_SEPARATORS: Final = re.compile(r"[\s:,;.|_-]+(?:0[xX])?")
_GROUPS: Final = (
    r"[0-9a-fA-F]{3}|[0-9a-fA-F])(?:[\s:,;.|_-]{1,3}(?:0[xX])?[0-9a-fA-F]{2}(?:[0-9a-fA-F]{2})?(?![0-9a-fA-F])){2}"
)
_HEX_GROUPS: Final = re.compile(rf"[0-9a-fA-F](?:{_GROUPS}")
"""Three groups of one or two bytes in hexadecimal; words of a language are hardly ever three such groups in a row."""
_ASCII_GROUPS: Final = re.compile(rf"[0-7](?:{_GROUPS}")
"""The same where all bytes are ASCII: found faster, since it begins with a digit."""
_MIN_GROUPS: Final = 14
"""Characters the shortest secret takes in such groups."""


class KnownSecrets:
    """Values that must not be shown; what is looked for is made of them at the first use."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in (secret, secret.strip(), *map(str.strip, secret.splitlines()))}
        self._values = {part for part in parts if len(part) >= MIN_SECRET}
        self._numbers = frozenset(value for value in self._values if value[-1].isdigit())
        self._groups = _ASCII_GROUPS if all(map(str.isascii, self._values)) else _HEX_GROUPS
        longest = min(max(map(len, self._values), default=0), PIECE)
        self.reach = longest * _SPELLING
        """Characters of a text that a secret, or a piece of a long one, takes at most."""

    @cached_property
    def _forms(self) -> Forms:
        return Forms(self._values)

    def has(self, number: float) -> bool:
        """Whether a number is one of them."""
        return bool(self._numbers) and str(number) in self._numbers

    def hidden(self, text: str, *, cut: bool = False) -> str:
        """`text` with `***` in their places; itself where there is none.

        With `cut` the beginning of one before a `…` counts too. Not for what goes back to a caller, who could find
        a secret out by it, character by character.
        """
        if not self._values or len(text) < MIN_SECRET:
            return text
        if self._forms.absent(text) and text.isprintable() and self._is_simple(text):
            return text
        if self._spans(text, cut=cut) or (has_escapes(text) and any(map(self._spans, levels(text)))):
            return _masked(text, self._all_spans(text, cut=cut))
        return text

    def _is_simple(self, text: str) -> bool:
        """Whether there are neither escapes nor groups of hexadecimal digits in a text of one line."""
        return not has_escapes(text) and (len(text) < _MIN_GROUPS or self._groups.search(text) is None)

    def _all_spans(self, text: str, *, cut: bool) -> list[Span]:
        """Where in a text they are, whatever escapes they are in."""
        found = self._spans(text, cut=cut)
        view, places = text, list(range(len(text) + 1))
        for _ in levels(text):
            view, places = unescaped_with_places(view, places)
            found += [_in_escaped(places, span) for span in self._spans(view)]
        return found

    def _spans(self, text: str, *, cut: bool = False) -> list[Span]:
        """Where in a text they are as they are, broken by line ends, or in groups of hexadecimal digits."""
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
    """Secrets that come up while the hub runs: tokens it is given, presets of functions in other processes.

    Can be used from any thread.
    """

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()
        self._held: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
        self.known = KnownSecrets(())
        """What has been learned up to now."""

    def learn(self, *values: str | None) -> None:
        """Take them in; beyond `MAX_LEARNED` the oldest are forgotten."""
        new = tuple(value for value in values if value and value not in self._values)
        if new:
            self._values = (*self._values, *new)[-MAX_LEARNED:]
            self._renew()

    def hold(self, owner: object, values: Iterable[str]) -> None:
        """Keep the last `MAX_HELD` of these values as long as `owner` lives, in the place of those it had before."""
        held = tuple(dict.fromkeys(values))[-MAX_HELD:]
        if held != self._held.get(owner, ()):
            self._held[owner] = held
            self._renew()

    def _renew(self) -> None:
        self.known = KnownSecrets((*self._values, *(value for held in list(self._held.values()) for value in held)))


LEARNED: Final = LearnedSecrets()
"""Those of this process: whoever hides secrets hides these too."""


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """`text` without what a pattern matches, and where each character of it, and its end, comes from."""
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
    """From the place of the first character to the end of the last."""
    return places[span[0]], places[span[1] - 1] + 1


def _in_escaped(places: list[int], span: Span) -> Span:
    """From the place of the first character to where the next one begins, which the same escape may stand for."""
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
