"""Finds characters that are invisible or control a terminal, and replaces them by escapes; names unusable codecs."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from typing import Final, Literal

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that are invisible or control a terminal: controls, bidi marks, tags, surrogates, separators."""

NOT_TEXT_CODECS: Final = frozenset({"punycode", "idna", "undefined"})
"""Codecs that Python counts as encodings of text, though no document has them. The time that the first one takes grows
with the square of the text."""


def printable(text: str, limit: int = 500) -> str:
    r"""Returns `text` on one line, with hidden characters as \xNN or \uNNNN escapes, cut to `limit` characters."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(char if unicodedata.category(char) not in _HIDDEN else _escape(char) for char in cut)
    if not cut.isascii():
        cut = _INVISIBLE_BUT_STYLES.sub(_escaped_match, cut)
    return cut + "…" if len(text) > limit else cut


def quoted(text: str) -> str:
    """Returns a foreign text as a block quote of Markdown, so that no line of it looks like one of the hub's own.

    Headings, rules, open code blocks and HTML end with the quote. Whatever some reader takes for a line end is one.
    """
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def with_ends(text: str) -> str:
    """Returns a text of Markdown with the end of an open code block or comment, so that other text can follow."""
    end = ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if end == "-->":
            end = "" if end in line else end
        elif end:
            end = "" if fence is not None and fence[1].startswith(end) and not fence[2].strip() else end
        elif fence is not None:
            end = fence[1]
        elif line.rfind("<!--") > line.rfind("-->"):
            end = "-->"
    return f"{text}\n{end}" if end else text


def _escape(char: str) -> str:
    if char == "\t":
        return " "
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_escaped(text: str, keep: str = "") -> str:
    """Returns a JSON text in which characters that cannot be seen are JSON escapes, except those in `keep`."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(char if _is_seen(char) or char in keep else json.dumps(char)[1:-1] for char in text)


def base64url(data: bytes) -> str:
    """Returns bytes as a text for URLs and ids, without the `=` at its end."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def base64url_bytes(text: str) -> bytes:
    """Returns the bytes of a text of `base64url`, of which each value has one only. Raises ValueError for others."""
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if base64url(data) != text:
        raise ValueError("another text has this value")
    return data


def new_lines(before: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """Returns the lines of `now` that were added after `before`. Both are the last few lines of a growing text."""
    for skipped in range(len(before) + 1):
        overlap = before[skipped:]
        if tuple(now[: len(overlap)]) == tuple(overlap):
            return now[len(overlap) :]
    return now


CONTROL: Final = "control-characters"
BIDI: Final = "bidi-characters"
INVISIBLE: Final = "invisible-characters"
TAGS: Final = "tag-characters"

_LAYOUT: Final = frozenset("\t\n\r")
"""Allowed in a text of several lines, but not in a name."""
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MARKS: Final = frozenset("\u061c\u200e\u200f")
"""Marks that right-to-left scripts may need."""
_JOINERS: Final = frozenset("\u200c\u200d")
"""Used in Arabic, Persian and Indic scripts, and in composed emoji."""
_EMOJI_STYLE: Final = frozenset("\ufe0e\ufe0f")
_FILLERS: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
_INVISIBLE: Final = re.compile(f"[{_FILLERS}\ufe0e\ufe0f]")
"""Characters that cannot be seen, though they are letters, marks or symbols by category: fillers, the empty Braille
cell, the grapheme joiner, variation selectors. With those of `_HIDDEN` they are Unicode's Default_Ignorable_Code_Point.
"""
_INVISIBLE_BUT_STYLES: Final = re.compile(
    f"[{_FILLERS}]|(?<![\xa9\xae\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f](?!\u20e3)"
)
"""The same without the styles of emoji, which belong to the symbol before them, or to a keycap after them."""
_FIRST_WITH_JOINERS: Final = 0x0600
"""Scripts before this code point (Latin, Greek, Cyrillic) use no joiners."""
_RTL: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_IGNORED: Final = frozenset({"Cf", "Cc", "Cn"})

_STEP: Final = 1024
"""Characters of one step, which take a few milliseconds at most."""

_LOOKALIKES: Final = str.maketrans({
    "\u0430": "a", "\u0435": "e", "\u043e": "o", "\u0440": "p", "\u0441": "c", "\u0443": "y", "\u0445": "x",
    "\u0455": "s", "\u0456": "i", "\u0458": "j", "\u04bb": "h", "\u0501": "d", "\u0410": "A", "\u0412": "B",
    "\u0415": "E", "\u041a": "K", "\u041c": "M", "\u041d": "H", "\u041e": "O", "\u0420": "P", "\u0421": "C",
    "\u0422": "T", "\u0425": "X", "\u0406": "I", "\u03b1": "a", "\u03bf": "o", "\u03bd": "v", "\u03c1": "p",
    "\u03b9": "i", "\u0391": "A", "\u0395": "E", "\u0399": "I", "\u039f": "O", "\u03a1": "P", "\u03a4": "T",
    "\u043a": "k", "\u051b": "q", "\u051d": "w", "\u0261": "g", "\u0131": "i", "\u0585": "o", "\u057d": "u",
    "\u0570": "h", "\u03ba": "k", "\u03c4": "t", "\u03c5": "u", "\u039a": "K", "\u039c": "M", "\u039d": "N",
    "\u0392": "B", "\u0396": "Z", "\u0397": "H", "\u03a5": "Y", "\u03a7": "X",
})  # fmt: skip
"""Letters of other scripts that look like Latin ones, a part of https://www.unicode.org/Public/security/16.0.0/."""


