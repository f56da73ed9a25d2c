"""One change of one file: its diff, its digest, and how it is written."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from mcp_hub.config.config_files import MAX_FILE
from mcp_hub.config.findings import KeyPath
from mcp_hub.config.secret_values import secret_texts
from mcp_hub.editing import EditedText, EditRefused, Placement, Syntax, get, has, insert, parse, put, remove, syntax_of
from mcp_hub.errors import HubError
from mcp_hub.security.private_files import FileTooLarge, locked_directory, read_regular
from mcp_hub.security.redaction import MASK, Redactor
from mcp_hub.security.redaction.heuristics import masked_spans
from mcp_hub.text import printable

MAX_LINES: Final = 20_000
"""The maximum number of lines of a file to compare. Comparing takes time up to the product of both numbers."""
_REFERENCE: Final = re.compile(
    r"[\"']?(?:(?:bearer|basic|token) |[\w+.-]+://)?"
    r"\$\{(?:(?:file|keyring|env):[^{}]*|(?-i:[A-Z_][A-Z0-9_]*))(?:\}(?:@[\w.:/-]*)?[\"']?)?",
    re.IGNORECASE,
)
"""A value that only refers to a secret, up to the last brace or beyond it."""
_LINE: Final = 400
"""The maximum length of a line in a diff, in characters."""


class StaleEdit(HubError):
    """The file changed after the edit was shown. Nothing was written."""


class Edit(msgspec.Struct, frozen=True):
    """The change of a file from `before` to `after`. None means that there is no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    secret: bool = False
    """Whether the content is a secret that must not be shown."""
    placements: tuple[tuple[KeyPath, Placement], ...] = ()
    """The inserted entries with their placements, for `remove`."""

    @property
    def changes(self) -> bool:
        """Whether there is a difference."""
        return self.before != self.after

    @property
    def digest(self) -> str:
        """A digest of the path, the old content and the new content."""
        parts = f"{self.path}\0{digest_of(self.before)}\0{digest_of(self.after)}"
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()

    def diff(self) -> list[str]:
        """Returns the lines of a unified diff, safe for a terminal and with `***` for secrets."""
        path = printable(str(self.path))
        names = [path if content is not None else os.devnull for content in (self.before, self.after)]
        if self.secret:
            size = len(self.after or self.before or b"")
            return [f"--- {names[0]}", f"+++ {names[1]}", f"@@ a secret, {size} bytes, not shown; mode 0600 @@"]
        texts = [(content or b"").decode("utf-8", "backslashreplace") for content in (self.before, self.after)]
        redactor = Redactor(_secrets(self.path, *texts))
        lines = [text.splitlines() for text in texts]
        if max(map(len, lines)) > MAX_LINES:
            return [f"--- {names[0]}", f"+++ {names[1]}", "@@ too many lines to show the difference @@"]
        diff_lines = difflib.unified_diff(lines[0], lines[1], names[0], names[1], lineterm="")
        redacted_lines = [
            line if number < 2 else _with_references(line, redactor.text(line))
            for number, line in enumerate(diff_lines)
        ]
        return [printable(line[:1] + line[1:].expandtabs(4), _LINE) for line in redacted_lines]

    def check(self) -> None:
        """Checks that the edit can be written now.

        Raises:
            EditRefused: the file cannot be replaced as it is.
            StaleEdit: its content is not `before` any more.
        """
        if read_bytes(self.path) != self.before:
            raise StaleEdit(f"{printable(str(self.path))} changed after the preview; nothing was written. Look again")
        if self.before is not None:
            _check_replaceable(self.path)

    def apply(self) -> None:
        """Writes the file atomically, with its mode and owner. A symbolic link is followed.

        Raises:
            EditRefused: it cannot be written.
            StaleEdit: it has changed.
        """
        self.check()
        try:
            real = self.path.resolve()
            if self.after is not None:
                real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_directory(real.parent):
                self.check()  # another command may have written it meanwhile
                if self.after is None:
                    real.unlink()
                else:
                    _replace(self, real, self.after)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise EditRefused(f"{printable(str(self.path))}: cannot be written: {reason}") from None


def digest_of(content: bytes | None) -> str:
    """Returns the digest of a file's content; `none` if there is no file."""
    return "none" if content is None else hashlib.sha256(content).hexdigest()


def _secrets(path: Path, *texts: str) -> Iterator[str]:
    for text in texts:
        with contextlib.suppress(EditRefused):
            yield from secret_texts(parse(text, syntax_of(path.name)).tree)


