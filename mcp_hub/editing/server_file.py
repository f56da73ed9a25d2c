"""Edits the entries of a configuration file of any dialect: adds, removes, switches and changes them."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.raw_entries import RawEntry, find_entries
from mcp_hub.config.settings import KeyTable
from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import Edit, FileEditor, read_bytes
from mcp_hub.editing.journal import Journal
from mcp_hub.text import printable

_ON: Final = ("enabled", "isActive")
_OFF: Final = "disabled"


class Word(msgspec.Struct, frozen=True):
    """A word of the command line of an entry, and the key path of its text."""

    at: KeyPath
    text: str


class ServerFile:
    """One file of servers. Every method raises EditRefused with a sentence for the user."""

    def __init__(self, path: Path, content: bytes | None) -> None:
        """`content` is what the file holds; None: there is no file yet."""
        self.path = path
        self.content = content
        self._editor = FileEditor(path, content)
        self.entries = {entry.id: entry for entry in self._find()}

    @classmethod
    def open(cls, path: Path) -> Self:
        """Reads the file at `path`; one that does not exist has no entries."""
        return cls(path, read_bytes(path))

    def fresh(self) -> ServerFile:
        """Returns the file as it was read, without the changes that were made since."""
        return ServerFile(self.path, self.content)

    def _find(self) -> list[RawEntry]:
        return find_entries(self._editor.tree, self.path, KeyTable(), Findings(lambda at: (self.path.name, None)))[1]

    def entry(self, id: str) -> RawEntry:
        """Returns an entry."""
        if id not in self.entries:
            if self.content is None:
                raise EditRefused(f"{printable(str(self.path))}: there is no such file; create it with `mcp-hub setup`")
            names = printable(", ".join(self.entries), 500) or "none"
            raise EditRefused(
                f"{printable(str(self.path))}: there is no server {printable(id, 100)!r}; there are: {names}"
            )
        return self.entries[id]

    def add(self, id: str, values: Mapping[str, Any]) -> None:
        """Adds an entry after the others."""
        if id in self.entries:
            text = f"there is a server {printable(id, 100)!r} already; choose another name (--name NAME)"
            raise EditRefused(f"{printable(str(self.path))}: {text}")
        last = next(reversed(self.entries.values()), None)
        if last is not None and isinstance(last.at[-1], int):
            at: KeyPath = (*last.at[:-1], last.at[-1] + 1)
            values = {"name": id, **values}
        else:
            at = (*(last.at[:-1] if last is not None else self._root()), id)
        self._editor.insert(at, dict(values))
        self.entries[id] = RawEntry(id, values, at)

    def has_profile(self, name: str) -> bool:
        """Returns whether the file has a profile of this name."""
        return self._editor.has(("profiles", name))

    def add_profile(self, name: str, servers: Iterable[str]) -> None:
        """Adds a profile with all tools of these servers."""
        self._editor.insert(("profiles", name), {"tools": [f"{glob.escape(id)}/*" for id in servers]})

    def _root(self) -> KeyPath:
        """Returns the root key for servers, in a file without servers."""
        tree = self._editor.tree
        for root in ("servers", "mcpServers", "mcp_servers", "context_servers"):
            if isinstance(tree, dict) and root in tree:
                return (root,)
        return ("servers",)

    def remove(self, id: str, journal: Journal) -> None:
        """Removes an entry. If the hub added it, the file is restored as it was before."""
        at = self.entry(id).at
        self._editor.remove(at, journal.placement(self.path, at))
        self.entries = {entry.id: entry for entry in self._find()}

    def switch(self, id: str, *, on: bool) -> None:
        """Switches an entry on or off by its key `enabled`, `isActive` or `disabled`."""
        entry = self.entry(id)
        names = [name for name in (*_ON, _OFF) if name in entry.values]
        if not set(names) <= self._written_values(entry).keys():
            raise EditRefused(f"{printable(str(self.path))}: {printable(id, 100)!r} is switched by a key of 'params'")
        for name in names:
            if entry.values[name] is not ((name in _ON) == on):
                self._editor.put((*entry.at, name), (name in _ON) == on)
        if not names and not on:
            self._editor.insert((*entry.at, _ON[0]), False)
        self.entries = {entry.id: entry for entry in self._find()}

    def words(self, id: str) -> Iterator[Word]:
        """Yields the words of the command line of an entry; none if it is not written as texts."""
        entry = self.entry(id)
        values = self._written_values(entry)
        for name in ("command", "cmd", "args"):
            value = values.get(name)
            for key, text in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(text, str):
                    yield Word((*entry.at, name, *([] if key is None else [key])), text)

    def put(self, word: Word, text: str) -> None:
        """Replaces a word of a command line."""
        self._editor.put(word.at, text)

    def edit(self) -> Edit:
        """Returns all changes so far as one edit of the file."""
        return self._editor.edit()

    def _written_values(self, entry: RawEntry) -> Mapping[str, Any]:
        node = self._editor.tree
        for part in entry.at:
            node = node[part]
        return node if isinstance(node, dict) else {}
