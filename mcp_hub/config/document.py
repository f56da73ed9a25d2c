"""A configuration file as a plain tree with the line of every key, whatever its format.

What the tree means is the business of `dialect.py` and `entry.py`.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.findings import KeyPath
from mcp_hub.config.ownership import refuse_foreign
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

MAX_FILE = 1024 * 1024
"""No configuration written by a person comes near; the parsers need up to seconds for one megabyte."""
MAX_DEPTH = 32
MAX_VALUES = 100_000
"""YAML aliases can make a small file unfold into any number of values."""

_FORMATS: Final = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".toml": "toml",
}
_BLANK: Final = re.compile(r"\s+|#[^\n]*")
_TOML_START: Final = re.compile(r"\[\[?\s*[\w.\"'-]+\s*\]\]?\s*(#[^\n]*)?(\n|$)|[\w.\"'-]+\s*=")


class Parsed(msgspec.Struct, frozen=True):
    """What a parser of one format returns."""

    tree: Any
    """dict, list, str, int, float, bool, None, and the dates of TOML."""
    line_of: Callable[[KeyPath], int | None] = lambda at: None
    """The line of exactly this key; None if it is not known."""
    written: Mapping[KeyPath, str] = msgspec.field(default_factory=dict)
    """How a value that is not a text was written: `1.10`, `no`, `0755` mean themselves as environment values."""
    faults: tuple[tuple[int | None, str], ...] = ()
    """(line, text) of what is wrong although the rest can be read, such as a duplicate key."""


class Document(msgspec.Struct, frozen=True):
    path: Path
    """Absolute."""
    tree: Any
    written: Mapping[KeyPath, str]
    warnings: tuple[str, ...]
    """About the file itself."""
    faults: tuple[tuple[int | None, str], ...]
    _line_of: Callable[[KeyPath], int | None]

    def line_of(self, at: KeyPath) -> int | None:
        """The line of the key at `at`, or of the nearest key around it."""
        while at:
            line = self._line_of(at)
            if line is not None:
                return line
            at = at[:-1]
        return None


class Unreadable(Exception):
    """The text is not of the format; `line` counts from 1."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def read_document(path: Path) -> Document:
    """The file at `path`, parsed. ConfigError when it is missing, not ours, not text, or not of its format."""
    content, warnings = _content(path)
    text = _decoded(path, content)
    if not text.strip():
        raise ConfigError(f"{path.name}: the file is empty; it needs at least 'servers:' with one entry below")
    try:
        parsed = _parse(text, _FORMATS.get(path.suffix.lower()) or _guessed(text))
        _check_bounds(parsed.tree)
    except Unreadable as error:
        where = path.name if error.line is None else f"{path.name}:{error.line}"
        raise ConfigError(f"{where}: {printable(str(error))}") from None
    except RecursionError:
        raise ConfigError(f"{path.name}: nested too deeply") from None
    if parsed.tree is None and not parsed.faults:
        raise ConfigError(f"{path.name}: the file holds nothing but comments; it needs at least 'servers:'")
    return Document(path, parsed.tree, parsed.written, warnings, parsed.faults, parsed.line_of)


def _content(path: Path) -> tuple[bytes, tuple[str, ...]]:
    try:
        # Not opened before it is known to be a file: opening a pipe without a writer never returns.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: is not a file")
        with path.open("rb") as file:
            warnings = refuse_foreign(path, file.fileno())
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file. {HOW_TO_CREATE}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path.name}: the file is larger than {MAX_FILE} bytes")
    return content, warnings


HOW_TO_CREATE = """Create one, for example servers.yaml with these lines:
servers:
  time:
    command: uvx
    args: [mcp-server-time==2026.10.19]"""


def _decoded(path: Path, content: bytes) -> str:
    # Windows PowerShell writes UTF-16 with a byte order mark.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path.name}:{line}: this is not UTF-8 text") from None


def _guessed(text: str) -> str:
    start = 0
    while blank := _BLANK.match(text, start):
        start = blank.end()
    if _TOML_START.match(text, start):
        return "toml"
    return "json" if text.startswith(("{", "[", "//", "/*"), start) else "yaml"


def _parse(text: str, format: str) -> Parsed:
    # Each parser is imported only for its own format: the start of the hub waits for this.
    if format == "json":
        from mcp_hub.config.json_text import parse
    elif format == "toml":
        from mcp_hub.config.toml_text import parse
    else:
        from mcp_hub.config.yaml_text import parse
    return parse(text)


def _check_bounds(tree: Any) -> None:
    """Unreadable when the tree is deeper or larger than a configuration can be."""
    level, count = [tree], 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_VALUES:
            raise Unreadable("has too many values")
        inner = [
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list)
        ]
        if not inner:
            return
        level = [value for values in inner for value in values]
    raise Unreadable("is nested too deeply")
