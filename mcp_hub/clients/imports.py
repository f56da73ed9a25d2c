"""Imports the servers of clients into the hub's file: each once, under a unique name, without its secrets."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from mcp_hub.clients import Machine
from mcp_hub.clients.detection import ClientFile, FoundServer, Identity, read_client_file
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import KeyPath
from mcp_hub.config.secret_values import find_plain_secrets
from mcp_hub.config.variables import VariableScope
from mcp_hub.editing.edit import Edit
from mcp_hub.editing.secret_store import KeptSecret, KeyringSecret, SecretStore
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable

Action = Literal["add", "same", "hub", "broken"]
_UNSAFE: Final = re.compile(r"[^\w.-]+")
_NOT_SECRET: Final = frozenset({"command"})


class ImportedServer(msgspec.Struct):
    """One server, and what the import does with it."""

    id: str
    """Its name in the hub's file."""
    sources: list[str]
    """The clients that have it, such as `Cursor`, or `Cursor (gh)` if its name there differs."""
    found: FoundServer
    action: Action
    """`add`: it is new. `same`: the hub has it. `hub`: it is a hub. `broken`: it cannot be used."""
    same_as: str | None = None
    secrets: list[str] = []
    """The names of its secrets, which go into the keyring or a file."""

    @property
    def reason(self) -> str:
        """Why it is not imported, or what it lacks; "" if neither."""
        if self.action == "same":
            return f"the hub has it as {self.same_as}"
        if self.action == "hub":
            return "starts a hub; it is left out"
        return self.found.problem or ""

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` prints. No secret is in it."""
        words = [Redactor().text(printable(word)) for word in shown_words(self.found)]
        facts = {"name": self.id, "from": self.sources, "action": self.action, "runs": words, "on": self.found.on}
        return facts | {"same_as": self.same_as, "secrets": self.secrets, "note": printable(self.reason, 1000)}


def shown_words(found: FoundServer) -> list[str]:
    """Returns the command line or URL of an entry with `***` for its secrets."""
    words = list(found.words)
    for at in _secret_places(found.values):
        if at[0] == "args" and isinstance(found.values["args"], list):
            words[1 + int(at[1])] = "***"
        elif at[0] == "args":  # not a list, so the entry is not valid
            words[1:] = ["***"]
        elif at[0] == "url":
            words[0] = Redactor().text(words[0])
    return words


class ImportPlan(msgspec.Struct, frozen=True):
    """The changes of an import."""

    servers: tuple[ImportedServer, ...]
    edits: tuple[Edit, ...]
    keyring: tuple[KeyringSecret, ...]
    notes: tuple[str, ...]
    """Sentences on files that could not be read, and on what is left out."""

    @property
    def added(self) -> list[ImportedServer]:
        """The servers that are new."""
        return [server for server in self.servers if server.action == "add"]


def plan_import(files: Sequence[ClientFile], target: ServerFile, store: SecretStore, machine: Machine) -> ImportPlan:
    """Plans the import of the servers in `files` into the file `target`. Nothing is written.

    Raises:
        EditRefused: the target cannot be edited.
    """
    own = read_client_file(target.path, machine)
    known: dict[Identity, str] = {one.identity: one.id for one in own.servers if one.identity is not None}
    names = set(target.entries)
    rows: list[ImportedServer] = []
    by_identity: dict[Identity, ImportedServer] = {}
    edits: list[Edit] = []
    keyring: list[KeyringSecret] = []
    for file in files:
        for found in file.servers:
            identity = found.identity
            if identity is not None and identity in by_identity:
                row = by_identity[identity]
                row.sources.append(_source(file, found, row.id))
                if found.on and not row.found.on:
                    row.found = found  # a server that is on in any client is imported as on
                continue
            row = _row(found, known, names, file)
            rows.append(row)
            if identity is not None:
                by_identity[identity] = row
    for row in rows:
        if row.action != "add":
            continue
        values, kept = without_secrets(row.id, row.found.values, store)
        row.secrets = [name for name, _ in kept]
        edits += [secret.edit for _, secret in kept if secret.edit is not None]
        keyring += [secret.keyring for _, secret in kept if secret.keyring is not None]
        target.add(row.id, values)
    notes = [f"{file.name}: {file.problem}" for file in files if file.problem is not None]
    notes += [f"{file.name}: {note}" for file in files for note in file.notes]
    return ImportPlan(tuple(rows), (*edits, target.edit()), tuple(keyring), tuple(notes))


def _row(found: FoundServer, known: Mapping[Identity, str], names: set[str], file: ClientFile) -> ImportedServer:
    identity = found.identity
    if found.is_hub:
        return ImportedServer(found.id, [_source(file, found, found.id)], found, "hub")
    if found.server is None or identity is None:
        return ImportedServer(found.id, [_source(file, found, found.id)], found, "broken")
    if identity in known:
        same = known[identity]
        return ImportedServer(same, [_source(file, found, same)], found, "same", same)
    id = _free_name(found.id, file, names)
    names.add(id)
    return ImportedServer(id, [_source(file, found, id)], found, "add")


def _source(file: ClientFile, found: FoundServer, id: str) -> str:
    return printable(file.name) if found.id == id else f"{printable(file.name)} ({printable(found.id, 100)})"


def _free_name(id: str, file: ClientFile, names: set[str]) -> str:
    """Returns a name that no other server has: its own, else with its client, else with a number."""
    if id not in names:
        return id
    of = file.client.id if file.client is not None else _UNSAFE.sub("-", file.path.stem).strip("-.") or "file"
    name, number = f"{id}-{of}", 1
    while name in names:
        number += 1
        name = f"{id}-{of}-{number}"
    return name


def without_secrets(
    id: str, values: Mapping[str, Any], store: SecretStore
) -> tuple[dict[str, Any], list[tuple[str, KeptSecret]]]:
    """Returns an entry that refers to its secrets, and the secrets by name."""
    clean = copy.deepcopy(dict(values))
    kept = []
    for at in _secret_places(values):
        inside: Any = clean
        for part in at[:-1]:
            inside = inside[part]
        name = str(at[-1]) if len(at) > 1 and isinstance(at[-1], str) else "-".join(map(str, at))
        secret = store.place(id, name, str(inside[at[-1]]))
        inside[at[-1]] = secret.reference
        kept.append((name, secret))
    return clean, kept


def _secret_places(values: Mapping[str, Any]) -> Iterator[KeyPath]:
    from pathlib import Path

    scope = VariableScope({}, Path("/"), Path("/"))
    given = {name: FieldValue(value, (name,)) for name, value in values.items()}
    for at in find_plain_secrets(given, scope):
        if at[0] not in _NOT_SECRET:
            yield at
