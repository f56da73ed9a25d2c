"""The journal of edits: what each run of a command changed, so that `mcp-hub undo` restores it.

It holds whole files, secrets included: its directory is 0700, its files are 0600, and no Git work tree is around it.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.discovery import TrustedDirectories
from mcp_hub.config.findings import KeyPath
from mcp_hub.editing import EditRefused, Placement
from mcp_hub.editing.edit import Edit, FileEditor, read_bytes
from mcp_hub.editing.reversal import Reversal
from mcp_hub.errors import HubError
from mcp_hub.security.private_files import PrivateDirectory, state_directory
from mcp_hub.text import printable

MAX_RUNS: Final = 100
"""The maximum number of runs that are kept; the oldest are deleted."""
_MAX_RUN: Final = 64 * 1024 * 1024


class Run(msgspec.Struct, frozen=True):
    """What one run of a command changed."""

    number: int
    command: str
    at: str
    """UTC, as 2026-11-23T07:00:00Z."""
    edits: tuple[Edit, ...]
    keyring: tuple[str, ...] = ()
    """User names of the secrets that it put into the keyring."""
    undone: bool = False
    name: str = ""
    """The name of its file. Two commands that run at once may have the same number, but have different files."""


class Undoing(msgspec.Struct, frozen=True):
    """What `undo` does with one run."""

    edits: tuple[Edit, ...]
    """The edits that take it back."""
    notes: tuple[str, ...] = ()
    """Sentences on files that were edited since: what goes, what comes back, and what stays."""
    left: tuple[Edit, ...] = ()
    """Edits of the run that cannot be taken back now, as their files cannot be read or edited."""


class Journal:
    """The runs that changed files, newest last, in one private directory.

    Every method raises EditRefused if the directory cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._files = PrivateDirectory(directory)
        self._performed: Run | None = None
        """What `perform` has recorded last, to which `extend` adds."""

    @classmethod
    def of_user(cls) -> Journal:
        """Returns the journal of this user."""
        return cls(state_directory() / "journal")

    def runs(self) -> list[Run]:
        """Returns the runs that are kept, newest first. One that cannot be read is left out."""
        runs = []
        for name in reversed(self._names()):
            with contextlib.suppress(OSError, ValueError):
                runs.append(msgspec.json.decode(self._files.read(name, _MAX_RUN), type=Run, dec_hook=_path_of))
        return runs

    def perform(self, command: str, edits: Sequence[Edit], keyring: Sequence[str] = ()) -> None:
        """Records a run of `command` and writes its edits: all of them, or none.

        Raises:
            EditRefused: a file cannot be written.
            StaleEdit: a file has changed since the edit was made.
        """
        edits = [edit for edit in edits if edit.changes]
        for edit in edits:
            edit.check()
        if not edits and not keyring:
            return
        refuse_git_work_tree(self._files.directory)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        names = self._names()
        number = int(names[-1].partition("-")[0]) + 1 if names else 1
        name = f"{number:08}-{secrets.token_hex(4)}.json"
        run = Run(number, command, now, tuple(edits), tuple(keyring), name=name)
        self._write(run)
        try:
            _apply_all(edits)
        except BaseException:
            self._files.delete(name)
            raise
        self._performed = run
        for old in names[: max(0, len(names) + 1 - MAX_RUNS)]:
            self._files.delete(old)

    def extend(self, edits: Sequence[Edit]) -> None:
        """Writes further edits of the run that this object has performed, so that one `undo` takes back both.

        They are a run of their own if it was undone meanwhile.

        Raises:
            EditRefused: a file cannot be written.
            StaleEdit: a file has changed since the edit was made.
        """
        edits = [edit for edit in edits if edit.changes]
        performed = self._performed
        if performed is None or not edits:
            return
        for edit in edits:
            edit.check()
        if not any(run.name == performed.name and run.edits == performed.edits for run in self.runs()):
            self.perform(performed.command, edits)
            return
        self._performed = msgspec.structs.replace(performed, edits=(*performed.edits, *edits))
        self._write(self._performed)
        try:
            _apply_all(edits)
        except BaseException:
            self._performed = performed
            self._write(performed)
            raise

    def undo(self, run: Run) -> Undoing:
        """Returns the edits that restore what was there before a run.

        In a file that was edited since, only what the run wrote is taken back.
        """
        edits: dict[Path, Edit] = {}
        notes: list[str] = []
        left: list[Edit] = []
        # A run may have edited a file twice; the content before the first edit is restored. Secrets are last, as those
        # stay to which an entry that stays refers, or may refer in a file that cannot be read.
        for edit in sorted(reversed(run.edits), key=lambda edit: edit.secret):
            try:
                restored = edits.get(edit.path) or Edit(edit.path, now := read_bytes(edit.path), now, edit.secret)
                if edit.secret and left:
                    left.append(edit)
                elif edit.secret and any(str(edit.path).encode() in (other.after or b"") for other in edits.values()):
                    notes.append(f"{edit.path} stays, as an entry that stays refers to it")
                else:
                    edits[edit.path] = msgspec.structs.replace(restored, after=_reverted(edit, restored.after, notes))
            except EditRefused as error:
                notes.append(f"{error}; run undo again when it is mended")
                left.append(edit)
        return Undoing(tuple(edit for edit in edits.values() if edit.changes), tuple(notes), tuple(reversed(left)))

    def take_back(self, run: Run, undoing: Undoing) -> None:
        """Writes the edits of `undo`, and forgets the run but for what is left, with its secrets in the keyring.

        Raises StaleEdit if a file has changed since.
        """
        for edit in undoing.edits:
            edit.check()
        _apply_all(undoing.edits)
        left = undoing.left
        self._write(msgspec.structs.replace(run, edits=left, keyring=run.keyring if left else (), undone=not left))
        self.forget(())

    def forget(self, paths: Collection[Path]) -> None:
        """Deletes the contents of these files from all runs, and all contents from runs that were undone."""
        for run in self.runs():
            edits = () if run.undone else tuple(edit for edit in run.edits if edit.path not in paths)
            if edits != run.edits:
                self._write(msgspec.structs.replace(run, edits=edits, undone=not edits and not run.keyring))

    def unused_in_keyring(self, run: Run) -> list[str]:
        """Returns the users of the run's secrets in the keyring to whom no file of the run refers any more."""
        contents = [read_bytes(path) or b"" for path in {edit.path for edit in run.edits if not edit.secret}]
        return [user for user in run.keyring if not any(f"/{user}}}".encode() in content for content in contents)]

    def placement(self, path: Path, at: KeyPath) -> Placement | None:
        """Returns how the entry at `at` of a file was inserted last; None if that is not known."""
        for run in self.runs():
            for edit in run.edits if not run.undone else ():
                for key_path, placement in edit.placements if edit.path == path else ():
                    if key_path == at:
                        return placement
        return None

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self._files.directory.glob("[0-9]*-*.json"))
        except OSError:
            return []

    def _write(self, run: Run) -> None:
        try:
            self._files.make()
            self._files.write(run.name, msgspec.json.encode(run, enc_hook=str))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            path = printable(str(self._files.directory))
            raise EditRefused(f"{path}: what undo needs cannot be written: {reason}; nothing was changed") from None


