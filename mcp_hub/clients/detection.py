"""Finds the clients on this machine, and reads the servers in their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, Final

import msgspec

from mcp_hub.clients import Client, Machine
from mcp_hub.clients.table import CLIENTS
from mcp_hub.clients.translation import own_values
from mcp_hub.config.ancestry import options_of_serve
from mcp_hub.config.config_files import read_document
from mcp_hub.config.entry import EntryContext, read_entry
from mcp_hub.config.entry_keys import read_defaults
from mcp_hub.config.field_types import boolean
from mcp_hub.config.findings import Findings
from mcp_hub.config.inherited import capabilities
from mcp_hub.config.models import INSTALLERS, Server
from mcp_hub.config.package_specs import program_name
from mcp_hub.config.raw_entries import RawEntry, find_entries
from mcp_hub.config.settings import KeyTable
from mcp_hub.config.variables import VariableScope
from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import FileEditor, read_bytes
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import is_file
from mcp_hub.text import printable

_ANSWERS_YES: Final = frozenset({"-y", "--yes"})
Identity = tuple[Any, ...]
"""Equal for two entries of the same server: its command or URL, and its environment or headers."""


class FoundServer(msgspec.Struct, frozen=True):
    """One entry of a file."""

    id: str
    entry: RawEntry
    values: dict[str, Any]
    """The entry in the hub's own spelling, with variables as they are written."""
    server: Server | None
    """The server that the hub would start; None if the entry is not valid."""
    problem: str | None = None
    """Why it cannot be used, or is off."""
    is_hub: bool = False
    """Whether it starts a hub."""
    identity: Identity | None = None
    """Equal for all entries of the same server; None if it cannot be compared."""

    @property
    def on(self) -> bool:
        """Whether the entry is switched on in its file; a variable may still lack a value."""
        return boolean(self.values.get("enabled")) is not False

    @property
    def command_line(self) -> tuple[str, ...]:
        """The command line that it would run, or its URL, as written."""
        if "url" in self.values:
            return (str(self.values["url"]),)
        args = self.values.get("args") or ()
        return (str(self.values.get("command", "")), *map(str, args if isinstance(args, list | tuple) else (args,)))


class ClientFile(msgspec.Struct, frozen=True):
    """The file of a client, or another file of servers, as it is now."""

    path: Path
    client: Client | None = None
    there: bool = True
    servers: tuple[FoundServer, ...] = ()
    problem: str | None = None
    """A sentence on why the file cannot be read."""
    notes: tuple[str, ...] = ()
    """Warnings, such as servers of other projects, or other users who can write to the file."""

    @property
    def name(self) -> str:
        """The name of the client, else the path."""
        return self.client.name if self.client is not None else str(self.path)

    @property
    def hubs(self) -> list[FoundServer]:
        """The entries that start a hub."""
        return [server for server in self.servers if server.is_hub]


def identity_of(server: Server, environ: Mapping[str, str]) -> Identity | None:
    """Returns a value that is equal for entries of the same server; None for local and built-in servers.

    `environ` is what the client inherits from: an imported entry names what its client passes on without naming it.
    """
    if server.command:
        program = program_name(server.command)
        if program not in INSTALLERS and len(PureWindowsPath(server.command).parts) > 1:
            program = server.command
        args = tuple(argument for argument in server.args if argument not in _ANSWERS_YES)
        passed = {name: environ[name] for name in capabilities(environ)}
        variables = ((name, value.get_secret_value()) for name, value in server.env.items())
        env = sorted((name, value) for name, value in variables if value != passed.get(name))
        return ("run", program, args, tuple(env), str(server.cwd or ""))
    if server.url:
        headers = sorted((name.lower(), value.get_secret_value()) for name, value in server.headers.items())
        return ("reach", server.url.rstrip("/"), tuple(headers))
    return None


def find_client_files(machine: Machine) -> list[ClientFile]:
    """Returns the file of every client that is on this machine, also of those that have no file yet."""
    files = []
    for client in CLIENTS:
        path = machine.file_of(client)
        if path is not None:
            files.append(read_client_file(path, machine, client))
    return files


def project_files(directory: Path, machine: Machine) -> list[ClientFile]:
    """Returns the project files of clients in a directory.

    In the home directory, the user's own files of clients may have the same paths; they are left out.
    """
    files = []
    for client in CLIENTS:
        user_file = machine.file_of(client)
        for name in client.project_files:
            if is_file(directory / name) and (user_file is None or (directory / name).resolve() != user_file.resolve()):
                files.append(read_client_file(directory / name, machine, client))
    return files


def read_client_file(
    path: Path, machine: Machine, client: Client | None = None, project: Path | None = None
) -> ClientFile:
    """Reads a file of servers of any client. It never raises: an error becomes the `problem`.

    Claude Code's file also has servers for single directories; those for `project` are read too.
    """
    try:
        content = read_bytes(path)
    except ConfigError as error:
        return ClientFile(path, client, problem=str(error))
    if content is None:
        return ClientFile(path, client, there=False)
    try:
        document = read_document(path)
    except ConfigError as error:
        return ClientFile(path, client, problem=None if _is_blank(path, content, client) else str(error))
    findings = document.findings()
    if findings.errors:
        return ClientFile(path, client, problem="\n".join(findings.error_lines()))
    dialect, entries = find_entries(document.tree, path, KeyTable(), findings, project)
    if not entries:
        # A client's file of settings without servers is not an error.
        expected = client is None or not isinstance(document.tree, dict) or bool(document.tree.get(client.root[0]))
        problem = "\n".join(findings.error_lines()) if expected and findings.errors else None
        return ClientFile(path, client, problem=problem, notes=document.warnings)
    scope = dialect.scope(VariableScope(machine.environ, machine.home, path.parent))
    root = document.tree if isinstance(document.tree, dict) else {}
    defaults, servers = read_defaults(root, dialect, findings), []
    for raw in entries:
        entry_findings = Findings(lambda at: (path.name, document.line_of(at)))
        server = read_entry(raw, EntryContext(dialect, scope, document.written, entry_findings, defaults))
        values = own_values(raw, dialect, scope, server, defaults)
        reason = server.disabled_reason if server is not None else "; ".join(entry_findings.error_lines())
        identity = identity_of(server, machine.environ) if server is not None else None
        is_hub = _is_hub(server, machine)
        servers.append(FoundServer(raw.id, raw, values, server, reason or None, is_hub, identity))
    return ClientFile(path, client, True, tuple(servers), None, (*document.warnings, *_finding_lines(findings)))


def _is_blank(path: Path, content: bytes, client: Client | None) -> bool:
    """Returns whether a file has nothing but blanks, comments and a byte order mark."""
    try:
        return FileEditor(path, content, client.syntax if client is not None else None).tree in (None, {})
    except EditRefused:
        return False  # the caller reports the error


def _finding_lines(findings: Findings) -> Iterator[str]:
    for line in (*findings.error_lines(), *findings.warning_lines()):
        yield printable(line, 1000)


def _is_hub(server: Server | None, machine: Machine) -> bool:
    return bool(
        server is not None
        and server.command
        and options_of_serve((server.command, *server.args), machine.environ) is not None
    )
