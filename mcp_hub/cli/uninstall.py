"""`mcp-hub uninstall CLIENT`: take the hub out of the file of a client."""

from __future__ import annotations

import argparse
from typing import Final

from mcp_hub.cli import OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, carry_out
from mcp_hub.clients import Machine
from mcp_hub.clients.installs import plan_uninstall
from mcp_hub.clients.table import BY_ID, client_named
from mcp_hub.editing.journal import Journal
from mcp_hub.text import printable

EXAMPLES: Final = """examples:
  mcp-hub uninstall cursor
  mcp-hub uninstall claude-desktop --yes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub uninstall CLIENT [--json]`."""
    parser.add_argument("client", metavar="CLIENT", help=f"one of {', '.join(BY_ID)}")
    add_confirmation_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the hub is not in the client, 3 or 4 if not confirmed. Raises EditRefused if that fails."""
    client = client_named(options.client)
    installation = plan_uninstall(client, Machine.this(), Journal.of_user())
    facts = {"client": client.id, "file": str(installation.file.path), "restored": list(installation.restored)}
    note = f"Back in {client.name}, as the hub goes: {', '.join(installation.restored)}"
    plan = Plan((installation.edit,), notes=(note,) if installation.restored else (), facts=facts)
    if plan.empty:
        if options.json:
            print(json_text({**plan.as_json(), "done": True}))
        else:
            print(f"{client.name} does not have the hub: {printable(str(installation.file.path))}")
        return OK
    code = carry_out(plan, options, ["mcp-hub", "uninstall", client.id], question="Write this?")
    if code == OK and not options.json:
        print(f"\nThe hub is out of {client.name}; restart it.")
    return code
