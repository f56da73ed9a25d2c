"""`mcp-hub enable SERVER`: switch a server on. It shares its code with `disable`."""

from __future__ import annotations

import argparse
from typing import Final

from mcp_hub.cli import OK, json_text
from mcp_hub.cli.add import RELOADS
from mcp_hub.cli.confirmation import Plan, carry_out
from mcp_hub.cli.startup import add_config_arguments, path_to_edit, set_up_logging
from mcp_hub.diagnosis.client_lists import list_lines, listed_by_client
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.text import printable

EXAMPLES: Final = """example:
  mcp-hub enable time fetch"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub enable SERVER... [--json] [--config F]`."""
    parser.add_argument("server", nargs="+", help="name of its entry")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the servers are on. Raises ConfigError if one is not in the file; then none changes."""
    return switch(options, on=True)


def switch(options: argparse.Namespace, *, on: bool) -> int:
    """Switches servers on or off by the key of their entries, and shows the difference. Returns the exit code."""
    set_up_logging(options.verbose, quiet=True)
    file = ServerFile.open(path_to_edit(options, alone=True))
    for server in options.server:
        file.switch(server, on=on)
    listed_before = listed_by_client(file.path)
    plan = Plan((file.edit(),), facts={"servers": options.server, "enabled": on})
    name, state = printable(", ".join(options.server), 1000), "on" if on else "off"
    if plan.empty:
        print(json_text({**plan.as_json(), "done": True}) if options.json else f"{name}: {state} already")
        return OK
    options.yes, options.confirm = True, None  # not asked: one key changes, and `undo` restores it
    code = carry_out(plan, options, ["mcp-hub", "enable" if on else "disable", *options.server])
    if code == OK and not options.json:
        print(f"switched {name} {state}; `mcp-hub undo` takes it back. {RELOADS}")
        for line in list_lines(listed_before, listed_by_client(file.path)):
            print(line)
    return code
