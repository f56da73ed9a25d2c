"""Static embeddings: compares texts by vectors of their meaning. A text's vector is the mean of those of its tokens.

It runs in a separate process (`python -m mcp_hub.servers search`), as it needs numpy, safetensors and tokenizers. The
model is two files: the table of vectors as safetensors and the tokenizer as JSON. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import hmac
from array import array
from base64 import b64encode
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from mcp_hub.security.lru import Lru
from mcp_hub.security.private_files import PrivateDirectory, open_regular

TOOL: Final = 0.8
SERVER: Final = 0.4
"""Weights of the likeness of a query to the tool, and to the texts about its server."""
SCALE: Final = 20_000
"""The integer for a likeness of 1 in the results of `compare`, which have 16 bits each."""
MAX_TABLES: Final = 32
"""Lists of tools that are kept; beyond that, the least recently used one is dropped."""
MAX_VECTORS: Final = 20_000
"""Vectors in the file."""
FORMAT: Final = b"mcp-hub vectors 1\n"
_KEY: Final = 16
_DEFAULT: Final = "wordllama"


class UnusableModel(Exception):
    """A model cannot be read. `str()` says why."""


def default_files() -> tuple[Path, Path]:
    """Returns the files (vectors, tokenizer) of the package wordllama, without importing it. Raises UnusableModel."""
    spec = find_spec(_DEFAULT)
    if spec is None or spec.origin is None:
        raise UnusableModel("the package wordllama, which ships the model, is not installed")
    root = Path(spec.origin).parent
    return _single_file(root / "weights", "*256*.safetensors"), _single_file(root / "tokenizers", "*.json")


def files_in(directory: Path) -> tuple[Path, Path]:
    """Returns the files (vectors, tokenizer) of a model in a directory, named as by model2vec. Raises UnusableModel."""
    return _single_file(directory, "*.safetensors"), _single_file(directory, "*tokenizer.json")


def _single_file(directory: Path, pattern: str) -> Path:
    files = sorted(directory.glob(pattern))
    if len(files) != 1:
        raise UnusableModel(f"{directory} has {len(files) or 'no'} files {pattern}; it must have one")
    return files[0]


class StaticModel:
    """A table of vectors by token, and a tokenizer. Raises UnusableModel."""

    def __init__(self, vectors: Path, tokenizer: Path) -> None:
        try:
            for path in (vectors, tokenizer):
                open_regular(path).close()
            with safe_open(vectors, "numpy") as file:
                tables = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except (OSError, ValueError, SafetensorError) as error:
            raise UnusableModel(f"{vectors.parent}: {error}") from None
        except Exception as error:  # tokenizers raises Exception itself
            raise UnusableModel(f"{tokenizer}: {error}") from None
        float_tables = [table for table in tables.values() if table.ndim == 2 and table.dtype.kind == "f"]
        if len(float_tables) != 1:
            raise UnusableModel(f"{vectors} must have one table of vectors, it has {len(float_tables)}")
        self._table = float_tables[0]
        self._weights = _column(tables.get("weights"), "f")
        self._mapping = _column(tables.get("mapping"), "iu")
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.size = int(self._table.shape[1])
        digest = hashlib.sha256(b"%d %d " % self._table.shape)
        digest.update(np.ascontiguousarray(self._table[:: max(1, len(self._table) // 64)]).tobytes())
        self.fingerprint = digest.digest()

    def embed(self, texts: Sequence[str]) -> Any:
        """Returns the vectors of texts, of length 1, as an array (texts, size); a text without tokens gets zeros."""
        embeddings = np.zeros((len(texts), self.size), np.float32)
        for row, encoding in enumerate(self._tokenizer.encode_batch(list(texts), add_special_tokens=False)):
            ids = np.asarray(encoding.ids, np.int64)
            rows = ids if self._mapping is None else self._mapping[ids[ids < len(self._mapping)]]
            rows = rows[(rows >= 0) & (rows < len(self._table))]
            if len(rows):
                vectors = self._table[rows].astype(np.float32)
                if self._weights is not None and len(ids) == len(rows):
                    vectors *= self._weights[np.minimum(ids, len(self._weights) - 1)][:, None]
                embeddings[row] = vectors.mean(0)
        lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
        return embeddings / np.where(lengths > 0, lengths, 1)


def _column(table: Any, kinds: str) -> Any:
    return table if table is not None and table.ndim == 1 and table.dtype.kind in kinds and len(table) else None


class VectorStore:
    """The vectors of texts, by a keyed hash of each. A file keeps some of them for the next run.

    Failures to read or write the file are ignored.
    """

    def __init__(self, model: StaticModel, directory: Path | None, secret: bytes) -> None:
        self._model = model
        self._secret = secret
        self._files = PrivateDirectory(directory) if directory is not None else None
        self._name = f"vectors-{hmac.new(secret, FORMAT + model.fingerprint, hashlib.sha256).hexdigest()[:32]}"
        self._vectors: Lru[bytes, Any] = Lru(MAX_VECTORS)
        self._saved_keys: frozenset[bytes] = frozenset()
        self._read()

    def vectors(self, texts: Sequence[str], keep: Sequence[bool]) -> Any:
        """Returns the vectors of texts as an array, and stores those whose `keep` is true."""
        keys = [hmac.digest(self._secret, text.encode("utf-8", "replace"), "sha256")[:_KEY] for text in texts]
        missing = [number for number, key in enumerate(keys) if key not in self._vectors]
        embeddings = np.zeros((len(texts), self._model.size), np.float32)
        if missing:
            embeddings[missing] = self._model.embed([texts[number] for number in missing])
        for number, key in enumerate(keys):
            if (vector := self._vectors.use(key)) is not None:
                embeddings[number] = vector
            elif keep[number]:
                self._vectors[key] = embeddings[number].astype(np.float16)
        return embeddings

    def save(self) -> None:
        """Writes the file if it lacks some of the stored vectors."""
        if self._files is None or self._vectors.keys() <= self._saved_keys:
            return
        rows = np.stack(list(self._vectors.values())).astype("<f2").tobytes()
        try:
            self._files.make()
            self._files.write(self._name, FORMAT + b"".join(self._vectors) + rows)
        except (OSError, ValueError):
            return
        self._saved_keys = frozenset(self._vectors)

    def _read(self) -> None:
        row = _KEY + 2 * self._model.size
        try:
            data = self._files.read(self._name, len(FORMAT) + MAX_VECTORS * row) if self._files is not None else b""
        except (OSError, ValueError):
            return
        count, remainder = divmod(len(data) - len(FORMAT), row)
        if not data.startswith(FORMAT) or remainder:
            return
        start = len(FORMAT) + count * _KEY
        rows = np.frombuffer(data, "<f2", offset=start).reshape(count, self._model.size)
        if not np.isfinite(rows).all():
            return
        for number in range(count):
            offset = len(FORMAT) + number * _KEY
            self._vectors[data[offset : offset + _KEY]] = rows[number]
        self._saved_keys = frozenset(self._vectors)


def search_tools(arguments: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Returns the functions that the process serves. `arguments`: its options, `--model=DIRECTORY` for a user's model.

    Raises UnusableModel.
    """
    model_directory = next(
        (argument.removeprefix("--model=") for argument in arguments if argument.startswith("--model=")), None
    )
    model = StaticModel(*(default_files() if model_directory is None else files_in(Path(model_directory))))
    stores: dict[str, VectorStore] = {}
    tables: Lru[str, list[Any]] = Lru(MAX_TABLES)

    async def prepare(
        table: str,
        part: int,
        tools: list[str],
        servers: list[str],
        of: list[int],
        keep: list[bool],
        store: dict[str, str],
    ) -> str:
        """Takes the texts of a part of a list of tools; `of` has for each tool the number of its server's text."""
        if "kept" not in stores:
            directory = Path(store["directory"]) if store.get("directory") else None
            stores["kept"] = VectorStore(model, directory, bytes.fromhex(store["secret"]))
        vectors = stores["kept"].vectors(tools, keep)
        server_vectors = stores["kept"].vectors(servers, [False] * len(servers))
        parts = tables[table] = tables.get(table, [])
        del parts[part:]
        parts.append(TOOL * vectors + (SERVER * server_vectors[np.asarray(of, int)] if servers else 0))
        stores["kept"].save()
        return str(sum(map(len, parts)))

    async def compare(table: str, query: str) -> str:
        """Returns how much each tool of a list is like a query, as numbers of 16 bits in Base64; "" if unknown."""
        if table not in tables:
            return ""
        tables.move_to_end(table)
        (vector,) = model.embed([query])
        similarities = np.concatenate([part @ vector for part in tables[table]])
        return b64encode(
            array("h", np.clip(similarities * SCALE, -32768, 32767).astype(int).tolist()).tobytes()
        ).decode()

    return {"prepare": prepare, "compare": compare}
