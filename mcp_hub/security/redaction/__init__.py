"""Redaction: makes short copies of arguments, texts and errors without secrets.

It replaces the secrets that the hub knows, in every form that SECURITY.md names, and texts that are likely secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from json.encoder import encode_basestring_ascii
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcp_hub.protocol.frames import LARGE, weighs_more
from mcp_hub.security.redaction.heuristics import MASK, hide_likely_secrets, is_secret_key
from mcp_hub.security.redaction.secret_index import (
    CUT,
    MIN_SECRET,
    PIECE,
    SecretIndex,
    Span,
    decodings,
    has_escapes,
    squeezed,
    unescaped_with_positions,
)

__all__ = [
    "LEARNED",
    "MASK",
    "MAX_HELD",
    "MIN_SECRET",
    "KnownSecrets",
    "Redactor",
    "is_secret_key",
    "preset_texts",
]

MAX_LEARNED: Final = 256
"""Learned secrets that are kept. Tokens live for minutes or hours, and a server has at most two."""
MAX_HELD: Final = 1024
"""Values that are kept for one owner, more than any directory of tools has presets."""

_SPELLING: Final = 12
"""The most characters that one encoded or escaped character usually takes."""
_BLANKS: Final = re.compile(r"\s+")
_SEPARATORS: Final = re.compile(r"[\s:,;.|_-]+(?:0[xX])?")
_GROUPS: Final = (
    r"[0-9a-fA-F]{3}|[0-9a-fA-F])(?:[\s:,;.|_-]{1,3}(?:0[xX])?[0-9a-fA-F]{2}(?:[0-9a-fA-F]{2})?(?![0-9a-fA-F])){2}"
)
_HEX_GROUPS: Final = re.compile(rf"[0-9a-fA-F](?:{_GROUPS}")
"""Three groups of one or two bytes in hexadecimal. Ordinary words hardly ever look like this."""
_ASCII_GROUPS: Final = re.compile(rf"[0-7](?:{_GROUPS}")
"""The same for ASCII secrets. It begins with a digit below 8, which makes it faster."""
_MIN_GROUPS: Final = 14
"""Characters that the shortest secret takes in such groups."""


class KnownSecrets:
    """Values that must not be shown. Their index is made at the first use."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in (secret, secret.strip(), *map(str.strip, secret.splitlines()))}
        self._values = {part for part in parts if len(part) >= MIN_SECRET}
        self._numbers = frozenset(value for value in self._values if value[-1].isdigit())
        self._groups = _ASCII_GROUPS if all(map(str.isascii, self._values)) else _HEX_GROUPS
        longest = min(max(map(len, self._values), default=0), PIECE)
        self.reach = longest * _SPELLING
        """The most characters of a text that a secret, or a piece of a long one, takes."""

    @cached_property
    def _forms(self) -> SecretIndex:
        return SecretIndex(self._values)

    def contains(self, number: float) -> bool:
        """Returns whether a number equals one of the secrets."""
        return bool(self._numbers) and str(number) in self._numbers

    def mask(self, text: str, *, cut: bool = False) -> str:
        """Returns `text` with `***` in place of secrets; the same object if it has none.

        With `cut` the beginning of a secret before a `…` counts too. Do not use `cut` for responses: a caller could
        find out a secret with it, character by character.
        """
        if not self._values or len(text) < MIN_SECRET:
            return text
        if self._forms.absent(text, cut=cut) and text.isprintable() and self._is_simple(text):
            return text
        if self._spans(text, cut=cut) or (has_escapes(text) and any(map(self._spans, decodings(text)))):
            return _masked(text, self._all_spans(text, cut=cut))
        return text

    def _is_simple(self, text: str) -> bool:
        """Returns whether a text of one line has neither escapes nor groups of hexadecimal digits."""
        return not has_escapes(text) and (len(text) < _MIN_GROUPS or self._groups.search(text) is None)

    def _all_spans(self, text: str, *, cut: bool) -> list[Span]:
        """Returns the spans of secrets in a text, escaped or not."""
        spans = self._spans(text, cut=cut)
        view, positions = text, list(range(len(text) + 1))
        for _ in decodings(text):
            view, positions = unescaped_with_positions(view, positions)
            spans += [_in_escaped(positions, span) for span in self._spans(view)]
        return spans

    def _spans(self, text: str, *, cut: bool = False) -> list[Span]:
        """Returns the spans of secrets in a text: whole, broken by line ends, or in groups of hexadecimal digits."""
        spans = self._forms.spans(text, cut=cut)
        if ("\n" in text or "\r" in text) and self._forms.spans(squeezed(text)):
            stripped, positions = _without(_BLANKS, text)
            stripped_spans = [_in_unstripped(positions, span) for span in self._forms.spans(stripped)]
            spans += [(start, end) for start, end in stripped_spans if not {"\n", "\r"}.isdisjoint(text[start:end])]
        if len(text) >= _MIN_GROUPS and self._groups.search(text) is not None:
            stripped, positions = _without(_SEPARATORS, text)
            spans += [_in_unstripped(positions, span) for span in self._forms.spans(stripped, hex_only=True)]
        return spans