def latin_lookalike(text: str) -> str:
    """Returns a text, normalised by NFKC, with Latin letters in place of those of other scripts that look like them."""
    return normalized(text).translate(_LOOKALIKES)


def find_hidden_characters(text: str, *, name: bool = False, lines: bool = True) -> list[tuple[str, int]]:
    """Returns (kind of character, index of the first one) for each kind that the text holds.

    `name`: the text is one word, in which no invisible character has a use. `lines`: it may have several lines.
    """
    return [match for match in hidden_characters(text, name=name, lines=lines) if match is not None]


def hidden_characters(text: str, *, name: bool = False, lines: bool = True) -> Iterator[tuple[str, int] | None]:
    """Yields what `find_hidden_characters` returns, in steps of a millisecond: each kind, and None after every step."""
    if text.isprintable() and text.isascii():
        return
    right_to_left = not name and _RTL.search(text) is not None
    kinds: set[str] = set()
    for position, char in enumerate(text, 1):
        if position % _STEP == 0:
            yield None
        if char.isascii() and char.isprintable():
            continue
        if char in _LAYOUT:
            kind = None if lines and not name else CONTROL
        elif char in _MARKS and right_to_left:
            kind = None
        else:
            kind = _kind(text[position - 2] if position > 1 else "", char, name)
        if kind is not None and kind not in kinds:
            kinds.add(kind)
            yield kind, position - 1


def _is_seen(char: str) -> bool:
    return char.isprintable() and _INVISIBLE.match(char) is None


def _kind(before: str, char: str, name: bool) -> str | None:
    """Returns the kind of a character that stands after `before`, which is "" at the beginning; None if it is seen."""
    code = ord(char)
    if char in _BIDI:
        return BIDI
    if 0xE0000 <= code <= 0xE007F:
        return TAGS
    if char in _JOINERS:
        return None if not name and before and ord(before) >= _FIRST_WITH_JOINERS else INVISIBLE
    if char in _EMOJI_STYLE:
        return None if not name and before and (before in "0123456789#*" or not before.isascii()) else INVISIBLE
    if _INVISIBLE.match(char) is not None:
        return INVISIBLE
    category = unicodedata.category(char)
    if category in ("Cc", "Zl", "Zp"):
        return CONTROL
    return INVISIBLE if category in ("Cf", "Cs", "Co", "Cn") else None


_MAX_RUN: Final = 16
"""Equal blanks or escapes in a row that are shown one by one."""
_BLANK_RUNS: Final = re.compile(" {2,}")
_ESCAPES: Final = re.compile(r"(\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\x[0-9a-f]{2}|\\[^uUx])\1*")
"""Matches every escape with its repetitions, also single ones: only so is the `n` of `\\\\n` no part of an escape."""
_MANY_ESCAPES: Final = re.compile(r"(\\(?:u.{4}|U.{8}|x..|.))\1{16}")
_MAX_MARKS: Final = 4
"""Marks on one letter that are shown as they are; more would be drawn over other text."""


