"""The files of a configuration: reads one, lists those of a folder, and notices when one has changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.findings import FileFinding, Findings, KeyPath
from mcp_hub.config.syntax import ParsedText, UnreadableText, parse_json, parse_toml, parse_yaml
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import EXECUTED, FileTooLarge, read_regular
from mcp_hub.text import printable

MAX_FILE = 1024 * 1024
"""The maximum size of a file, in bytes. The parsers take up to seconds for a megabyte."""

_PARSERS: Final = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".json": parse_json,
    ".jsonc": parse_json,
    ".json5": parse_json,
    ".toml": parse_toml,
}
"""The parser of each suffix. Other files are recognised by how their text begins."""
_BLANK: Final = re.compile(r"\s+|#[^\n]*")
_TOML_START: Final = re.compile(r"\[\[?\s*[\w.\"'-]+\s*\]\]?\s*(#[^\n]*)?(\n|$)|[\w.\"'-]+\s*=")


class ConfigDocument(msgspec.Struct, frozen=True):
    """A configuration file as a tree of plain values, with its warnings and the lines of its keys."""

    path: Path
    """The absolute path."""
    tree: Any
    written: Mapping[KeyPath, str]
    warnings: tuple[str, ...]
    """Warnings about the file itself."""
    faults: tuple[tuple[int | None, str], ...]
    _line_of: Callable[[KeyPath], int | None]

    def findings(self, name: str | None = None) -> Findings:
        """Returns findings that start with the parser's errors. Messages call the file `name`."""
        file_name = self.path.name if name is None else name
        findings = Findings(lambda at: (file_name, self.line_of(at)))
        findings.errors.extend(FileFinding(file_name, line, text) for line, text in self.faults)
        return findings

    def line_of(self, at: KeyPath) -> int | None:
        """Returns the line of the key at `at`, or of the nearest key around it."""
        while at:
            line = self._line_of(at)
            if line is not None:
                return line
            at = at[:-1]
        return None


def read_document(path: Path) -> ConfigDocument:
    """Reads and parses the file at `path`.

    Raises:
        ConfigError: the file is missing, other users can change it, or it is not text of its format.
    """
    content, warnings = _read(path)
    text = _decode(path, content)
    if not text.strip():
        text = f"{path.name}: the file is empty; it needs at least 'servers:' with one entry below"
        raise ConfigError(text, codes.FILE_EMPTY)
    try:
        parse = _PARSERS.get(path.suffix.lower()) or _guess_parser(text)
        parsed = parse(text)
    except UnreadableText as error:
        location = path.name if error.line is None else f"{path.name}:{error.line}"
        raise ConfigError(f"{location}: {printable(str(error))}", error.code) from None
    except RecursionError:
        raise ConfigError(f"{path.name}: nested too deeply", codes.FILE_TOO_LARGE) from None
    if parsed.tree is None and not parsed.faults:
        text = f"{path.name}: the file holds nothing but comments; it needs at least 'servers:'"
        raise ConfigError(text, codes.FILE_EMPTY)
    return ConfigDocument(path, parsed.tree, parsed.written, warnings, parsed.faults, parsed.line_of)


def _read(path: Path) -> tuple[bytes, tuple[str, ...]]:
    try:
        return read_regular(path, MAX_FILE, EXECUTED)
    except FileTooLarge:
        raise ConfigError(f"{path.name}: the file is larger than {MAX_FILE} bytes", codes.FILE_TOO_LARGE) from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file. {HOW_TO_CREATE}", codes.FILE_MISSING) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise ConfigError(f"{path}: cannot be read: {reason}", codes.FILE_UNREADABLE) from None


HOW_TO_CREATE = """Create one with `mcp-hub setup`, or write servers.yaml with these lines:
servers:
  time:
    command: uvx
    args: [mcp-server-time==2026.10.19]"""


def _decode(path: Path, content: bytes) -> str:
    # Windows PowerShell writes UTF-16 with a byte order mark.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path.name}:{line}: this is not UTF-8 text", codes.FILE_ENCODING) from None


def _guess_parser(text: str) -> Callable[[str], ParsedText]:
    start = 0
    while blank := _BLANK.match(text, start):
        start = blank.end()
    if _TOML_START.match(text, start):
        return parse_toml
    return parse_json if text.startswith(("{", "[", "//", "/*"), start) else parse_yaml


MAX_FILES_OF_FOLDER: Final = 1000
"""The maximum number of files of one directory that are read."""

FileStamp = tuple[str, int, int, int]
"""Path, time of the last change in nanoseconds, size in bytes, inode: different after every change of the file."""


def stamp_of(path: Path) -> FileStamp | None:
    """Returns the stamp of a file, with all links resolved; None if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (str(path), status.st_mtime_ns, status.st_size, status.st_ino)


def tool_files(directory: Path | None) -> tuple[FileStamp, ...]:
    """Returns a stamp of every Python file of a directory of local tools; () if there are none."""
    if directory is None:
        return ()
    paths = [path for folder in (directory, directory / "builtin") for path in python_files(folder)]
    return tuple(stamp for path in paths if (stamp := stamp_of(path)) is not None)


MAX_COMPILED: Final = 64 * 1024
"""The maximum size, in bytes, of a file whose syntax is checked here. That takes some 20 ms."""


def syntax_error_in(files: Iterable[FileStamp]) -> str | None:
    """Returns `FILE:LINE: MESSAGE` for the first of these Python files that has a syntax error; None if none has."""
    for path, _, size, _ in files:
        try:
            if size <= MAX_COMPILED:
                ast.parse(read_regular(Path(path), MAX_COMPILED)[0], path)
        except SyntaxError as error:
            return f"{path}:{error.lineno}: {error.msg}"
        except (OSError, ValueError, RecursionError):
            continue  # the process that imports the file reports the error
    return None


def python_files(folder: Path) -> tuple[Path, ...]:
    """Returns the Python files in a folder, by name; () if there are none."""
    return tuple(sorted(folder.glob("*.py"))[:MAX_FILES_OF_FOLDER])


def folder_files(folder: Path) -> tuple[Path, ...]:
    """Returns the configuration files in a folder by name, without those that begin with `_` or `.`; () if none."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in _PARSERS)
    except OSError:
        return ()
    return tuple(folder / name for name in names if not name.startswith(("_", ".")))[:MAX_FILES_OF_FOLDER]
