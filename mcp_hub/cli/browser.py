"""`mcp-hub browser`: show which browser the built-in server `browser` uses, or install one."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.startup import add_config_arguments, found_config, load
from mcp_hub.config.extras import missing
from mcp_hub.errors import ConfigError
from mcp_hub.servers.builtin.chromium import find, installed_below, needs_no_sandbox
from mcp_hub.text import printable

ANY = "browser"
"""The name that is printed for the browser if the configuration has no browser server."""


EXAMPLES = """examples:
  mcp-hub browser            the browser that would be used
  mcp-hub browser install    download a Chromium"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub browser [status|install] [--json] [--config F]`."""
    argument = parser.add_argument("what", nargs="?", choices=("status", "install"), default="status")
    argument.help = "status (default): say which browser would be used; install: download a Chromium of Playwright's"
    text = "configuration file from which browser.executable is read (default: the one that `serve` would use, if any)"
    add_config_arguments(parser, text)
    parser.add_argument("--json", action="store_true", help="with status: the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns exit code 1 if there is no browser to use. Raises ConfigError, NoChromium."""
    if options.json and options.what == "install":
        raise ConfigError("--json is for `mcp-hub browser status`; the installer prints its progress as text")
    if (problem := missing("browser")) is not None:
        print(f"no browser can be used: {problem}", file=sys.stderr)
        return FAILED
    return install() if options.what == "install" else status(_configured_executables(options), as_json=options.json)


def _configured_executables(options: argparse.Namespace) -> dict[str, str | None]:
    """Returns `{server id: executable}` of the browser servers; None is a browser that is still to be found."""
    if options.config is None and found_config(options).path is None:
        return {}  # this command also works without a configuration
    servers = [server for server in load(options, quiet=True).servers if server.builtin == "browser"]
    return {server.id: None if server.executable is None else str(server.executable) for server in servers}


def status(executables: dict[str, str | None], *, as_json: bool = False) -> int:
    """Prints which browser would be started for each server in `executables`. Raises NoChromium."""
    paths = {
        server: find(executable, os.environ, Path.home()) for server, executable in (executables or {ANY: None}).items()
    }
    if as_json:
        rows = [{"server": server, "executable": str(path)} for server, path in paths.items()]
        print(json_text({"browsers": rows, "sandbox": not needs_no_sandbox()}))
        return OK
    for server, path in paths.items():
        print(f"{printable(server, 100)}: {path}")
    if needs_no_sandbox():
        print(
            "you are root: Chromium would run without its sandbox; better run the hub as another user", file=sys.stderr
        )
    return OK


def install() -> int:
    """Runs Playwright's installer for Chromium, then prints which browser is used."""
    command = [sys.executable, "-P", "-m", "playwright", "install", "--no-shell", "chromium"]
    directory = installed_below(os.environ, Path.home())
    print(f"downloading Playwright's Chromium to {directory} with: {' '.join(command)}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        message = (
            f"the installer failed (exit status {code}), see above; where it cannot download, install Chromium or "
        )
        message += "Chrome by the system's own means, or name one as browser.executable in the configuration"
        print(message, file=sys.stderr)
        return FAILED
    return status({})
