"""Adds the hub's entry to files of clients and removes it, and switches off there the servers that the hub serves."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.clients import Client, Machine, entry_of
from mcp_hub.clients.detection import ClientFile, FoundServer, project_files, read_client_file
from mcp_hub.clients.table import BY_ID, client_named
from mcp_hub.config.findings import KeyPath
from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import Edit, FileEditor
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.reversal import Reversal
from mcp_hub.security.private_files import expand_home
from mcp_hub.text import printable

ENTRY: Final = "hub"
"""The name of the hub's entry."""
_TEMPORARY: Final = ("/uv/archive-v", "/uv/builds-v", "\\uv\\archive-v", "/pipx/.cache/", "/pipx/cache/", "/_npx/")
"""Parts of the paths of temporary environments, which their tools delete at any time."""


class Installation(msgspec.Struct, frozen=True):
    """A change of a client's file."""

    file: ClientFile
    edit: Edit
    switched_off: tuple[str, ...] = ()
    """The servers that are switched off in or removed from the client, as the hub serves them."""
    restored: tuple[str, ...] = ()
    """The servers that are restored in the client, as the hub is removed."""


def hub_command(*configs: Path) -> tuple[str, ...]:
    """Returns the command line that starts this hub with a configuration of these files, by absolute paths only.

    Raises:
        EditRefused: the hub runs from a temporary environment.
    """
    if any(part in sys.prefix for part in _TEMPORARY):
        raise EditRefused(
            "this hub runs from a temporary environment, which a client would not find again; install it first, "
            "for example with: uv tool install mcp-hub-gateway"
        )
    serve = ["serve", *(argument for path in configs for argument in ("--config", str(path)))]
    for name in ("mcp-hub.exe", "mcp-hub"):
        program = Path(sys.executable).with_name(name)
        if program.is_file() and os.access(program, os.X_OK):
            return (str(program), *serve)
    return (sys.executable, "-P", "-m", "mcp_hub", *serve)


def open_file(client: Client, machine: Machine) -> ClientFile:
    """Returns the file of a client. Raises EditRefused if the client is not found, or its file cannot be read."""
    path = machine.file_of(client)
    if path is None:
        searched_paths = ", ".join(str(candidate) for template in client.files for candidate in machine.paths(template))
        raise EditRefused(f"{client.name} was not found on this machine. Looked for {printable(searched_paths, 1000)}")
    file = read_client_file(path, machine, client)
    if file.problem is not None:
        raise EditRefused(file.problem)
    return file


def named_file(name: str, machine: Machine) -> ClientFile:
    """Returns the file of a client, by its name, or another file of servers, by its path. Raises EditRefused."""
    path = Path.cwd() / expand_home(name)
    if name in BY_ID or not (path.exists() or "/" in name or os.sep in name or path.suffix):
        return open_file(client_named(name), machine)
    file = read_client_file(path, machine)
    if not file.there or file.problem is not None:
        raise EditRefused(file.problem or f"{printable(str(path))}: there is no such file")
    return file


def project_notes(machine: Machine) -> list[str]:
    """Returns notes on servers in project files of the working directory, which are imported only on request."""
    notes = []
    for file in project_files(Path.cwd(), machine):
        if names := ", ".join(printable(server.id, 60) for server in file.servers if not server.is_hub):
            path = printable(str(file.path.relative_to(Path.cwd())))
            notes.append(f"{path} of this directory is left alone ({names}); to take it over: mcp-hub import {path}")
    return notes