class LearnedSecrets:
    """Secrets that the hub learns while it runs: tokens, and presets of functions in other processes.

    It can be used from any thread.
    """

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()
        self._values_by_owner: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
        self.current = KnownSecrets(())
        """The secrets that were learned up to now."""

    def learn(self, *values: str | None) -> None:
        """Adds secrets. Beyond `MAX_LEARNED` the oldest are forgotten."""
        new = tuple(value for value in values if value and value not in self._values)
        if new:
            self._values = (*self._values, *new)[-MAX_LEARNED:]
            self._renew()

    def hold(self, owner: object, values: Iterable[str]) -> None:
        """Keeps the last `MAX_HELD` of these values while `owner` is alive, in place of its earlier values."""
        newest = tuple(dict.fromkeys(values))[-MAX_HELD:]
        if newest != self._values_by_owner.get(owner, ()):
            self._values_by_owner[owner] = newest
            self._renew()

    def _renew(self) -> None:
        self.current = KnownSecrets(
            (*self._values, *(value for values in list(self._values_by_owner.values()) for value in values))
        )


LEARNED: Final = LearnedSecrets()
"""The secrets that this process has learned. Every Redactor replaces them."""


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """Returns `text` without the matches of a pattern, and the position in `text` of each character and of the end."""
    parts: list[str] = []
    positions: list[int] = []
    end = 0
    for match in pattern.finditer(text):
        parts.append(text[end : match.start()])
        positions += range(end, match.start())
        end = match.end()
    parts.append(text[end:])
    positions += range(end, len(text) + 1)
    return "".join(parts), positions


def _in_unstripped(positions: list[int], span: Span) -> Span:
    """Returns the span in the original text, from the first character to the end of the last one."""
    return positions[span[0]], positions[span[1] - 1] + 1


def _in_escaped(positions: list[int], span: Span) -> Span:
    """Returns the span in the original text up to the next character, as an escape may stand for several."""
    start, end = span
    while end < len(positions) - 1 and positions[end] == positions[end - 1]:
        end += 1
    return positions[start], positions[end]


def _masked(text: str, spans: list[Span]) -> str:
    parts: list[str] = []
    masked_end = 0
    for start, end in sorted(spans):
        if start >= masked_end:
            parts += text[masked_end:start], MASK
        masked_end = max(masked_end, end)
    return "".join((*parts, text[masked_end:]))


BUDGET: Final = 2048
"""The most bytes of JSON for a copy of a call's arguments."""
MAX_STRING: Final = 200
"""Characters of one string in a copy."""
MAX_ITEMS: Final = 32
MAX_DEPTH: Final = 8
_MAX_PRESET_DEPTH: Final = 32
MAX_ERROR: Final = 1024 * 1024
"""Weight (`weighs_more`) up to which an error is searched for known secrets; a heavier one passes unchanged."""

