"""Models of static vectors for tests, written as model2vec writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace


def write_model(directory: Path, vectors_by_word: dict[str, list[float]], **tables: Any) -> None:
    """Writes a model as model2vec does: a vector of each word, and more tables."""
    directory.mkdir()
    vocabulary = {word: number for number, word in enumerate(("[UNK]", *vectors_by_word))}
    table = np.array([[0.0] * len(next(iter(vectors_by_word.values()))), *vectors_by_word.values()], np.float32)
    save_file({"embeddings": table, **tables}, str(directory / "model.safetensors"))
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
