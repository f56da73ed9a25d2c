"""`mcp-hub import`: take the servers of clients into the hub's own file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, carry_out
from mcp_hub.cli.startup import add_config_arguments, path_to_edit
from mcp_hub.clients import Machine
from mcp_hub.clients.detection import ClientFile, find_client_files, project_files, read_client_file
from mcp_hub.clients.imports import ImportPlan, plan_import, shown_words
from mcp_hub.clients.installs import named_file, project_notes
from mcp_hub.clients.table import BY_ID
from mcp_hub.diagnosis.client_lists import list_lines, listed_by_client
from mcp_hub.editing import EditRefused
from mcp_hub.editing.secret_store import SecretStore
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.security.private_files import expand_home
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable

EXAMPLES: Final = """examples:
  mcp-hub import                       the servers of all clients of this machine
  mcp-hub import cursor codex          those of two
  mcp-hub import ~/work/app            those that a project has in its files
  mcp-hub import old.json --yes        those of a file, without asking"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub import [CLIENT|FILE|DIRECTORY ...] [--json] [--config F]`."""
    text = f"clients ({', '.join(BY_ID)}), files of servers, or directories of projects (default: all clients)"
    parser.add_argument("sources", metavar="WHAT", nargs="*", help=text)
    add_confirmation_arguments(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when all servers are imported, 1 if there are none, 3 or 4 if not confirmed. Raises EditRefused."""
    machine = Machine.this()
    files = [file for name in options.sources for file in _source_files(name, machine)]
    if not options.sources:
        files = find_client_files(machine)
    target = ServerFile.open(path_to_edit(options, alone=True))
    import_plan = plan_import(files, target, SecretStore.of_user(), machine)
    facts = {"file": str(target.path), "servers": [server.as_json() for server in import_plan.servers]}
    notes = [*import_plan.notes, *(project_notes(machine) if not options.sources else ())]
    plan = Plan(import_plan.edits, secrets=import_plan.keyring, facts={**facts, "left_out": notes})
    if not options.json:
        _print_table(import_plan, files, notes)
    if not import_plan.added:
        if options.json:
            print(json_text({**plan.as_json(), "done": bool(import_plan.servers)}))
        return OK if import_plan.servers else FAILED
    listed_before = listed_by_client(target.path)
    code = carry_out(plan, options, ["mcp-hub", "import", *options.sources], question="Write this?")
    if code == OK and not options.json:
        count = len(import_plan.added)
        print(f"\nImported {count} server{'' if count == 1 else 's'} to {printable(str(target.path))}.")
        for line in list_lines(listed_before, listed_by_client(target.path)):
            print(line)
        print("Next: mcp-hub check, then mcp-hub install CLIENT")
    return code


def _source_files(name: str, machine: Machine) -> list[ClientFile]:
    path = Path.cwd() / expand_home(name)
    if name not in BY_ID and path.is_dir():
        files = project_files(path, machine)
        claude = BY_ID["claude-code"]
        claude_path = machine.file_of(claude)
        if claude_path is not None and claude_path.exists():
            claude_file = read_client_file(claude_path, machine, claude, path)
            servers = tuple(server for server in claude_file.servers if server.entry.at[0] == "projects")
            files += (
                [ClientFile(claude_path, claude, servers=servers, problem=claude_file.problem)]
                if servers or claude_file.problem
                else []
            )
        if not files:
            raise EditRefused(f"{printable(str(path))}: there is no file of servers in this directory")
        return files
    return [named_file(name, machine)]


def _print_table(import_plan: ImportPlan, files: list[ClientFile], notes: list[str]) -> None:
    if not import_plan.servers:
        file_names = ", ".join(printable(file.name) for file in files)
        print(
            f"no servers were found{f' in {file_names}' if file_names else ': there is no client that the hub knows'}"
        )
        print("mcp-hub setup begins with a first file, mcp-hub add adds a server")
    rows = []
    for server in import_plan.servers:
        state = {"add": "new", "same": f"same as {server.same_as}", "hub": "a hub", "broken": "not usable"}[
            server.action
        ]
        state += "" if server.found.on else ", off"
        runs = Redactor().text(printable(" ".join(shown_words(server.found)), 300))
        rows.append((printable(server.id, 60), state, ", ".join(server.sources), runs))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for row in rows:
        print("  ".join([*(text.ljust(width) for text, width in zip(row[:3], widths, strict=True)), row[3]]))
    for server in import_plan.servers:
        if server.action in ("hub", "broken") or (server.action == "add" and server.reason):
            print(f"{printable(server.id, 60)}: {printable(server.reason, 600)}", file=sys.stderr)
        if server.inherits:
            names = ", ".join(server.inherits)
            print(f"{printable(server.id, 60)}: gets {names}, as it does from its client", file=sys.stderr)
    for note in notes:
        print(f"note: {printable(note, 1000)}", file=sys.stderr)
    if rows:
        print()
    sys.stdout.flush()
