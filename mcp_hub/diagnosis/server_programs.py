"""Checks the programs that start servers: where they are, their versions, and whether client programs find them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from mcp_hub import codes
from mcp_hub.clients import Machine
from mcp_hub.config.commands import CommandNotFound, child_environment, find_command
from mcp_hub.config.models import Config, Server
from mcp_hub.config.package_specs import unwrap_command
from mcp_hub.diagnosis import Finding, Section, ok, warn
from mcp_hub.diagnosis.probes import first_line, in_parallel, of_desktop
from mcp_hub.text import printable

_LAUNCHERS: Final = frozenset({"npx", "npm", "node", "bun", "bunx", "deno", "uv", "uvx", "pipx", "docker", "podman"})
"""Programs whose version is shown; each has an option `--version`."""
_OF_NODE: Final = frozenset({"npx", "npm"})
"""Launchers that run on Node, whose version is shown instead of theirs."""
_NODE: Final = re.compile(r"Node v(\d{1,4})\.")
_NODE_NEEDED: Final = 18
"""The oldest Node.js that MCP's SDK for TypeScript supports. An older one has syntax errors in packages."""
_COMMON: Final = {
    "npx": "servers from npm need Node.js",
    "uvx": "servers from PyPI need uv",
    "docker": "servers in containers need it",
}
"""The launchers of most servers -> what needs each."""


def programs_section(config: Config | None, machine: Machine) -> Section:
    """Returns `doctor`'s findings on the programs of all servers that are switched on, and of the common launchers.

    `config`: None if there is none that can be used.
    """
    servers = [server for server in config.servers if server.enabled] if config is not None else []
    commands = {server.command: server for server in servers if server.command is not None}
    rows = in_parallel(lambda server: _program(server, machine), list(commands.values()))
    names = {unwrap_command(command, server.args)[0] for command, server in commands.items()}
    unused_launchers = [_common(name, machine) for name in _COMMON if name not in names]
    return Section("Programs", (*(finding for row in rows for finding in row), *unused_launchers))


def _common(name: str, machine: Machine) -> Finding:
    """Returns the finding on a launcher that no server uses. The launcher is not started."""
    server = Server(id=name, transport="stdio", command=name, namespace="")
    try:
        file = find_command(name, child_environment(server, machine.environ, machine.home)["PATH"], None)
    except CommandNotFound:
        return ok(name, f"not installed; {_COMMON[name]}")
    return ok(name, f"{printable(file, 500)}, used by no server")


def _program(server: Server, machine: Machine) -> list[Finding]:
    command = server.command or ""
    about = printable(command, 200)
    environ = child_environment(server, machine.environ, machine.home)
    try:
        file = find_command(command, environ["PATH"], server.cwd)
    except CommandNotFound:
        return []  # the failure of its server says it
    version = _version(unwrap_command(command, server.args)[0], file, environ)
    text = printable(file, 500) + (f", {printable(version, 100)}" if version is not None else "")
    findings = [ok(about, text)]
    if version is not None and (node := _NODE.match(version)) and int(node[1]) < _NODE_NEEDED:
        findings = [warn(about, f"{text}: most servers need Node {_NODE_NEEDED} or newer", codes.NODE_TOO_OLD)]
    desktop = child_environment(server, of_desktop(machine), machine.home)
    try:
        desktop_file = find_command(command, desktop["PATH"], server.cwd)
    except CommandNotFound:
        text = f"a desktop application would not find it: {printable(os.path.dirname(file))} is not in its PATH"  # noqa: PTH120
        return [*findings, warn(about, f"{text}; write {printable(file)} as 'command'", codes.SHORT_PATH)]
    if os.path.realpath(desktop_file) != os.path.realpath(file):
        findings.append(ok(about, f"a desktop application would start {printable(desktop_file, 500)}"))
    return findings


def _version(name: str, file: str, environ: Mapping[str, str]) -> str | None:
    """Returns the version of a launcher, for npx and npm that of Node."""
    if name in _OF_NODE:
        try:
            node = find_command("node", environ["PATH"], None)
        except CommandNotFound:
            return "without Node"
        version = first_line([node, "--version"], environ)
        return None if version is None else f"Node {version}"
    return first_line([file, "--version"], environ) if name in _LAUNCHERS else None
