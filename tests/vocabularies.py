"""Vocabularies of real models, which count tokens: what estimates are held against."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, Final

VOCABULARIES: Final = ("o200k_base", "cl100k_base")
"""Those of OpenAI's models since 2024, and before. Anthropic and Google publish none."""


@cache
def _encoding(vocabulary: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package opens its files in an older way
        from bpe_openai import get_encoding

        return get_encoding(vocabulary)


def count_tokens(vocabulary: str, text: str) -> int:
    """The number of tokens of a text."""
    return len(_encoding(vocabulary).encode_ordinary(text))
