"""The programs that servers are started by: where they are, their versions, and whether client programs find them."""

from __future__ import annotations

import os
from typing import Final

from mcp_hub import codes
from mcp_hub.clients import Machine
from mcp_hub.config.commands import CommandNotFound, child_environment, find_command, unwrap_command
from mcp_hub.config.models import Config, Server
from mcp_hub.diagnosis import Finding, Section, ok, warn
from mcp_hub.diagnosis.probes import first_line, in_parallel, of_desktop
from mcp_hub.text import printable

_LAUNCHERS: Final = frozenset({"npx", "npm", "node", "bun", "bunx", "deno", "uv", "uvx", "pipx", "docker", "podman"})
"""Programs whose version is asked for; each knows `--version`."""


def programs_section(config: Config, machine: Machine) -> Section:
    """Returns what `doctor` says of the programs of all servers that are switched on."""
    servers = [server for server in config.servers if server.enabled and server.command is not None]
    commands = {server.command or "": server for server in servers}
    found = [
        one for row in in_parallel(lambda server: _program(server, machine), list(commands.values())) for one in row
    ]
    return Section("Programs", tuple(found or [ok("programs", "no server is started by one that was found")]))


def _program(server: Server, machine: Machine) -> list[Finding]:
    command = server.command or ""
    shown = printable(command, 200)
    environ = child_environment(server, machine.environ, machine.home)
    try:
        file = find_command(command, environ["PATH"], server.cwd)
    except CommandNotFound:
        return []  # the failure of its server says it
    name, _ = unwrap_command(command, server.args)
    said = first_line([file, "--version"], environ) if name in _LAUNCHERS else None
    found = [ok(shown, printable(file, 500) + (f", {printable(said, 100)}" if said is not None else ""))]
    desktop = child_environment(server, of_desktop(machine), machine.home)
    try:
        other = find_command(command, desktop["PATH"], server.cwd)
    except CommandNotFound:
        text = f"a desktop application would not find it: {printable(os.path.dirname(file))} is not in its PATH"  # noqa: PTH120
        return [*found, warn(shown, f"{text}; write {printable(file)} as 'command'", codes.SHORT_PATH)]
    if os.path.realpath(other) != os.path.realpath(file):
        found.append(ok(shown, f"a desktop application would start {printable(other, 500)}"))
    return found
