"""Models of static vectors for tests, in the ways in which they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace


def write_model(directory: Path, words: dict[str, list[float]], **tables: Any) -> None:
    """A model as model2vec writes it: `words` with their vectors, and more tables."""
    directory.mkdir()
    vocabulary = {word: number for number, word in enumerate(("[UNK]", *words))}
    vectors = np.array([[0.0] * len(next(iter(words.values()))), *words.values()], np.float32)
    save_file({"embeddings": vectors, **tables}, str(directory / "model.safetensors"))
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
