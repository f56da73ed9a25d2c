"""`mcp-hub completion SHELL`: print what makes a shell complete commands, options, servers and tools."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from mcp_hub.cli import OK

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAMS: Final = ("mcp-hub", "mcp-hub-gateway")
ANSWER_WITHIN: Final = 3.0
"""Seconds to wait for the names of tools; then the shell gets none."""
EXAMPLES: Final = """to use it:
  bash  echo 'eval "$(mcp-hub completion bash)"' >> ~/.bashrc
  zsh   echo 'eval "$(mcp-hub completion zsh)"' >> ~/.zshrc     (below the line with compinit)
  fish  mcp-hub completion fish > ~/.config/fish/completions/mcp-hub.fish"""

Completer = Callable[..., Iterable[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub completion SHELL`."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Prints the completion script of a shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(PROGRAMS, shell=options.shell), end="")
    return OK


def answer_shell(make_parser: Callable[[str | None], argparse.ArgumentParser]) -> None:
    """Writes the completions of the line in `$COMP_LINE` for the shell, and exits the process."""
    from argcomplete import autocomplete
    from argcomplete.completers import FilesCompleter
    from argcomplete.finders import safe_actions

    from mcp_hub.cli.startup import ConfigFiles

    logging.disable()
    argv = os.environ.get("COMP_LINE", "").split()[1:]
    command_name = next((argument for argument in argv if not argument.startswith("-")), None)

    def complete_action(*, prefix: str, action: argparse.Action, **kwargs: Any) -> Iterable[str]:
        specific = COMPLETERS.get((command_name, action.dest)) or COMPLETERS.get((None, action.dest))
        return specific(**kwargs) if specific is not None else FilesCompleter()(prefix)

    safe_actions.add(ConfigFiles)  # argcomplete runs it, so that completers know `--config`
    completer: Any = complete_action  # any callable will do, though the signature names a class
    autocomplete(make_parser(command_name), always_complete_options="long", default_completer=completer)
    sys.exit(OK)


def _load(options: argparse.Namespace) -> Any:
    """Returns the configuration that the command line names; None if it cannot be used."""
    from mcp_hub.config import default_path
    from mcp_hub.errors import HubError
    from mcp_hub.hub.composition import read_config

    with contextlib.suppress(HubError, OSError):
        path = getattr(options, "config", None) or default_path(Path.cwd(), os.environ)
        return read_config(path, os.environ, overlays=getattr(options, "overlays", ())).config
    return None


def _servers(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    config = _load(parsed_args)
    return [server.id for server in config.servers] if config is not None else []


def _names_in(table: str) -> Completer:
    """Returns the completer of the names in a table of the configuration."""

    def names(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
        config = _load(parsed_args)
        return [item.name for item in getattr(config, table)] if config is not None else []

    return names


def _tools(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    return _cached_tools(parsed_args)


def _clients(**_: object) -> Iterable[str]:
    from mcp_hub.clients.table import BY_ID

    return BY_ID


def _known_servers(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Returns the names of the bundled list, for the first word of `add`."""
    from mcp_hub.registry.sources import Seed

    return () if parsed_args.words else Seed().names


def _arguments(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Returns `key=` for each property in the input schema of the tool."""
    schema = _cached_tools(parsed_args).get(parsed_args.name, {}).get("inputSchema", {})
    return [f"{key}=" for key in schema.get("properties", {}) if key.isidentifier()]


def _cached_tools(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns the tools of the catalogs that earlier runs have cached, by name. No server is started."""
    config = _load(options)
    if config is None:
        return {}
    from mcp_hub.cli.startup import run_loop

    with contextlib.suppress(TimeoutError):
        return run_loop(asyncio.wait_for(_read_cached(config), ANSWER_WITHIN))
    return {}


async def _read_cached(config: Any) -> dict[str, dict[str, Any]]:
    from mcp_hub.diagnosis.client_lists import hub_of_kept_catalogs
    from mcp_hub.protocol.kinds import TOOLS

    async with hub_of_kept_catalogs(config) as hub:
        catalog = hub.catalog
        return {name: catalog.entry(TOOLS, name) or {} for name in catalog.names(TOOLS)}


COMPLETERS: Final[dict[tuple[str | None, str], Completer]] = {
    ("call", "name"): _tools,
    ("call", "words"): _arguments,
    ("add", "words"): _known_servers,
    (None, "client"): _clients,
    ("import", "sources"): _clients,
    ("setup", "sources"): _clients,
    (None, "server"): _servers,
    (None, "servers"): _servers,
    (None, "profile"): _names_in("profiles"),
    (None, "tool_set"): _names_in("tool_sets"),
    (None, "group"): _names_in("groups"),
}
"""(command, or None for any; name of the argument) -> its completer."""
