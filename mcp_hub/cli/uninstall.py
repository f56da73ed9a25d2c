"""`mcp-hub uninstall CLIENT`: take the hub out of the file of a client, or of all clients."""

from __future__ import annotations

import argparse
from typing import Final

from mcp_hub.cli import OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, carry_out
from mcp_hub.clients import Machine
from mcp_hub.clients.detection import find_client_files
from mcp_hub.clients.installs import plan_uninstall
from mcp_hub.clients.table import BY_ID, client_named
from mcp_hub.editing.journal import Journal
from mcp_hub.text import printable

EXAMPLES: Final = """examples:
  mcp-hub uninstall cursor
  mcp-hub uninstall --all        every client that has the hub
  mcp-hub uninstall claude-desktop --yes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub uninstall (CLIENT | --all) [--json]`."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("client", metavar="CLIENT", nargs="?", help=f"one of {', '.join(BY_ID)}")
    text = "every client that has the hub; `undo` forgets the former contents of their files, secrets included"
    group.add_argument("--all", action="store_true", help=text)
    add_confirmation_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the hub is in none of the clients, 3 or 4 if not confirmed. Raises EditRefused if that fails."""
    machine, journal = Machine.this(), Journal.of_user()
    clients, notes = [client_named(options.client)] if options.client else [], []
    for file in find_client_files(machine) if options.all else ():
        if file.client is not None and file.hubs:
            clients.append(file.client)
        elif file.problem is not None:
            notes.append(f"{file.name} is left as it is: {printable(file.problem, 500)}")
    installations = [plan_uninstall(client, machine, journal) for client in clients]
    names = ", ".join(client.name for client in clients)
    facts = [
        {"client": client.id, "file": str(installation.file.path), "restored": list(installation.restored)}
        for client, installation in zip(clients, installations, strict=True)
    ]
    for client, installation in zip(clients, installations, strict=True):
        if installation.restored:
            notes.append(f"Back in {client.name}, as the hub goes: {', '.join(installation.restored)}")
    edits = tuple(installation.edit for installation in installations)
    plan = Plan(edits, notes=tuple(notes), facts={"clients": facts} if options.all else facts[0])
    if plan.empty:
        if options.json:
            print(json_text({**plan.as_json(), "done": True}))
        elif options.all:
            print("\n".join([*notes, "no client of this machine has the hub"]))
        else:
            print(f"{names} does not have the hub: {printable(str(installations[0].file.path))}")
        return OK
    words = ["--all"] if options.all else [clients[0].id]
    code = carry_out(plan, options, ["mcp-hub", "uninstall", *words], question="Write this?", journal=journal)
    if code == OK and options.all:
        journal.forget([installation.file.path for installation in installations])
    if code == OK and not options.json:
        print(f"\nThe hub is out of {names}; restart {'it' if len(clients) == 1 else 'them'}.")
    return code
