"""Checks this installation and its machine: interpreter, PATH, extras, browser, clock, proxies."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from mcp_hub import codes
from mcp_hub.clients import Machine
from mcp_hub.config.extras import Extra, missing
from mcp_hub.config.models import Config, Server
from mcp_hub.diagnosis import Finding, Section, fail, ok, warn
from mcp_hub.diagnosis.probes import clock_offset, in_parallel
from mcp_hub.security.private_files import open_regular
from mcp_hub.security.proxies import ForwardProxy, ProxyRules, ProxySettingError
from mcp_hub.servers.builtin.chromium import NoChromium, find, needs_no_sandbox
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress
from mcp_hub.version import VERSION

COMMAND: Final = "mcp-hub"
CLOCK_BOUND: Final = 120.0
"""Seconds by which clocks may differ; tokens and certificates mostly allow a minute or more."""


def installation_section(machine: Machine) -> Section:
    """Returns `doctor`'s findings on this installation."""
    findings = [
        ok("version", f"mcp-hub {VERSION}, Python {platform.python_version()} ({printable(sys.executable, 500)})"),
        *_on_path(machine),
    ]
    extras = {extra: missing(extra) is None for extra in get_args(Extra)}
    installed = ", ".join(extra for extra, is_installed in extras.items() if is_installed) or "none"
    missing_extras = ", ".join(extra for extra, is_installed in extras.items() if not is_installed)
    findings.append(ok("extras", f"{installed}{f'; not installed: {missing_extras}' if missing_extras else ''}"))
    return Section("Installation", tuple(findings))


def own_command() -> Path:
    """Returns the file of this installation's `mcp-hub`."""
    return Path(sys.executable).with_name(f"{COMMAND}.exe" if os.name == "nt" else COMMAND)


def _on_path(machine: Machine) -> Iterator[Finding]:
    own = own_command()
    names = [COMMAND + suffix for suffix in (("", ".exe", ".cmd") if machine.system == "windows" else ("",))]
    directories = [Path(part) for part in machine.environ.get("PATH", "").split(os.pathsep) if part]
    on_path = [
        file
        for directory in directories
        for name in names
        if os.access(file := directory / name, os.X_OK) and file.is_file()
    ]
    if not on_path:
        yield warn("PATH", f"{COMMAND} is not on PATH; its file is {printable(str(own), 500)}", codes.NOT_ON_PATH)
    elif not _is_same(on_path[0], own):
        text = f"{printable(str(on_path[0]), 500)} comes before this installation's {printable(str(own), 500)}"
        yield warn("PATH", text, codes.OTHER_ON_PATH)
    else:
        yield ok("PATH", f"{COMMAND} is {printable(str(on_path[0]), 500)}")


def _is_same(file: Path, own: Path) -> bool:
    """Returns whether a command on PATH starts this installation."""
    if file.resolve() == own.resolve():
        return True
    try:
        with open_regular(file) as stream:
            first_line = stream.readline(1000).decode("utf-8", "replace").strip()
    except OSError:
        return False
    # Installers such as pipx copy or link the script, whose first line names the interpreter.
    interpreter = first_line.removeprefix("#!").strip()
    return first_line.startswith("#!") and os.path.realpath(interpreter) == os.path.realpath(sys.executable)


# --- the machine -----------------------------------------------------------------------------------------------


def machine_section(config: Config, machine: Machine) -> Section:
    """Returns `doctor`'s findings on the machine for these servers."""
    servers = [server for server in config.servers if server.enabled]
    findings = [*_browser(servers, machine), *_clock(servers, machine), *_proxies(config, machine)]
    return Section("Machine", tuple(findings))


def _browser(servers: list[Server], machine: Machine) -> Iterator[Finding]:
    for server in servers:
        if server.builtin != "browser":
            continue
        name = printable(server.id, 100)
        try:
            executable = None if server.executable is None else str(server.executable)
            yield ok(name, f"browser {printable(str(find(executable, machine.environ, machine.home)), 500)}")
        except NoChromium as error:
            yield fail(name, printable(str(error), 500), error.hub_code)
        if needs_no_sandbox():
            yield warn(name, "you are root: Chromium would run without its sandbox", codes.BROWSER_WITHOUT_SANDBOX)


def _clock(servers: list[Server], machine: Machine) -> Iterator[Finding]:
    """Yields a finding that compares this machine's clock with those of servers that are reached without a proxy."""
    direct_servers = [server for server in servers if server.url and _is_direct(server, machine)]
    urls = {url.partition("://")[2].partition("/")[0]: url for server in direct_servers if (url := server.url)}
    offsets = [offset for offset in in_parallel(clock_offset, list(urls.values())) if offset is not None]
    if not offsets:
        return
    offset = sorted(offsets)[len(offsets) // 2]  # the median, as one server's clock may be wrong
    if abs(offset) > CLOCK_BOUND:
        direction = "ahead of" if offset > 0 else "behind"
        yield fail("clock", f"it is {abs(offset) / 60:.0f} minutes {direction} that of servers", codes.CLOCK_WRONG)
    else:
        yield ok("clock", "it agrees with that of servers")


def _is_direct(server: Server, machine: Machine) -> bool:
    return Egress.of(server.egress, machine.environ).describe_route(server.url or "") == "direct"


def _proxies(config: Config, machine: Machine) -> Iterator[Finding]:
    """Yields the proxies by which the hub reaches networks, without their users and passwords."""
    configured = None if config.proxy is None else config.proxy.get_secret_value()
    rules = ProxyRules.of(machine.environ, configured)
    for source, address in dict.fromkeys(setting for setting in (rules.https, rules.http) if setting is not None):
        try:
            proxy = ForwardProxy.parse(address, source)
        except ProxySettingError as error:
            yield fail("proxy", printable(str(error), 500), codes.PROXY_UNREACHABLE)
            continue
        exempt = f"; not for {printable(rules.exempt, 300)}" if rules.exempt else ""
        yield ok("proxy", f"{source}: {'direct' if proxy is None else printable(str(proxy), 300)}{exempt}")
