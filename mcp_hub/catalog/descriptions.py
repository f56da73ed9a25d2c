"""Descriptions of tools and arguments, shortened to their first sentence or to a number of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mcp_hub.catalog.token_estimate import cut_to_tokens
from mcp_hub.config.field_types import DescriptionLength

_END: Final = re.compile(
    r"(?P<mark>[.!?])[\"')\]*_`]*(?=\s+[^a-z\s]|\s*\Z)"  # a mark, and no small letter behind it
    r"|[。！？]"
    r"|\n[^\S\n]*\n"  # an empty line
    r"|(?<=[.!?:])[^\S\n]*\n"
    r"|\n(?=[^\S\n]*(?:[-*#•<]|\d{1,2}[.)]|[A-Z]\w*:))"  # a list, a heading, `Args:`
)
_SHORT_FORM: Final = re.compile(
    r"\b(?:(?i:e\.g|i\.e|etc|vs|cf|approx|incl|resp|mr|mrs|dr|no|fig|st)|(?<!['’])[A-Z])\.\Z"
)
LOOKED_AT: Final = 8 * 1024
"""The most characters in which the end of the first sentence is searched."""


def shortened_description(text: str, length: DescriptionLength) -> str:
    """Returns the beginning of a description; the text itself where nothing is left out."""
    if length == "full":
        return text
    return first_sentence(text) if length == "first_sentence" else _at_most(text, int(length))


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text, with its line breaks as spaces.

    If no sentence ends within LOOKED_AT characters, it returns these; a text without a second sentence is unchanged.
    """
    start = text.strip()
    end = next(_sentence_ends(start[:LOOKED_AT]), min(len(start), LOOKED_AT))
    return text if end == len(start) else " ".join(start[:end].split())


def _sentence_ends(text: str) -> Iterator[int]:
    """Yields the offset behind each sentence of a text."""
    for match in _END.finditer(text):
        if match["mark"] == "." and _SHORT_FORM.search(text, max(0, match.start() - 12), match.start() + 1):
            continue
        end = match.start() if match[0].isspace() else match.end()
        if text[:end].strip():
            yield end


def _at_most(text: str, tokens: int) -> str:
    """Cuts a text to at most `tokens` tokens: behind a sentence if possible, else behind a word, with an ellipsis."""
    start = text.strip()
    if len(cut_to_tokens(start, tokens)) == len(start):
        return text
    part = cut_to_tokens(start, tokens - 1)  # one is for the ellipsis
    # Two more characters are needed to see whether a sentence ends at the cut.
    sentences = [end for end in _sentence_ends(start[: len(part) + 2]) if len(part) // 2 <= end <= len(part)]
    if sentences:
        return part[: sentences[-1]].rstrip()
    blank = start.rfind(" ", 0, len(part) + 1)
    return part[: blank if blank > len(part) // 2 else None].rstrip() + "…"