def _with_references(line: str, redacted: str) -> str:
    """Returns the redacted form of a line with the values that only refer to a secret, which are none themselves."""
    if "${" not in line:
        return redacted
    hidden, shown, at = "", "", 0
    for begin, end in masked_spans(line, redacted):
        value = line[begin:end]
        hidden += line[at:begin] + MASK
        shown += line[at:begin] + (value if _REFERENCE.fullmatch(value) else MASK)
        at = end
    return shown + line[at:] if hidden + line[at:] == redacted else redacted


def read_bytes(path: Path) -> bytes | None:
    """Returns the content of a file; None if there is none.

    Raises:
        EditRefused: it cannot be read, is not a regular file, or is larger than 1 MiB.
    """
    name = printable(str(path))
    try:
        return read_regular(path, MAX_FILE)[0]
    except FileNotFoundError:
        return None
    except FileTooLarge:
        text = f"{name}: the file is larger than {MAX_FILE:,} bytes; it is not one that a person edits"
        raise EditRefused(text) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise EditRefused(f"{name}: cannot be read: {reason}") from None


def _check_replaceable(path: Path) -> None:
    name = printable(str(path))
    status = path.stat()
    if hasattr(os, "geteuid") and os.geteuid() not in (0, status.st_uid):
        raise EditRefused(f"{name}: belongs to another user (uid {status.st_uid}); edit it as its owner")
    if not status.st_mode & stat.S_IWUSR:
        raise EditRefused(f"{name}: is read-only; make it writable if it may be changed")
    if status.st_nlink > 1:
        text = f"{name}: has {status.st_nlink} hard links, and replacing the file would break them; edit it by hand"
        raise EditRefused(text)


def _replace(edit: Edit, real: Path, content: bytes) -> None:
    temporary = real.with_name(f".{real.name[:100]}.{secrets.token_hex(8)}")
    status = real.stat() if edit.before is not None else None
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if status is not None and sys.platform != "win32":
                with contextlib.suppress(PermissionError):  # the group of a file may be one that its owner is not in
                    os.chown(file.fileno(), status.st_uid, status.st_gid)
                os.chmod(file.fileno(), stat.S_IMODE(status.st_mode))  # noqa: PTH101 - of the open file
            os.fsync(file.fileno())
        if read_bytes(edit.path) != edit.before:
            raise StaleEdit(f"{printable(str(edit.path))} changed while it was edited; nothing was written")
        temporary.replace(real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(real.parent)


def _sync_directory(directory: Path) -> None:
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):  # some file systems cannot, and the file is in place already
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FileEditor:
    """Collects changes of one file and makes an `Edit` of them.

    Every method raises EditRefused with a sentence that names the file.
    """

    def __init__(self, path: Path, before: bytes | None, syntax: Syntax | None = None) -> None:
        self.path = path
        self.syntax: Syntax = syntax or syntax_of(path.name)
        self.before = before
        self._placements: list[tuple[KeyPath, Placement]] = []
        try:
            self.text = (before or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            line = (before or b"").count(b"\n", 0, error.start) + 1
            raise EditRefused(f"{printable(str(path))}:{line}: this is not UTF-8 text; save it as UTF-8") from None
        with self._naming_file():
            self.tree = parse(self.text, self.syntax).tree

    @classmethod
    def open(cls, path: Path, syntax: Syntax | None = None) -> Self:
        """Reads the file at `path`; one that does not exist is empty."""
        return cls(path, read_bytes(path), syntax)

    def insert(self, at: KeyPath, value: object) -> None:
        """Inserts an entry, see `insert`."""
        with self._naming_file():
            edited = insert(self.text, self.syntax, at, value, self.tree)
        self._placements.append((at, edited.placement))
        self._take(edited)

    def put(self, at: KeyPath, value: object) -> None:
        """Replaces or inserts a value, see `put`."""
        with self._naming_file():
            self._take(put(self.text, self.syntax, at, value, self.tree))

    def remove(self, at: KeyPath, placement: Placement | None = None) -> None:
        """Removes an entry, see `remove`."""
        with self._naming_file():
            self._take(remove(self.text, self.syntax, at, placement, self.tree))

    def has(self, at: KeyPath) -> bool:
        """Returns whether there is a value at `at`."""
        return has(self.tree, at)

    def get(self, at: KeyPath) -> object:
        """Returns the value at `at`; None if there is none."""
        return get(self.tree, at) if self.has(at) else None

    def edit(self) -> Edit:
        """Returns the change of the file."""
        after = self.text.encode()
        unchanged = self.before is None and not after
        return Edit(self.path, self.before, None if unchanged else after, placements=tuple(self._placements))

    def _take(self, edited: EditedText) -> None:
        self.text, self.tree = edited.text, edited.tree

    @contextlib.contextmanager
    def _naming_file(self) -> Iterator[None]:
        try:
            yield
        except EditRefused as error:
            raise EditRefused(f"{printable(str(self.path))}: {error}") from None
