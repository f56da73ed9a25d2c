"""Static vectors: models as others write them, and the file that keeps what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcp_hub.search.embedding import FORMAT, StaticModel, UnusableModel, VectorStore, default_files, files_in
from tests.search.models import write_model

VECTORS = {"cat": [1.0, 0.0], "dog": [0.9, 0.1], "car": [0.0, 1.0]}
SECRET = b"s" * 32


def model(directory: Path) -> StaticModel:
    write_model(directory / "model", VECTORS)
    return StaticModel(*files_in(directory / "model"))


def test_the_shipped_model_ranks_similar_texts_higher() -> None:
    shipped = StaticModel(*default_files())
    query, alike, unrelated = shipped.embed(["will it rain tomorrow", "weather forecast", "merge pull request"])
    assert query @ alike > 2 * abs(query @ unrelated)


def test_a_vector_is_the_mean_of_its_tokens_and_has_length_one(tmp_path: Path) -> None:
    static_model = model(tmp_path)
    both, unknown = static_model.embed(["Cat car", "zork"])
    assert np.allclose(both, [2**-0.5, 2**-0.5])
    assert not unknown.any()


def test_token_weights_and_a_token_mapping_are_applied(tmp_path: Path) -> None:
    tables = {"weights": np.array([0, 3, 1, 1], np.float32), "mapping": np.array([0, 1, 1, 3], np.int64)}
    write_model(tmp_path / "model", VECTORS, **tables)
    static_model = StaticModel(*files_in(tmp_path / "model"))
    weighted, mapped = static_model.embed(["cat car", "dog"])
    assert np.allclose(weighted, np.array([3, 1]) / 10**0.5)
    assert np.allclose(mapped, [1, 0])


@pytest.mark.parametrize("wrong", ["", "no tokenizer", "bad tokenizer", "bad table", "two tables"])
def test_a_model_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, wrong: str) -> None:
    directory = tmp_path / "model"
    write_model(directory, VECTORS, **({"more": np.zeros((2, 2), np.float32)} if wrong == "two tables" else {}))
    if not wrong:
        (directory / "model.safetensors").unlink()
    if wrong == "no tokenizer":
        (directory / "tokenizer.json").unlink()
    if wrong == "bad tokenizer":
        (directory / "tokenizer.json").write_text("{")
    if wrong == "bad table":
        (directory / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(UnusableModel, match=str(tmp_path)):
        StaticModel(*files_in(directory))


def test_vectors_are_cached_without_their_texts_and_read_again(tmp_path: Path) -> None:
    static_model, directory = model(tmp_path), tmp_path / "cache"
    store = VectorStore(static_model, directory, SECRET)
    vectors = store.vectors(["cat", "dog car", "private"], [True, True, False])
    store.save()
    (file,) = directory.iterdir()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(file.read_bytes()) == len(FORMAT) + 2 * (16 + 2 * 2)
    assert b"cat" not in file.read_bytes()
    second_store = VectorStore(static_model, directory, SECRET)
    assert np.allclose(second_store.vectors(["dog car", "cat", "private"], [True] * 3), vectors[[1, 0, 2]], atol=1e-3)


@pytest.mark.parametrize("damage", ["empty", "short", "strange", "not finite", "open to others"])
def test_a_damaged_vector_file_is_ignored_and_replaced(tmp_path: Path, damage: str) -> None:
    static_model, directory = model(tmp_path), tmp_path / "cache"
    store = VectorStore(static_model, directory, SECRET)
    vectors = store.vectors(["cat"], [True])
    store.save()
    (file,) = directory.iterdir()
    good = file.read_bytes()
    wrong = {
        "empty": b"",
        "short": good[:-1],
        "strange": b"x" * len(good),
        "not finite": good[:-4] + b"\xff" * 4,
        "open to others": good,
    }
    file.write_bytes(wrong[damage])
    if damage == "open to others":
        file.chmod(0o644)
    second_store = VectorStore(static_model, directory, SECRET)
    assert np.allclose(second_store.vectors(["cat"], [True]), vectors, atol=1e-3)
    second_store.save()
    assert file.read_bytes() == good
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_vector_store_without_a_directory_keeps_nothing(tmp_path: Path) -> None:
    static_model, file = model(tmp_path), tmp_path / "file"
    file.write_text("in the way")
    for directory in (None, file, file / "below"):
        store = VectorStore(static_model, directory, SECRET)
        store.vectors(["cat"], [True])
        store.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "model"]