def _reverted(edit: Edit, now: bytes | None, notes: list[str]) -> bytes | None:
    """Returns the content of a file without an edit. `notes` gets a sentence if the file was edited since.

    Raises:
        EditRefused: the file cannot be edited.
    """
    if now in (edit.after, edit.before):
        return edit.before
    name = printable(str(edit.path))
    if now is None or edit.secret or edit.after is None:
        notes.append(f"{name} is left as it is, as it was {'deleted' if now is None else 'written'} since")
        return now
    editor = FileEditor(edit.path, now)
    reversal = Reversal(edit, editor)
    parts = [
        f"{action} {printable(', '.join(names), 1000)}"
        for action, names in (("takes out", reversal.removed), ("puts back", reversal.restored))
        if names
    ]
    done = " and ".join(parts) or "finds nothing of that run in it"
    notes.append(f"{name} was edited since: undo {done}")
    notes += (f"{name}: {printable(sentence, 500)}, so it stays" for sentence in reversal.kept)
    return editor.edit().after


def _apply_all(edits: Sequence[Edit]) -> None:
    applied: list[Edit] = []
    try:
        with TrustedDirectories.of_user().kept(edit.path for edit in edits):
            for edit in edits:
                applied.append(edit)  # first, as an interrupted write may be complete
                try:
                    edit.apply()
                except HubError:
                    applied.pop()  # nothing was written
                    raise
    except BaseException:
        for edit in reversed(applied):
            with contextlib.suppress(HubError):
                Edit(edit.path, edit.after, edit.before).apply()
        raise


def _path_of(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError


def refuse_git_work_tree(directory: Path) -> None:
    """Refuses a directory in a Git work tree, where secrets could be committed.

    Raises:
        EditRefused: `directory` or one above it has a `.git`.
    """
    for ancestor in (directory, *directory.parents):
        if os.path.lexists(ancestor / ".git"):
            raise EditRefused(
                f"{printable(str(directory))} is in the Git work tree {printable(str(ancestor))}, where what is kept "
                "could be committed; set XDG_STATE_HOME and XDG_DATA_HOME to directories outside"
            )
