"""Client programs on this machine: whether they start this hub, and how fast."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Final

import msgspec

from mcp_hub import codes
from mcp_hub.clients import Client, Machine
from mcp_hub.clients.detection import ClientFile, FoundServer, find_client_files, identity_of
from mcp_hub.config import default_path
from mcp_hub.config.ancestry import config_options, options_of_serve
from mcp_hub.config.models import INSTALLERS, Config
from mcp_hub.config.package_specs import unwrap_command
from mcp_hub.diagnosis import Finding, Section, fail, ok, warn
from mcp_hub.diagnosis.installation import own_command
from mcp_hub.diagnosis.probes import in_parallel, of_desktop
from mcp_hub.diagnosis.trial_start import Start, start
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

START_WAIT: Final = 60.0
"""The longest wait for a hub to start, in seconds, unless the limit of its client is shorter."""
_MAX_NAMES: Final = 8


class _HubEntry(msgspec.Struct, frozen=True):
    """One entry of a client that starts a hub."""

    client: Client
    entry: FoundServer
    path: Path


def clients_section(config: Config | None, machine: Machine) -> Section:
    """Returns `doctor`'s findings on the clients of this machine. `config`: that of this hub; None if unusable."""
    files = [file for file in find_client_files(machine) if file.client is not None]
    findings: list[Finding] = []
    entries: list[_HubEntry] = []
    for file in files:
        about = printable(file.name, 60)
        if file.problem is not None:
            findings.append(fail(about, printable(f"{file.path}: {file.problem}", 1000), codes.CLIENT_FILE_BROKEN))
        elif file.hubs and file.client is not None:
            entries += [_HubEntry(file.client, hub, file.path) for hub in file.hubs]
            findings += _duplicates(about, file, config)
        else:
            findings.append(ok(about, f"does not start the hub; {_install_hint(file)}"))
    for row in in_parallel(lambda entry: list(_entry(entry, config, machine)), entries):
        findings += row
    if files and not entries:
        names = ", ".join(printable(file.name) for file in files[:_MAX_NAMES])
        findings.append(warn("clients", f"none of {names} starts the hub", codes.CLIENT_WITHOUT_HUB))
    return Section("Clients", tuple(findings or [ok("clients", "none was found on this machine")]))


def _install_hint(file: ClientFile) -> str:
    return f"mcp-hub install {file.client.id} puts it there" if file.client is not None else "mcp-hub install"


def _duplicates(about: str, file: ClientFile, config: Config | None) -> Iterator[Finding]:
    """Yields a finding for each server that a client starts itself although the hub serves it."""
    server_ids = {identity_of(server): server.id for server in config.servers if server.enabled} if config else {}
    for server in file.servers:
        if server.on and not server.is_hub and server.identity is not None and server.identity in server_ids:
            served_as = printable(server_ids[server.identity])
            text = f"{printable(server.id)} is started directly too; the hub serves it as {served_as}"
            yield warn(about, text, codes.CLIENT_DUPLICATES)


def _entry(hub_entry: _HubEntry, config: Config | None, machine: Machine) -> Iterator[Finding]:
    about = printable(hub_entry.client.name, 60)
    server = hub_entry.entry.server
    location = f"{printable(hub_entry.entry.id)} in {printable(str(hub_entry.path), 300)}"
    if not hub_entry.entry.on:
        yield warn(about, f"{location} is switched off", codes.CLIENT_HUB_OFF)
        return
    if server is None or server.command is None:
        return
    environ = of_desktop(machine) if hub_entry.client.short_path else dict(machine.environ)
    environ |= {name: value.get_secret_value() for name, value in server.env.items()}
    program = shutil.which(server.command, path=environ.get("PATH"))
    if program is None:
        text = f"{location} starts {printable(server.command, 300)}, which {hub_entry.client.name} cannot find"
        yield fail(about, f"{text}; this hub is {printable(str(own_command()), 300)}", codes.CLIENT_COMMAND_MISSING)
        return
    config_path = _config_of(server.command, server.args, server.cwd, environ)
    if isinstance(config_path, str):
        yield fail(about, f"{location} {config_path}", codes.CLIENT_CONFIGURATION)
        return
    if unwrap_command(server.command, server.args)[0] in INSTALLERS:
        name = printable(PureWindowsPath(server.command).name)
        yield ok(about, f"{location} starts the hub by {name}, which may download; that was not tried")
        return
    argv = (program, *server.args)
    limit = hub_entry.client.start_limit
    result = start(argv, environ, config_path, min(limit or START_WAIT, START_WAIT))
    yield _started(
        about,
        location,
        result,
        limit,
        is_same_config=config is None or config.path is None or _is_same(config_path, config.path),
    )


def _config_of(command: str, args: tuple[str, ...], cwd: Path | None, environ: dict[str, str]) -> Path | str:
    """Returns the configuration of the hub that a client starts, or a text on what is wrong with it."""
    options = options_of_serve((command, *args), environ) or ()
    directory = cwd or Path(Path.cwd().anchor)  # which directory a client starts it in is not known
    config_option = next((value for value in config_options(options) if value), None)
    if config_option is not None:
        path = directory / Path(config_option).expanduser()
        return path if path.is_file() else f"starts the hub with {printable(str(path), 300)}, which does not exist"
    try:
        return default_path(directory, environ)
    except ConfigError:
        return "starts the hub without --config, and your own configuration directory has none"


def _is_same(path: Path, second: Path) -> bool:
    try:
        return path.samefile(second)
    except OSError:
        return False


def _started(about: str, location: str, result: Start, limit: float | None, *, is_same_config: bool) -> Finding:
    if result.answered:
        limit_text = f" (its limit: {limit:g} s)" if limit is not None else ""
        difference = "" if is_same_config else ", with another configuration"
        text = f"{location} starts the hub in {result.seconds:.1f} s{limit_text}{difference}"
        if limit is not None and result.seconds > limit / 2:
            return warn(about, text, codes.CLIENT_START_SLOW)
        return ok(about, text)
    last_words = f"; its last words: {result.last_words}" if result.last_words else ""
    if result.ended:
        text = f"{location} does not start the hub: it ended without an answer{last_words}"
        return fail(about, text, codes.CLIENT_START_FAILED)
    text = f"{location} starts a hub that did not answer within {result.seconds:.0f} s{last_words}"
    return fail(about, text, codes.CLIENT_START_SLOW)