def plan_install(
    client: Client, machine: Machine, command: Sequence[str], originals: Sequence[FoundServer] | None = None
) -> Installation:
    """Plans to add the hub to a client. The hub's entry stays unchanged if it is there already.

    `originals` are servers of the hub that are switched off in the client; None: all stay on.

    Raises:
        EditRefused: the client is not found, its file cannot be edited, or another server has the hub's name.
    """
    try:
        file = open_file(client, machine)
        editor = FileEditor.open(file.path, client.syntax)
        entry = entry_of(client, ENTRY, command[0], tuple(command[1:]))
        existing = next((server for server in file.hubs if _is_same(server, entry, command)), None)
        if existing is None and any(server.id == ENTRY and not server.is_hub for server in file.servers):
            raise EditRefused(f"{printable(str(file.path))}: there is another server {ENTRY!r}; rename it there first")
        switched_off = []
        # From the end, so that the positions of earlier entries stay valid.
        for server in reversed(file.servers):
            if server.is_hub and server.id == ENTRY and server is not existing:
                editor.remove(server.entry.at)
            elif originals is not None and server.on and not server.is_hub and _is_served(server, originals):
                _switch_off(client, editor, server)
                switched_off.append(server.id)
        if existing is None:
            root = _root(client, editor)
            editor.insert(_new_key_path(client, editor, root, ENTRY), entry)
    except EditRefused as error:
        raise EditRefused(_with_own_command(str(error), client, machine, command)) from None
    return Installation(file, editor.edit(), tuple(reversed(switched_off)))


def _is_same(server: FoundServer, entry: Mapping[str, Any], command: Sequence[str]) -> bool:
    """Returns whether a server is the hub with this entry, or a hub that serves the same configuration."""
    if server.id == ENTRY:
        return server.on and dict(server.entry.values) == entry
    serve_arguments = tuple(command[command.index("serve") :])
    return server.on and server.command_line[-len(serve_arguments) :] == serve_arguments


def _is_served(server: FoundServer, originals: Sequence[FoundServer]) -> bool:
    served_identities = [
        original.identity
        for original in originals
        if original.server is not None and original.server.enabled and not original.is_hub
    ]
    return server.identity is not None and server.identity in served_identities


def plan_uninstall(client: Client, machine: Machine, journal: Journal) -> Installation:
    """Plans to remove the hub from a client. A file that was not edited since is restored as it was.

    Raises:
        EditRefused: the client is not found, or its file cannot be edited.
    """
    file = open_file(client, machine)
    editor = FileEditor.open(file.path, client.syntax)
    installed = next(_installs(journal, client, file.path), None)
    if installed is not None and installed.after == editor.before:
        return Installation(file, Edit(file.path, installed.after, installed.before))
    for server in reversed(file.hubs):
        editor.remove(server.entry.at, journal.placement(file.path, server.entry.at))
    restored = tuple(Reversal(installed, editor).restored) if installed is not None else ()
    return Installation(file, editor.edit(), restored=restored)


def _installs(journal: Journal, client: Client, path: Path) -> Iterator[Edit]:
    """Yields the edits that added the hub to the file, newest first."""
    for run in journal.runs():
        for edit in run.edits if not run.undone else ():
            if edit.path == path and edit.placements:
                before = FileEditor(edit.path, edit.before, client.syntax)
                entries = before.get(_root(client, before))
                names: Any = [entry.get("name") for entry in entries] if isinstance(entries, list) else entries or ()
                if ENTRY not in names:
                    yield edit


def _root(client: Client, editor: FileEditor) -> KeyPath:
    """Returns the key below which the client has its servers; opencode moved it in its second version."""
    if client.form == "opencode" and editor.has(("mcp", "servers")):
        return ("mcp", "servers")
    return client.root


def _new_key_path(client: Client, editor: FileEditor, root: KeyPath, name: str) -> KeyPath:
    """Returns the key path of a new entry of that name, after the others."""
    entries = editor.get(root)
    return (*root, (len(entries) if isinstance(entries, list) else 0) if client.listed else name)


def _switch_off(client: Client, editor: FileEditor, server: FoundServer) -> None:
    off = client.off
    if client.form == "opencode" and editor.has(("mcp", "servers")):
        off = ("disabled", True)
    if off is None:
        editor.remove(server.entry.at)
    else:
        editor.put((*server.entry.at, off[0]), off[1])


def _with_own_command(text: str, client: Client, machine: Machine, command: Sequence[str]) -> str:
    """Returns an error text, with the client's own command to add a server if it has one."""
    if client.instead is None or not machine.has(client):
        return text
    return f"{text}. Its own command works all the same: {client.instead} {ENTRY} -- {shlex.join(command)}"
