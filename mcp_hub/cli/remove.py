"""`mcp-hub remove SERVER`: take the entry of a server out of the configuration."""

from __future__ import annotations

import argparse
from typing import Final

from mcp_hub.cli import OK
from mcp_hub.cli.add import RELOADS
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, carry_out
from mcp_hub.cli.startup import add_config_arguments, path_to_edit, set_up_logging
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.text import printable

EXAMPLES: Final = """examples:
  mcp-hub remove time
  mcp-hub remove time --yes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub remove SERVER [--yes | --confirm TOKEN] [--json] [--config F]`."""
    parser.add_argument("server", help="name of its entry")
    add_confirmation_arguments(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the server was removed, 3 without a confirmation. Raises ConfigError for an unknown server."""
    set_up_logging(options.verbose, quiet=True)
    file = ServerFile.open(path_to_edit(options, alone=True))
    file.remove(options.server, Journal.of_user())
    plan = Plan((file.edit(),), facts={"server": options.server})
    code = carry_out(plan, options, ["mcp-hub", "remove", options.server], question="Remove it?")
    if code == OK and not options.json:
        print(f"removed {printable(options.server, 100)}; `mcp-hub undo` brings it back. {RELOADS}")
    return code
