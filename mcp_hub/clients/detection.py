"""Finds the clients on this machine, and reads the servers in their files, in the hub's own keys (`servers.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, Final

import msgspec

from mcp_hub.clients import Client, Machine
from mcp_hub.clients.table import CLIENTS
from mcp_hub.config.ancestry import options_of_serve
from mcp_hub.config.config_files import read_document
from mcp_hub.config.dialect import FILTERS, RESTRICTIONS, Dialect
from mcp_hub.config.entry import EntryContext, read_entry
from mcp_hub.config.entry_keys import canonical_values, read_defaults
from mcp_hub.config.field_types import boolean
from mcp_hub.config.fields import FieldValue
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


# --- entries in the hub's own keys ----------------------------------------------------------------------------------


_ORDER: Final = ("command", "args", "env", "env_file", "cwd", "url", "transport", "headers")
"""Keys of an entry in the order in which a person would write them."""
FILTER_KEYS: Final = {half: key for key, half in reversed(FILTERS.items())}
"""Half of a filter -> the hub's own key of it, which is the first of all."""
_BARE: Final = re.compile(r"\$\$\{|\$\{|\$([A-Za-z_][A-Za-z0-9_]*)")
_FILE: Final = re.compile(r"(?<!\$)\{file:([^{}]*)\}")
_FILE_VARIABLE: Final = re.compile(r"(?<!\$)\$\{file:([^{}]*)\}")
_OS_ENVIRON: Final = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")


def own_values(
    raw: RawEntry,
    dialect: Dialect,
    scope: VariableScope,
    server: Server | None,
    defaults: Mapping[str, FieldValue],
) -> dict[str, Any]:
    """Returns an entry, with the defaults of its file, in the hub's own keys and forms of variables.

    Variables are not expanded. `server` is the server of the entry; None if the entry is not valid.
    """
    fields = canonical_values(raw.values, raw.at, dialect, Findings(lambda at: ("", None)))
    fields |= {name: item for name, item in defaults.items() if name not in fields}
    _unfold_command(fields)
    entry: dict[str, Any] = {}
    for name, item in fields.items():
        _add(entry, name, item, dialect, scope)
    if server is not None and server.url and server.transport not in (None, "auto"):
        entry["transport"] = server.transport
    elif "url" not in entry:
        entry.pop("transport", None)
    if boolean(entry.pop("disabled", None)) or raw.id in dialect.off:
        entry["enabled"] = False
    if boolean(entry.get("enabled")):
        del entry["enabled"]
    if refused := dialect.refused.get(raw.id):
        entry["disable_tools"] = [*entry.get("disable_tools", ()), *refused]
    allowed, denied = entry.get("enable_tools"), entry.get("disable_tools")
    if allowed == ["*"]:
        del entry["enable_tools"]
    elif isinstance(allowed, list) and isinstance(denied, list):
        # The hub refuses a name in both lists; in clients that have both, the denial wins.
        entry["enable_tools"] = [name for name in allowed if name not in denied]
    entry |= {key: raw.values[key] for key in RESTRICTIONS if key in raw.values}
    return {key: entry[key] for key in (*_ORDER, *(key for key in entry if key not in _ORDER)) if key in entry}


def _unfold_command(fields: dict[str, FieldValue]) -> None:
    """Brings `command` and `args` into the hub's form: opencode has both in a list, an older Zed in a mapping."""
    command = fields.get("command")
    if command is None:
        return
    if isinstance(command.value, list) and command.value:
        args = fields["args"].value if "args" in fields else []
        argv = [*command.value, *(args if isinstance(args, list) else [])]
        fields["command"] = FieldValue(argv[0], command.at)
        fields["args"] = FieldValue(argv[1:], command.at)
    elif isinstance(command.value, dict):
        del fields["command"]
        for key, name in (("path", "command"), ("args", "args"), ("env", "env")):
            if key in command.value:
                fields[name] = FieldValue(command.value[key], command.at)


def _add(entry: dict[str, Any], name: str, item: FieldValue, dialect: Dialect, scope: VariableScope) -> None:
    kind, _, subkey = name.partition(".")
    if item.value is None or item.value in ({}, []):
        return
    if kind == "deadlines":
        value = item.value
        if isinstance(value, int | float) and not isinstance(value, bool) and item.unit != 1.0:
            value = value * item.unit
            value = int(value) if value == int(value) else value
        entry.setdefault("deadlines", {})[subkey] = value
    elif kind == "filters":
        entry[FILTER_KEYS[subkey]] = item.value
    elif name == "toolDescriptionOverrides" and isinstance(item.value, dict):
        tools = entry.setdefault("tools", {})
        for tool, text in item.value.items():
            tools[tool] = {"description": text, **tools.get(tool, {})}
    elif name == "tools" and isinstance(item.value, dict):
        tools = entry.setdefault("tools", {})
        for tool, rules in _texts(item.value, scope, bare=scope.bare_names).items():
            tools[tool] = {**tools.get(tool, {}), **rules} if isinstance(rules, dict) else rules
    elif name == "env" and isinstance(item.value, list):
        # As 1MCP writes it: NAME=value, and NAME alone for a variable of the hub.
        pairs = [assignment.partition("=") for assignment in item.value if isinstance(assignment, str)]
        if names := [key for key, equals, _ in pairs if not equals]:
            entry["env_vars"] = names
        if values := {key: _texts(text, scope, bare=scope.bare_names) for key, equals, text in pairs if equals}:
            entry["env"] = values
    else:
        bare = scope.bare_names or (dialect.is_goose and name == "headers")
        entry[name] = _texts(item.value, scope, bare=bare, path=name in ("cwd", "env_file"))


def _texts(value: Any, scope: VariableScope, *, bare: bool, path: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _texts(member, scope, bare=bare) for key, member in value.items()}
    if isinstance(value, list):
        return [_texts(member, scope, bare=bare) for member in value]
    if not isinstance(value, str):
        return value
    if scope.os_environ and (environ_match := _OS_ENVIRON.fullmatch(value)):
        return f"${{{environ_match[1]}}}"
    if bare:
        value = _BARE.sub(lambda match: f"${{{match[1]}}}" if match[1] else match[0], value)
    if scope.file_braces:
        value = _FILE.sub(lambda match: f"${{file:{scope.path(match[1])}}}", value)
    value = _FILE_VARIABLE.sub(lambda match: f"${{file:{scope.path(match[1])}}}", value)
    if (workspace := scope.workspace) is not None:
        value = value.replace("${workspaceFolder}", str(workspace))
        value = value.replace("${workspaceFolderBasename}", workspace.name)
    return str(scope.path(value)) if path and not value.startswith("$") else value
