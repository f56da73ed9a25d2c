"""Takes a past edit back in a file that was edited since: its own entries go, and what it took out comes back."""

from __future__ import annotations

from typing import Any, Final

from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.editing import EditRefused, Placement, get, has, same
from mcp_hub.editing.edit import Edit, FileEditor

_START: Final = ("command", "cmd", "args", "url", "httpUrl", "serverUrl", "uri")
"""Keys of an entry that say what it starts or reaches. An entry with other ones than the edit wrote is not its own."""
_NOTHING: Final[dict[str, Any]] = {}


class Reversal:
    """One edit that is taken back in an editor, which holds the file as it is now."""

    def __init__(self, edit: Edit, editor: FileEditor) -> None:
        """Raises EditRefused if the contents of the edit are not valid."""
        self.restored: list[str] = []
        """Names of entries that were put back."""
        self.removed: list[str] = []
        """Names of entries that were taken out."""
        self.kept: list[str] = []
        """Sentences on what stays as it is."""
        self._editor = editor
        self._after = FileEditor(edit.path, edit.after, editor.syntax).tree
        self._placements = dict(edit.placements)
        before = FileEditor(edit.path, edit.before, editor.syntax).tree
        self._revert((), before or _NOTHING, self._after or _NOTHING)

    def _revert(self, names: KeyPath, before: Any, after: Any) -> None:
        """Takes back the difference of two values. `names` leads to both; in lists of named entries by their names."""
        at = _place(self._editor.tree, names)
        if at is None or same(before, after):
            return
        now = self._editor.get(at)
        old, new = _members(before), _members(after)
        if old is None or new is None or _members(now or _NOTHING) is None or _is_resized(before, after):
            if same(now, after):
                self._change(names, before)
            elif not same(now, before):
                self.kept.append(f"{dotted(names)} was changed since")
            return
        for name, value in new.items():
            if name in old:
                self._revert((*names, name), old[name], value)
            else:
                self._remove((*names, name), value)
        for name in [name for name in old if name not in new]:
            if _place(self._editor.tree, (*names, name)) is not None:
                self.kept.append(f"there is another {dotted((*names, name))} now")
            else:
                self._insert((*names, name), old[name])

    def _change(self, names: KeyPath, value: Any) -> None:
        try:
            self._editor.put(_place(self._editor.tree, names) or (), value)
        except EditRefused as error:
            self.kept.append(str(error))
        else:
            self._note_restored(self._entry_around(names) or str(names[-1]))

    def _insert(self, names: KeyPath, value: Any) -> None:
        around = _place(self._editor.tree, names[:-1]) or ()
        siblings = self._editor.get(around)
        try:
            self._editor.insert((*around, len(siblings) if isinstance(siblings, list) else names[-1]), value)
        except EditRefused as error:
            self.kept.append(str(error))
        else:
            self._note_restored(self._entry_around(names) or str(names[-1]))

    def _remove(self, names: KeyPath, value: Any) -> None:
        """Removes what the edit added. An object that it made is removed when nothing else is in it."""
        place = _place(self._after, names) or ()
        names = self._named_now(names, value)
        at = _place(self._editor.tree, names)
        if at is None:
            return
        now = self._editor.get(at)
        is_around = any(key[: len(place)] == place and len(key) > len(place) for key in self._placements)
        inner = _members(value) if is_around and (now is None or isinstance(now, dict | list)) else None
        if inner is not None:
            for name, member in inner.items():
                self._remove((*names, name), member)
            if self._editor.has(at) and self._editor.get(at) in ({}, [], None):
                self._cut(names, at, None)
        elif same(now, value) or _starts_same(now, value):
            self._cut(names, at, self._placements.get(place))
        else:
            self.kept.append(f"{dotted(names)} was changed since")

    def _named_now(self, names: KeyPath, value: Any) -> KeyPath:
        """Returns where an entry that the edit added is now, as a person may have renamed it."""
        around = _place(self._editor.tree, names[:-1])
        beside = (_members(self._editor.get(around)) or {}) if around is not None else {}
        for name in beside if names[-1] not in beside else ():
            if _starts_same(beside[name], value) and _place(self._after, (*names[:-1], name)) is None:
                return (*names[:-1], name)
        return names

    def _cut(self, names: KeyPath, at: KeyPath, placement: Placement | None) -> None:
        entry = self._entry_around(names)
        try:
            self._editor.remove(at, placement)
        except EditRefused as error:
            self.kept.append(str(error))
        else:
            if entry is None:
                self.removed.append(str(names[-1]))
            else:
                self._note_restored(entry)  # such as one that was switched off

    def _note_restored(self, entry: str) -> None:
        if entry not in self.restored:
            self.restored.append(entry)

    def _entry_around(self, names: KeyPath) -> str | None:
        """Returns the name of the entry that a key is in; None if it is in none."""
        for end in range(len(names) - 1, 0, -1):
            at = _place(self._editor.tree, names[:end])
            value = None if at is None else self._editor.get(at)
            if isinstance(value, dict) and any(key in value for key in _START):
                return str(names[end - 1])
        return None


def _starts_same(now: Any, value: Any) -> bool:
    """Returns whether an entry still starts or reaches what the edit wrote; clients add keys of their own to it."""
    if not isinstance(now, dict) or not isinstance(value, dict) or not any(key in value for key in _START):
        return False
    return all(same(now.get(key), value.get(key)) for key in _START)


def _members(value: Any) -> dict[Any, Any] | None:
    """Returns the members of an object by key, those of a list by name or else by their order; None for others."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    members: dict[Any, Any] = {}
    for item in value:
        name = item.get("name") if isinstance(item, dict) else None
        is_named = isinstance(name, str) and name not in members
        members[name if is_named else sum(isinstance(key, int) for key in members)] = item
    return members


def _is_resized(before: Any, after: Any) -> bool:
    """Returns whether items without names were added to or removed from a list; which ones cannot be told."""
    counts = [sum(isinstance(key, int) for key in _members(value) or ()) for value in (before, after)]
    return isinstance(before, list) and isinstance(after, list) and counts[0] != counts[1]


def _place(tree: Any, names: KeyPath) -> KeyPath | None:
    """Returns the key path of a value in a tree; None if it is not there."""
    at: KeyPath = ()
    for name in names:
        value = get(tree, at)
        if isinstance(value, list):
            name = next((index for index, key in enumerate(_members(value) or {}) if key == name), -1)
        at = (*at, name)
        if not has(tree, at):
            return None
    return at