_MARK: Final = 48
"""Bytes that are reserved for the note about omitted parts."""
_SHORT: Final = 64
"""Characters up to which a text is copied whole."""
_ROOM_FOR_SHORT: Final = 2 + 12 * _SHORT
"""The most bytes that such a text takes."""
_MANY_DIGITS: Final = 10**40
_NAMING: Final = frozenset({"name", "key", "header", "field"})
_MAX_KEYS: Final = 1024
"""Keys of objects whose shown form is cached."""


class Redactor:
    """Replaces secrets by `***`: the given ones and those of `LEARNED`, in the forms that SECURITY.md names.

    It also replaces texts that are likely secrets by their form or place. It ignores given secrets of fewer than
    `MIN_SECRET` characters. It can be used from any thread.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = KnownSecrets(secrets)
        self._keys: dict[str, tuple[str, int, bool]] = {}
        """Short key -> (its shown form, the bytes of that, whether its value is secret)."""
        self._learned = LEARNED.current
        """The learned secrets that the shown forms were made with."""

    def text(self, text: str) -> str:
        """Returns an error text or log line without secrets."""
        return hide_likely_secrets(LEARNED.current.mask(self._secrets.mask(text, cut=True), cut=True))

    def beginning(self, text: str, size: int) -> str:
        """Does what `text` does, with `…` in place of what is beyond `size` characters.

        A secret that crosses the end of what is searched is not found. So more than `size` is searched, and as much as
        one may take is left out at the end, but for those that were found.
        """
        reach = max(self._secrets.reach, LEARNED.current.reach)
        searched = 5 * size + reach
        redacted = self.text(text if len(text) <= searched else text[:searched] + CUT)
        if len(text) > searched:
            certain = max(len(redacted) - reach, redacted.rfind(MASK) + len(MASK), 0)
            return redacted[: min(size, certain)] + CUT
        return redacted if len(redacted) <= size else redacted[:size] + CUT

    def value(self, value: Any, budget: int = BUDGET) -> Any:
        """Returns a copy of a JSON value of at most `budget` bytes as ASCII JSON (at least 64).

        Long texts are shortened with a note of their length, long lists and objects with a note of how many members are
        missing. Secrets are replaced by `***`.
        """
        return self._copy(value, max(budget, 64), 0)[0]

    def redact_known(self, value: Any) -> Any:
        """Returns a JSON value in which only known secrets are replaced; the same object if it has none.

        It is for errors that are forwarded. A value that weighs more than `MAX_ERROR` is returned unchanged.
        """
        return value if weighs_more(value, MAX_ERROR) else self._known_in(value, 0)

    def known(self, text: str) -> str:
        """Returns a text in which only known secrets are replaced. A text longer than `MAX_ERROR` is unchanged."""
        return text if len(text) > MAX_ERROR else LEARNED.current.mask(self._secrets.mask(text))

    def notification(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns the parameters of a log message or a progress notification without known secrets.

        Searching more than 32 KiB would block the event loop, so a larger message is shortened to that by `value`.
        """
        redacted: dict[str, Any] = self.value(message, LARGE) if weighs_more(message) else self.redact_known(message)
        return redacted

    def _known_in(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.known(value)
        if type(value) in (int, float):
            return MASK if self._is_known(value) else value
        if depth > 100 or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            items = [self._known_in(item, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        fields = [(self._known_in(key, depth), self._known_in(item, depth + 1)) for key, item in value.items()]
        is_unchanged = all(
            new_key is key and new_item is item
            for (new_key, new_item), (key, item) in zip(fields, value.items(), strict=True)
        )
        return value if is_unchanged else dict(fields)

    def _is_known(self, number: float) -> bool:
        return -_MANY_DIGITS < number < _MANY_DIGITS and (
            self._secrets.contains(number) or LEARNED.current.contains(number)
        )

    # --- the bounded copy --------------------------------------------------------------------------------------

    def _copy(self, value: Any, room: int, depth: int) -> tuple[Any, int]:
        """Returns (a copy, its bytes of JSON)."""
        kind = type(value)
        if kind is str:
            return self._string(value, room)
        if kind is not dict and kind is not list:  # a check with `isinstance` takes longer than the rest
            if value is None or isinstance(value, bool):
                return value, 5
            if isinstance(value, str):
                return self._string(value, room)
            if isinstance(value, int | float):
                if isinstance(value, int) and not -_MANY_DIGITS < value < _MANY_DIGITS:
                    return self._string(f"… (a number of {value.bit_length():,} bits)", room)
                return (MASK, 5) if self._is_known(value) else (value, len(repr(value)))
            if not isinstance(value, Mapping | list | tuple):
                return self._string(f"… ({kind.__name__})", room)
        if value and (depth >= MAX_DEPTH or room < _MARK):
            return self._string(f"… ({len(value):,} inside)", room)
        is_object = kind is dict or (kind is not list and isinstance(value, Mapping))
        return self._object(value, room, depth) if is_object else self._list(value, room, depth)

    def _object(self, value: Mapping[str, Any], room: int, depth: int) -> tuple[dict[str, Any], int]:
        copy: dict[str, Any] = {}
        used = 2
        names_a_secret = not value.keys().isdisjoint(_NAMING) and any(
            isinstance(name := value.get(name_key), str) and is_secret_key(name) for name_key in _NAMING
        )
        for number, (key, item) in enumerate(value.items()):
            name, cost, secret = self._key(str(key), min(room - used - _MARK, MAX_STRING))
            remaining = room - used - cost - _MARK
            if number == MAX_ITEMS or remaining < _MARK:
                copy["…"] = f"{len(value) - number:,} more"
                return copy, used + _MARK
            secret = secret or (names_a_secret and key == "value")
            copy[name], size = (MASK, 5) if secret else self._copy(item, remaining, depth + 1)
            used += cost + size + 4
        return copy, used

    def _key(self, key: str, room: int) -> tuple[str, int, bool]:
        if self._learned is not LEARNED.current or len(self._keys) >= _MAX_KEYS:
            self._keys, self._learned = {}, LEARNED.current
        keys = self._keys
        cached = keys.get(key)
        if cached is None:
            if len(key) > _SHORT:
                return (*self._string(key, room), is_secret_key(key))
            cached = keys[key] = (*self._string(key, _ROOM_FOR_SHORT), is_secret_key(key))
        return cached if cached[1] <= room else (*self._string(key, room), cached[2])

    def _list(self, value: list[Any] | tuple[Any, ...], room: int, depth: int) -> tuple[list[Any], int]:
        copy: list[Any] = []
        used = 2
        for number, item in enumerate(value):
            remaining = room - used - _MARK
            if number == MAX_ITEMS or remaining < _MARK:
                copy.append(f"… {len(value) - number:,} more")
                return copy, used + _MARK
            item_copy, size = self._copy(item, remaining, depth + 1)
            copy.append(item_copy)
            used += size + 2
        return copy, used

    def _string(self, text: str, room: int) -> tuple[str, int]:
        length = len(text)
        if length <= _SHORT and room >= _ROOM_FOR_SHORT:
            redacted = self.text(text)
            if len(redacted) <= _SHORT:
                return redacted, len(encode_basestring_ascii(redacted))
        limit = MAX_STRING
        redacted = self.beginning(text, limit)
        if len(redacted) > limit or (length > limit and redacted.endswith(CUT)):
            redacted = _shorten(redacted.removesuffix(CUT), limit, length)
        cost = len(encode_basestring_ascii(redacted))
        while cost > room and limit > 0:
            limit //= 2
            redacted = _shorten(redacted, limit, length) if limit else "…"
            cost = len(encode_basestring_ascii(redacted))
        return redacted, cost


def preset_texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yields every text and number of a preset argument, because callers must not see any of them."""
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int | float) or hasattr(value, "__fspath__"):
        yield str(value)
    elif isinstance(value, Mapping | list | tuple | set | frozenset) and depth < _MAX_PRESET_DEPTH:
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from preset_texts(item, depth + 1)


def _shorten(text: str, limit: int, length: int) -> str:
    return f"{text[:limit]}… ({length:,} characters)"
