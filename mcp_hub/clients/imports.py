"""Imports the servers of clients into the hub's file: each once, under a unique name, without its secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from mcp_hub.clients import Machine
from mcp_hub.clients.detection import ClientFile, FoundServer, Identity, read_client_file
from mcp_hub.config.inherited import capabilities, inherited, withheld
from mcp_hub.editing.edit import Edit
from mcp_hub.editing.secret_store import KeyringSecret, SecretStore, hidden
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.security.redaction import Redactor, is_secret_key
from mcp_hub.text import printable

Action = Literal["add", "same", "hub", "broken"]
SHOWN_NAMES: Final = 30
"""Variables that the note on the environment names."""
_UNSAFE: Final = re.compile(r"[^\w.-]+")


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
    passed: set[str] = set()
    """The variables that it inherits from its clients, besides the usual ones."""
    inherits: list[str] = []
    """Those of them that its new entry names, as the hub passes them to some programs only."""

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
        argv = [Redactor().text(printable(argument)) for argument in shown_words(self.found)]
        facts = {"name": self.id, "from": self.sources, "action": self.action, "runs": argv, "on": self.found.on}
        facts |= {"same_as": self.same_as, "secrets": self.secrets, "inherits": self.inherits}
        return facts | {"note": printable(self.reason, 1000)}

    def passed_capabilities(self, environ: Mapping[str, str]) -> list[str]:
        """Returns the capabilities that its clients pass on, and that it has only if its entry names them."""
        server, env = self.found.server, self.found.values.get("env", {})
        if server is None or not server.command or not isinstance(env, dict):
            return []
        own = {*env, *inherited(server, environ)}
        return sorted(name for name in capabilities(environ) if name in self.passed and name not in own)

    @property
    def values(self) -> dict[str, Any]:
        """Its new entry, which names what it `inherits`."""
        named = {name: f"${{{name}}}" for name in self.inherits}
        return self.found.values | ({"env": self.found.values.get("env", {}) | named} if named else {})

    def withheld(self, environ: Mapping[str, str]) -> set[str]:
        """Returns the variables that its clients pass on, and the hub does not."""
        server = self.found.server
        names = withheld(server, environ) if server is not None and server.command and self.found.on else ()
        return self.passed.intersection(names).difference(self.inherits)


def shown_words(server: FoundServer) -> list[str]:
    """Returns the command line or URL of an entry with `***` for its secrets."""
    clean = hidden(server.values)
    return list(msgspec.structs.replace(server, values=clean).command_line)


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
    target_file = read_client_file(target.path, machine)
    known_ids: dict[Identity, str] = {
        server.identity: server.id for server in target_file.servers if server.identity is not None
    }
    names = set(target.entries)
    rows: list[ImportedServer] = []
    by_identity: dict[Identity, ImportedServer] = {}
    edits: list[Edit] = []
    keyring: list[KeyringSecret] = []
    withheld_names: set[str] = set()
    for file in files:
        for server in file.servers:
            identity = server.identity
            if identity is not None and identity in by_identity:
                row = by_identity[identity]
                row.sources.append(_source(file, server, row.id))
                row.passed |= _passed_on(file, machine)
                if server.on and not row.found.on:
                    row.found = server  # a server that is on in any client is imported as on
                continue
            row = _row(server, known_ids, names, file)
            row.passed = _passed_on(file, machine)
            rows.append(row)
            if identity is not None:
                by_identity[identity] = row
    for row in rows:
        if row.action != "add":
            continue
        row.inherits = row.passed_capabilities(machine.environ)
        values, secrets = store.without_secrets(row.id, row.values)
        withheld_names |= row.withheld(machine.environ)
        row.secrets = [name for name, _ in secrets]
        edits += [secret.edit for _, secret in secrets if secret.edit is not None]
        keyring += [secret.keyring for _, secret in secrets if secret.keyring is not None]
        target.add(row.id, values)
    notes = [f"{file.name}: {file.problem}" for file in files if file.problem is not None]
    notes += [f"{file.name}: {note}" for file in files for note in file.notes]
    if withheld_names:
        notes.append(_withheld_note(withheld_names))
    return ImportPlan(tuple(rows), (*edits, target.edit()), tuple(keyring), tuple(notes))


def _passed_on(file: ClientFile, machine: Machine) -> set[str]:
    return file.client.passed_on(machine.environ) if file.client is not None else set()


def _withheld_note(names: set[str]) -> str:
    """Returns the note on variables that servers had in their clients, those that look like secrets first."""
    ordered = sorted(names, key=lambda name: (not is_secret_key(name), name))
    more = f" and {len(ordered) - SHOWN_NAMES} more" if len(ordered) > SHOWN_NAMES else ""
    return (
        f"servers got these variables from their clients, and do not get them from the hub: "
        f"{', '.join(ordered[:SHOWN_NAMES])}{more}. If one needs NAME, write env: {{NAME: ${{NAME}}}} into its entry"
    )


def _row(server: FoundServer, known_ids: Mapping[Identity, str], names: set[str], file: ClientFile) -> ImportedServer:
    identity = server.identity
    if server.is_hub:
        return ImportedServer(server.id, [_source(file, server, server.id)], server, "hub")
    if server.server is None or identity is None:
        return ImportedServer(server.id, [_source(file, server, server.id)], server, "broken")
    if identity in known_ids:
        same_id = known_ids[identity]
        return ImportedServer(same_id, [_source(file, server, same_id)], server, "same", same_id)
    id = _free_name(server.id, file, names)
    names.add(id)
    return ImportedServer(id, [_source(file, server, id)], server, "add")


def _source(file: ClientFile, server: FoundServer, id: str) -> str:
    return printable(file.name) if server.id == id else f"{printable(file.name)} ({printable(server.id, 100)})"


def _free_name(id: str, file: ClientFile, names: set[str]) -> str:
    """Returns a name that no other server has: its own, else with its client, else with a number."""
    if id not in names:
        return id
    origin = file.client.id if file.client is not None else _UNSAFE.sub("-", file.path.stem).strip("-.") or "file"
    name, number = f"{id}-{origin}", 1
    while name in names:
        number += 1
        name = f"{id}-{origin}-{number}"
    return name