def unhidden(text: str) -> str:
    r"""Returns a JSON text or a command on one line with nothing invisible, for a person who decides on it.

    Characters that cannot be seen become escapes, several blanks become `·`, and a long run of one of them its number,
    as in `\{190 blanks}` or `\{500 times \n}`. JSON has no escapes that begin with `\{`, `\x` or `\U`.
    """
    if not (text.isascii() and text.isprintable()):
        text = _piled_marks().sub(_escaped_match, text).translate(_UNSEEN)
    text = _BLANK_RUNS.sub(_shown_blanks, text)
    return _ESCAPES.sub(_shown_escapes, text) if _MANY_ESCAPES.search(text) is not None else text


class _Unseen(dict[int, int | str]):
    """Maps each character to itself, or to its escape if it cannot be seen. It keeps none."""

    def __missing__(self, code: int) -> int | str:
        char = chr(code)
        return code if _is_seen(char) and char != "·" else _escape(char)


_UNSEEN: Final = _Unseen()


def _escaped_match(match: re.Match[str]) -> str:
    return _escape(match[0])


def _shown_blanks(match: re.Match[str]) -> str:
    number = len(match[0])
    return f"\\{{{number:,} blanks}}" if number > _MAX_RUN else "·" * number


def _shown_escapes(match: re.Match[str]) -> str:
    number = len(match[0]) // len(match[1])
    return f"\\{{{number:,} times {match[1]}}}" if number > _MAX_RUN else match[0]


_MARKS_IN_A_ROW: Final = 30
"""Marks after one letter that are left as they are; no language has so many."""
_LONG_FORMS: Final = re.compile("[\ufdfa\ufdfb\u3300-\u33ff]")
"""Matches the characters that stand for up to 18 others."""


def normalized(text: str, form: Literal["NFC", "NFKC"] = "NFKC") -> str:
    """Returns a text in a normal form of Unicode, in linear time.

    `unicodedata.normalize` sorts the marks after a letter in time that grows with the square of their number: 60,000
    take 3 s. So U+034F is inserted after every 30 of them, as in Unicode's stream-safe format. It is also slow for a
    character that stands for many others, 30 times as slow as for those; so they replace it first.
    """
    if text.isascii():
        return text
    if len(text) > _MARKS_IN_A_ROW:
        text = _many_marks().sub("\\g<0>\u034f", text)
        if form == "NFKC" and _LONG_FORMS.search(text) is not None:
            text = text.translate(_long_forms())
    return unicodedata.normalize(form, text)


@cache
def _mark() -> str:
    """Returns a pattern for one mark."""
    marks = [chr(code) for code in range(0x300, 0x20000) if unicodedata.combining(chr(code))]
    return f"[{''.join(marks)}\u0f73\u0f75\u0f81]"  # three characters that become marks


@cache
def _many_marks() -> re.Pattern[str]:
    return re.compile(f"{_mark()}{{{_MARKS_IN_A_ROW}}}(?={_mark()})")


@cache
def _piled_marks() -> re.Pattern[str]:
    return re.compile(f"(?<={_mark()}{{{_MAX_MARKS}}}){_mark()}")


@cache
def _long_forms() -> dict[int, str]:
    codes = (0xFDFA, 0xFDFB, *range(0x3300, 0x3400))
    return {code: unicodedata.normalize("NFKC", chr(code)) for code in codes}


_GROWTH: Final = 4
"""Times its length that a long text may have when it is folded; honest ones stay below two."""
_ALWAYS_FOLDED: Final = 1000
"""Characters of a folded text that are never cut."""


def fold_text(text: str) -> Generator[None, None, tuple[str, bool]]:
    """Folds a text in steps: one case, single spaces, no invisible characters, lookalikes as Latin letters.

    Returns the folded text, and whether it is all of it: what would become more than four times as long is cut.
    """
    if text.isascii():
        yield
        return " ".join(text.casefold().split()), True
    parts: list[str] = []
    remaining, start = _GROWTH * len(text) + _ALWAYS_FOLDED, 0
    while start < len(text) and remaining >= 0:
        end = start + _STEP
        if end < len(text) and (blank := text.rfind(" ", start + 1, end)) != -1:
            end = blank  # a word, and an accent with its letter, stay in one part
        part = latin_lookalike(text[start:end])
        part = "".join(char for char in part if char in _LAYOUT or unicodedata.category(char) not in _IGNORED)
        parts.append(part[: max(0, remaining)])
        remaining -= len(part)
        start = end
        yield
    return " ".join("".join(parts).casefold().split()), remaining >= 0
