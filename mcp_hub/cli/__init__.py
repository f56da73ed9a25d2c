"""The command line: one command a file, imported only when it is the one that runs."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from importlib import import_module

from mcp_hub.cli.output import never_fail_to_print, nobody_reads
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.version import VERSION

COMMANDS = {
    "serve": "run the hub: over stdio, or over a network with --sse or --http",
    "check": "connect to every server and say what works and what does not",
    "tools": "list the tools the hub exposes",
    "call": "call one tool",
    "status": "say how the hubs that are running are, and each of their servers",
    "pin": "record what servers list now, to notice when it changes",
    "login": "sign in to a server",
    "logout": "forget a sign-in",
    "browser": "say which browser the built-in server uses, or install one",
}

OK, FAILED, BAD_INPUT = 0, 1, 2

GARBAGE_AFTER = (10_000, 20, 20)
"""Objects more until circles among them are looked for: Python's 700 is a tenth of what a call costs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 fine, 1 something failed, 2 bad input. Entry point of `mcp-hub`."""
    gc.set_threshold(*GARBAGE_AFTER)
    never_fail_to_print()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="mcp-hub", description="One MCP server in front of all of yours.")
    parser.add_argument("--version", action="version", version=f"mcp-hub {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        command = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == chosen:
            import_module(f"mcp_hub.cli.{name}").add_arguments(command)
    options = parser.parse_args(arguments)
    try:
        code: int = import_module(f"mcp_hub.cli.{options.command}").run(options)
        sys.stdout.flush()  # here, where a reader that is gone can still be noticed
        return code
    except ConfigError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except HubError as error:
        print(f"mcp-hub: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        nobody_reads()
        return FAILED
