"""`mcp-hub install CLIENT`: put the hub into the file of a client."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Final

from mcp_hub.cli import OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, carry_out
from mcp_hub.cli.startup import add_config_arguments, path_to_edit
from mcp_hub.clients import Machine
from mcp_hub.clients.detection import FoundServer, read_client_file
from mcp_hub.clients.installs import ENTRY, hub_command, plan_install
from mcp_hub.clients.table import BY_ID, client_named
from mcp_hub.diagnosis.client_lists import list_lines, listed_by_client
from mcp_hub.editing import EditRefused
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.text import printable

EXAMPLES: Final = """examples:
  mcp-hub install cursor                the servers of the default configuration
  mcp-hub install codex --config F      those of another
  mcp-hub install zed --switch-off      and switch off there what the hub serves"""


def _socket_note(configs: list[Path]) -> str | None:
    """Returns a note if the configuration listens on a Unix socket, which clients cannot use; else None."""
    try:
        listen = read_config(configs[0], os.environ, overlays=configs[1:]).config.listen
    except ConfigError:
        return None  # `mcp-hub check` says what is wrong with it
    if listen.socket_path is None:
        return None
    address = printable(listen.host, 200)
    return f"The client will start a hub of its own over stdio: none has a URL for {address} (listen.host)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub install CLIENT [--switch-off] [--json] [--config F]`."""
    parser.add_argument("client", metavar="CLIENT", help=f"one of {', '.join(BY_ID)}")
    text = "also switch off in this client the servers that the hub serves (or remove them, if it has no switch)"
    parser.add_argument("--switch-off", action="store_true", help=text)
    add_confirmation_arguments(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the hub is in the client, 3 or 4 if not confirmed. Raises EditRefused if it cannot be added."""
    client, machine = client_named(options.client), Machine.this()
    configs = [Path(path).absolute() for path in (path_to_edit(options), *options.overlays)]
    originals: list[FoundServer] = []
    for config in configs:
        if not config.is_file():
            raise EditRefused(f"{printable(str(config))}: there is no configuration yet; first run: mcp-hub setup")
        config_file = read_client_file(config, machine)
        if config_file.problem is not None:
            raise EditRefused(config_file.problem)
        originals += config_file.servers
    installation = plan_install(client, machine, hub_command(*configs), originals if options.switch_off else None)
    facts = {
        "client": client.id,
        "file": str(installation.file.path),
        "entry": ENTRY,
        "switched_off": list(installation.switched_off),
    }
    notes = []
    if installation.switched_off:
        action_text = "switched off" if client.off is not None else "taken out (this client cannot switch one off)"
        notes.append(f"In {client.name} {action_text}, as the hub serves them: {', '.join(installation.switched_off)}")
    if (note := _socket_note(configs)) is not None:
        notes.append(note)
    plan = Plan((installation.edit,), notes=tuple(notes), facts=facts)
    if plan.empty:
        if options.json:
            print(json_text({**plan.as_json(), "done": True}))
        else:
            print(f"{client.name} has the hub already: {printable(str(installation.file.path))}")
        return OK
    code = carry_out(plan, options, ["mcp-hub", "install", client.id], question="Write this?")
    if code == OK and not options.json:
        client_id = shlex.quote(client.id)
        print(f"\nThe hub is in {client.name}; restart it to see its tools.")
        if (row := listed_by_client(configs[0]).get(client.name)) is not None and row["of"]:
            print(*list_lines({}, {client.name: row}))
        print(f"To take it out: mcp-hub uninstall {client_id}")
    return code
