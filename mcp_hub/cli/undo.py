"""`mcp-hub undo`: take back what the last command, or another one, changed in files."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from mcp_hub.cli import FAILED, OK, STALE, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, confirm, follow_bundles
from mcp_hub.editing.edit import StaleEdit
from mcp_hub.editing.journal import Journal, Run
from mcp_hub.editing.secret_store import forget_in_keyring
from mcp_hub.text import printable

EXAMPLES: Final = """examples:
  mcp-hub undo              the files as they were before the last command, shown first
  mcp-hub undo --list       what could be undone, with numbers
  mcp-hub undo 3            the command of that number, and nothing of the later ones"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub undo [NUMBER] [--list]`."""
    text = "the number of the command that is undone, of --list (default: the last one)"
    parser.add_argument("number", metavar="NUMBER", nargs="?", type=int, help=text)
    parser.add_argument("--list", action="store_true", help="only print what could be undone, newest first")
    add_confirmation_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the run was undone, 1 if there is none or a file cannot be edited, 3 or 4 if not confirmed."""
    journal = Journal.of_user()
    if options.list:
        return _print_runs([run for run in journal.runs() if not run.undone], as_json=options.json)
    runs = [run for run in journal.runs() if not run.undone and options.number in (None, run.number)]
    if not runs:
        text = "no command has changed a file" if options.number is None else f"there is no number {options.number}"
        print(f"there is nothing to undo: {text}", file=sys.stderr)
        return FAILED
    last = runs[0]
    undoing = journal.undo(last)
    plan = Plan(undoing.edits, notes=(f"Undoes: {last.command} ({last.at})", *undoing.notes), facts=_facts(last))
    code = confirm(plan, options, "Undo this?")
    if code != OK:
        return code
    try:
        journal.take_back(last, undoing)
    except StaleEdit as error:
        print(error, file=sys.stderr)
        return STALE
    follow_bundles(undoing.edits)
    for sentence in forget_in_keyring(() if undoing.left else journal.unused_in_keyring(last)):
        print(sentence, file=sys.stderr)
    if options.json:
        print(json_text({**plan.as_json(), "done": not undoing.left}))
    else:
        print("undone" if not undoing.left else "undone but for the files named above")
    return FAILED if undoing.left else OK


def _facts(run: Run) -> dict[str, Any]:
    files = [str(edit.path) for edit in run.edits]
    return {"number": run.number, "command": run.command, "at": run.at, "files": files}


def _print_runs(runs: list[Run], *, as_json: bool) -> int:
    if as_json:
        print(json_text([_facts(run) for run in runs]))
        return OK
    if not runs:
        print("there is nothing to undo")
    for past_run in runs:
        print(f"{past_run.number}  {past_run.at}  {printable(past_run.command)}")
        for edit in past_run.edits:
            print(f"     {printable(str(edit.path))}")
    return OK
