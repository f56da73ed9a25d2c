"""`mcp-hub open`: open the live page of a running hub in the browser, by a link that works once."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from mcp_hub.cli import OK, json_text
from mcp_hub.cli.startup import add_config_arguments
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.text import printable

EXAMPLES = """examples:
  mcp-hub open            the page of the hub that is running, in the browser
  mcp-hub open --print    print the link, to open it elsewhere on this machine"""

HOW_TO_START = "no hub is running; start one with `mcp-hub serve --http`, or let a client start it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub open [--config F] [--pid N] [--print] [--json]`."""
    add_hub_arguments(parser)
    parser.add_argument("--print", action="store_true", help="print the link only, and start no browser")
    parser.add_argument("--json", action="store_true", help="print the link as JSON, and start no browser")


def add_hub_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose one of several running hubs."""
    add_config_arguments(parser, "the hub that serves this file, if several run")
    parser.add_argument("--pid", type=int, help="the hub with this process id, if several run")


def run(options: argparse.Namespace) -> int:
    """Opens the page in a browser, or prints its link. Raises HubError if no hub runs."""
    from mcp_hub.hub.hub_status import ask_hub

    hub = chosen_hub(options)
    answer = next(ask_hub(hub["pid"], {"ask": "page"}), {})
    url = answer.get("url")
    if not isinstance(url, str):
        raise refused(answer, hub)
    if options.json:
        print(json_text({"pid": hub["pid"], "url": url, "seconds": 60}))
        return OK
    opened = not options.print and _has_display() and _open_url(url)
    if not opened:
        print(url)
    if sys.stdout.isatty() or opened:
        print("The page is open in your browser." if opened else "This link works once, within 60 s.")
    return OK


def chosen_hub(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the facts of the chosen hub. Raises HubError if none runs, ConfigError if several match."""
    hubs = matching_hubs(options)
    if len(hubs) > 1:
        raise _several(hubs)
    return hubs[0]


def matching_hubs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the facts of the hubs that the options choose, which serve one file.

    Raises HubError if none runs, ConfigError if they serve several files.
    """
    config_paths, hubs = hubs_with_files(options)
    hubs = [facts for facts in hubs if options.pid in (None, facts.get("pid"))]
    if not hubs:
        which = f" with {' and '.join(map(printable, config_paths))}" if config_paths else ""
        which += f" as process {options.pid}" if options.pid is not None else ""
        raise HubError(f"no hub is running{which}; `mcp-hub status` lists those that are" if which else HOW_TO_START)
    if len({hub.get("config") for hub in hubs}) > 1:
        raise _several(hubs)
    return hubs


def hubs_with_files(options: argparse.Namespace) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the files that the options name, and the facts of the running hubs that serve all of them."""
    from mcp_hub.hub.hub_status import running_hubs

    paths = [] if options.config is None else [options.config, *options.overlays]
    files = [str(Path.cwd() / path) for path in paths]
    return files, [hub for hub in running_hubs() if {*files} <= {hub.get("config"), *hub.get("overlays", ())}]


def _several(hubs: list[dict[str, Any]]) -> ConfigError:
    lines = [f"  --pid {hub.get('pid')}    {printable(str(hub.get('config')))}" for hub in hubs]
    return ConfigError("\n".join(["several hubs are running; say which one is meant:", *lines]))


def refused(answer: dict[str, Any], hub: dict[str, Any]) -> HubError:
    """Returns the error to raise if a hub refused a request or did not understand it."""
    problem = answer.get("problem") or f"hub {hub.get('pid')} is of version {hub.get('version')}, which has no page"
    cure = answer.get("cure") or "restart it with this version"
    return HubError(f"{printable(str(problem), 2000)}: {printable(str(cure), 2000)}")


def _has_display() -> bool:
    """Returns whether a browser could show something to the user."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"))


def _open_url(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
