"""Plans of commands: shown first, then confirmed by a person, by `--yes`, or by the token of a preview."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.cli import OK, STALE, UNCONFIRMED, json_text
from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import Edit, StaleEdit, read_bytes
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.secret_store import SERVICE, KeyringSecret, forget_in_keyring, keep_in_keyring
from mcp_hub.text import printable, unhidden

_BUNDLE: Final = re.compile(rb"bundles[/\\]+([0-9a-f]{64})")
"""Matches the path of an unpacked bundle in a configuration file. Group 1 is the bundle's SHA-256."""
_COLOURS: Final = {"+": "32", "-": "31", "@": "36"}


class Plan(msgspec.Struct, frozen=True):
    """What a command is about to do."""

    edits: tuple[Edit, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    """The command lines that would run, each as its words."""
    secrets: tuple[KeyringSecret, ...] = ()
    """The secrets to put into the keyring."""
    notes: tuple[str, ...] = ()
    """Sentences to print before the rest."""
    facts: Mapping[str, Any] = {}
    """Further members of the object that `--json` prints."""
    digest: str = ""
    """A digest of what else is confirmed."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.commands and not self.secrets and not any(edit.changes for edit in self.edits)

    @property
    def token(self) -> str:
        """A digest of all that is confirmed. Different plans have different tokens."""
        digests = sorted(edit.digest for edit in self.edits if edit.changes)
        users = sorted(secret.user for secret in self.secrets)
        fields = "\0".join([self.digest, *digests, *users, *("\1".join(command) for command in self.commands)])
        return hashlib.sha256(fields.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def lines(self) -> list[str]:
        """Returns the plan as lines of text: its notes, the differences of files, the command lines."""
        lines = [printable(note, len(note)) for note in self.notes]
        for edit in self.edits:
            if edit.changes:
                lines += ["", *edit.diff()] if lines else edit.diff()
        for secret in self.secrets:
            lines.append(f"The keyring gets {SERVICE}/{printable(secret.user)}, not shown.")
        if self.commands:
            lines += [
                "",
                "This would run:",
                *(f"  {unhidden(shlex.join(command))}" for command in self.commands),
            ]
        return lines

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as `--json` prints it."""
        edits = [{"path": str(edit.path), "diff": edit.diff()} for edit in self.edits if edit.changes]
        commands = [[printable(word, len(word)) for word in command] for command in self.commands]
        return {**self.facts, "edits": edits, "commands": commands, "notes": list(self.notes), "token": self.token}


def add_confirmation_arguments(parser: argparse.ArgumentParser, json: str = "print JSON") -> None:
    """Adds the options that `confirm` reads: `--json`, with the help text `json`, `--yes` and `--confirm TOKEN`."""
    parser.add_argument("--json", action="store_true", help=json)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    text = "do exactly what the preview that printed this token showed; exit 4 if anything has changed"
    group.add_argument("--confirm", metavar="TOKEN", help=text)


def confirm(plan: Plan, options: argparse.Namespace, question: str = "Do this?") -> int:
    """Shows a plan and asks the user. Returns OK if it is confirmed, else the exit code UNCONFIRMED or STALE.

    With `--json` the user is not asked, and a plan is printed only if it is not confirmed: a command prints one value.
    """
    as_json = getattr(options, "json", False)
    if not as_json:
        print_plan(plan)
    if options.yes or options.confirm == plan.token:
        return OK
    if options.confirm is not None:
        return _report_unconfirmed(
            plan, STALE, "the preview is out of date; nothing was done. This is the new one", as_json
        )
    if not as_json and can_ask():
        if ask(question):
            return OK
        print("nothing was done", file=sys.stderr)
        return UNCONFIRMED
    return _report_unconfirmed(plan, UNCONFIRMED, "nothing was done", as_json)


def can_ask() -> bool:
    """Returns whether there is a person at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, default: bool = False) -> bool:
    """Asks at the terminal. Returns True for `y` and `yes`, `default` for Enter alone, False for any other answer."""
    print(f"\n{question} [{'Y/n' if default else 'y/N'}] ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip().lower() in ("y", "yes") or (default and line == "\n")


def _report_unconfirmed(plan: Plan, code: int, text: str, as_json: bool) -> int:
    if as_json:
        print(json_text({**plan.as_json(), "done": False}))
    print(f"{text}; to confirm, add --yes, or --confirm {plan.token} for exactly this", file=sys.stderr)
    return code


def print_plan(plan: Plan) -> None:
    """Prints a plan, in colours at a terminal that has them."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in plan.lines():
        colour = _COLOURS.get(line[:1]) if coloured else None
        if coloured and line.startswith(("--- ", "+++ ")):
            colour = "1"
        print(f"\x1b[{colour}m{line}\x1b[0m" if colour else line)
    sys.stdout.flush()


def carry_out(
    plan: Plan,
    options: argparse.Namespace,
    command: Sequence[str],
    *,
    question: str = "Write this?",
    journal: Journal | None = None,
) -> int:
    """Confirms a plan of edits and writes them, all or none, so that `undo` restores what was there.

    Returns OK, UNCONFIRMED or STALE. Raises EditRefused if a file cannot be written.
    """
    for edit in plan.edits:
        if edit.changes:
            edit.check()  # errors are raised before the user is asked
    code = confirm(plan, options, question)
    if code != OK:
        return code
    code = write(plan, command, journal)
    if code != OK:
        return code
    if getattr(options, "json", False):
        print(json_text({**plan.as_json(), "done": True}))
    return OK


def write(plan: Plan, command: Sequence[str], journal: Journal | None = None) -> int:
    """Writes a confirmed plan of edits, all or none. Returns OK or STALE. Raises EditRefused."""
    users = [secret.user for secret in plan.secrets]
    keep_in_keyring(plan.secrets)
    try:
        (journal or Journal.of_user()).perform(shlex.join(command), plan.edits, users)
    except BaseException as error:
        forget_in_keyring(users)
        if not isinstance(error, StaleEdit):
            raise
        print(error, file=sys.stderr)
        return STALE
    follow_bundles(plan.edits)
    return OK


def follow_bundles(edits: Sequence[Edit]) -> None:
    """Removes unpacked bundles that no entry names any more, and restores those that an entry names again."""
    digest_pairs = [(_bundles(edit.before), _bundles(edit.after)) for edit in edits]
    if not any(before != after for before, after in digest_pairs):
        return
    from mcp_hub.registry.bundles import BundleStore, default_directory

    store = BundleStore(default_directory())
    referenced = set().union(*(after for _, after in digest_pairs))
    for digest in referenced.difference(*(before for before, _ in digest_pairs)):
        store.restore(digest)
    unreferenced = set().union(*(before for before, _ in digest_pairs)) - referenced
    if unreferenced:
        for path in {edit.path for run in Journal.of_user().runs() for edit in run.edits if not edit.secret}:
            with contextlib.suppress(EditRefused):
                unreferenced -= _bundles(read_bytes(path))  # another configuration has the same bundle
    for digest in unreferenced:
        store.remove(digest)


def _bundles(content: bytes | None) -> set[str]:
    return {digest.decode() for digest in _BUNDLE.findall(content or b"")}
