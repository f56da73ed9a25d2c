"""`mcp-hub trust`: use the configuration of a directory, after showing what it starts."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, ask, can_ask, confirm
from mcp_hub.config.discovery import Executed, TrustedDirectories, first_file, read_executed
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.security.private_files import expand_home
from mcp_hub.text import printable, unhidden

EXAMPLES: Final = """examples:
  mcp-hub trust                this directory, once you have seen what its servers.yaml starts
  mcp-hub trust --list         the directories that you trust
  mcp-hub trust --remove DIR   trust one no longer"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub trust [DIR] [--list | --remove] [--json]`."""
    parser.add_argument("directory", metavar="DIR", nargs="?", type=Path, default=Path(), help="default: this one")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="print the directories that are trusted")
    action.add_argument("--remove", action="store_true", help="trust the directory no longer")
    add_confirmation_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when it is done, 1 if the directory to remove was not trusted, 3 or 4 without a confirmation."""
    trusted, directory = TrustedDirectories.of_user(), Path.cwd() / expand_home(options.directory)
    if options.list:
        paths = [str(path) for path in trusted.paths()]
        print(json_text(paths) if options.json else "\n".join(map(printable, paths)) or "no directory is trusted")
        return OK
    if options.remove:
        with _saying_what_fails():
            was_trusted = trusted.remove(directory)
        if options.json:
            print(json_text({"directory": str(directory), "done": was_trusted}))
        else:
            print(f"{printable(str(directory))} is {'trusted no longer' if was_trusted else 'not trusted'}")
        return OK if was_trusted else FAILED
    if directory.is_file():
        raise ConfigError(
            f"{printable(str(directory))} is a file; name its directory: {printable(str(directory.parent))}"
        )
    path = first_file(directory)
    if path is None:
        raise ConfigError(f"{printable(str(directory))} has no servers.yaml, .yml, .json or .toml to trust")
    executed = read_executed(path)
    shown_directory = printable(str(executed.path.parent))
    facts = {"directory": str(executed.path.parent), "file": executed.path.name, "starts": _shown(executed)}
    plan = Plan(notes=tuple(_text(executed, trusted)), facts=facts, digest=executed.digest)
    code = OK if trusted.trusts(executed) else confirm(plan, options, "Trust this directory?")
    if code != OK:
        return code
    with _saying_what_fails():
        trusted.add(executed)
    if options.json:
        print(json_text({**plan.as_json(), "done": True}))
    else:
        print(f"{shown_directory} is trusted; to take that back: mcp-hub trust --remove {shlex.quote(shown_directory)}")
    return OK


def offer(path: Path) -> bool:
    """Asks at a terminal whether to trust the directory of a configuration. Returns whether it is trusted now."""
    if not can_ask():
        return False
    trusted = TrustedDirectories.of_user()
    try:
        executed = read_executed(path)
    except ConfigError as error:
        print(f"warning: {error.for_user()}", file=sys.stderr)
        return False
    print("\n".join(printable(line, len(line)) for line in _text(executed, trusted)), file=sys.stderr)
    if not ask("Trust this directory, and use its configuration?"):
        return False
    with _saying_what_fails():
        trusted.add(executed)
    return True


@contextlib.contextmanager
def _saying_what_fails() -> Iterator[None]:
    """Raises HubError if the record of trust cannot be written."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
        raise HubError(f"the trust cannot be recorded: {printable(reason, 500)}") from None


def _text(executed: Executed, trusted: TrustedDirectories) -> list[str]:
    changed = trusted.is_known(executed.path.parent) and not trusted.trusts(executed)
    since = "has changed since you trusted its directory. It now " if changed else ""
    lines = _shown(executed) or ["nothing"]
    return [f"{executed.path} {since}starts and connects to:", *(f"  {line}" for line in lines)]


def _shown(executed: Executed) -> list[str]:
    """Returns all that a configuration starts, whole: what looks like a secret may be a command."""
    return [unhidden(line) for line in executed.lines]
