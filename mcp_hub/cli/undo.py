"""`mcp-hub undo`: restore the files that the last command changed."""

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
  mcp-hub undo --list       what could be undone"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub undo [--list]`."""
    parser.add_argument("--list", action="store_true", help="only print what could be undone, newest first")
    add_confirmation_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the last run was undone, 1 if there is none. Raises EditRefused if a file was edited since."""
    journal = Journal.of_user()
    if options.list:
        return _print_runs([run for run in journal.runs() if not run.undone], as_json=options.json)
    last = journal.last()
    if last is None:
        print("there is nothing to undo: no command has changed a file", file=sys.stderr)
        return FAILED
    edits = journal.undo(last)
    plan = Plan(tuple(edits), notes=(f"Undoes: {last.command} ({last.at})",), facts=_facts(last))
    code = confirm(plan, options, "Undo this?")
    if code != OK:
        return code
    try:
        journal.take_back(last, edits)
    except StaleEdit as error:
        print(error, file=sys.stderr)
        return STALE
    follow_bundles(edits)
    for sentence in forget_in_keyring(last.keyring):
        print(sentence, file=sys.stderr)
    if options.json:
        print(json_text({**plan.as_json(), "done": True}))
    else:
        print("undone")
    return OK


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
