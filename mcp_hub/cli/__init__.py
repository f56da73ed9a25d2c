"""The command line. Each command is a module, which is imported only if the command runs."""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from mcp_hub.errors import ConfigError, HubError
from mcp_hub.text import json_escaped, printable
from mcp_hub.version import VERSION

COMMANDS = {
    "setup": "find the servers of your clients, put them behind the hub, and the hub into the clients",
    "serve": "run the hub: over stdio, or over a network with --sse or --http",
    "check": "connect to every server and say what works and what does not",
    "doctor": "check the configuration, the servers and the machine, and say what to do",
    "explain": "say what a code such as HUB-201 means and what to do about it",
    "tools": "list the tools the hub exposes",
    "tokens": "show what the tools cost in a model's context, and which tools nobody calls",
    "call": "call one tool",
    "status": "show the state of your running hubs and of their servers",
    "open": "open the live page of a running hub in the browser",
    "logs": "show the calls of a running hub, and what its servers write to stderr",
    "reload": "have a running hub read its configuration again",
    "trust": "use the configuration of a directory, after you have seen what it starts",
    "add": "add a server: by name, address or command line",
    "remove": "take a server out of the configuration",
    "enable": "switch a server on",
    "disable": "switch a server off and keep its entry",
    "update": "find newer versions of pinned servers, and show what changes",
    "search": "find servers to add: in the bundled list and in the registry",
    "pin": "record what servers list now, so that changes are noticed",
    "login": "sign in to a server",
    "logout": "forget a sign-in",
    "import": "take the servers of clients into the configuration",
    "install": "put the hub into the file of a client",
    "uninstall": "take the hub out of the file of a client, or of all",
    "undo": "take back what the last command, or another one, changed in files",
    "completion": "print the script with which bash, zsh or fish completes commands, servers and tools",
    "browser": "say which browser the built-in server uses, or install one",
}

OTHER_NAMES: Final = {
    **dict.fromkeys(("list", "ls", "get", "servers", "inspect"), "check"),
    **dict.fromkeys(("start", "run", "up"), "serve"),
    **dict.fromkeys(("rm", "delete"), "remove"),
    **dict.fromkeys(("init", "config"), "setup"),
    **{"connect": "install", "upgrade": "update", "auth": "login", "version": "--version"},
    "manifests": "the files of docs/examples/kubernetes in the repository, for `kubectl apply -k`",
}
"""Commands of other programs and former versions, and what does the same: the error for an unknown command names it."""

OK, FAILED, BAD_INPUT, UNCONFIRMED, STALE = 0, 1, 2, 3, 4

EXIT_CODES = """exit codes:
  0  done
  1  something failed: a server, a call, the hub
  2  the input cannot be used: arguments, the configuration
  3  a confirmation is needed: nothing was changed
  4  a preview went stale: nothing was changed
  130  interrupted (Ctrl-C)"""

FIRST_STEPS = """
Start here:
  mcp-hub          says what is configured, what is running, and what to do next
  mcp-hub setup    puts the servers of your clients behind the hub, and the hub into the clients
  mcp-hub check    connects to the servers and says what works
  mcp-hub tools    lists their tools
  mcp-hub serve    is the command to give to a client
  mcp-hub help COMMAND    explains a command"""

COMPLETION_VARIABLE = "_ARGCOMPLETE"
"""The environment variable that a shell sets when it asks for completions of a command line."""

GARBAGE_AFTER = (5_000, 1, 265)
"""Thresholds of the garbage collector. Python's default of 700 objects costs a tenth of a call's time. A collection
of the middle generation visits 15,000 objects, which takes some milliseconds. A full collection comes after 4,000,000
objects, so never during the imports. A running hub sets other thresholds (`frames.freeze_imports`)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code, one of `EXIT_CODES`. This is the entry point of `mcp-hub`.

    This module imports little, so that Ctrl-C during the other imports ends the command without a traceback.
    """
    gc.set_threshold(*GARBAGE_AFTER)
    _escape_unencodable_characters()
    try:
        if COMPLETION_VARIABLE in os.environ:
            import_module("mcp_hub.cli.completion").answer_shell(lambda command_name: _make_parser(command_name)[0])
        arguments = list(sys.argv[1:] if argv is None else argv)
        options = _parse(arguments)
        options.arguments = arguments
        code: int = import_module(f"mcp_hub.cli.{options.command}").run(options)
        sys.stdout.flush()  # here, where a closed pipe is still handled
        return code
    except ConfigError as error:
        print(error.for_user(), file=sys.stderr)
        return BAD_INPUT
    except HubError as error:
        print(f"mcp-hub: {error.for_user()}", file=sys.stderr)
        from mcp_hub.editing.edit import StaleEdit

        return STALE if isinstance(error, StaleEdit) else FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return FAILED


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of a command line. Exits with help, or with 2 and the usage of the command that was meant."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    command_name = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser, command = _make_parser(command_name)
    if (
        command_name is not None
        and arguments[0].startswith("-")
        and arguments[0] not in ("-h", "--help", "--version", "--json")
    ):
        name = command_name if command_name in COMMANDS else "COMMAND"
        parser.error(f"write options behind the command: mcp-hub {name} {printable(arguments[0], 100)} ...")
    if command_name is not None and command_name not in COMMANDS:
        close_match = OTHER_NAMES.get(command_name) or _nearest(command_name, COMMANDS)
        hint = f"did you mean {close_match}?" if close_match is not None else "`mcp-hub help` lists them all"
        parser.error(f"there is no command {printable(command_name, 100)!r}; {hint}")
    end = (
        next((index for index, argument in enumerate(arguments) if argument in ("--", "--command")), None)
        if command_name == "add"
        else None
    )
    options, unknown = parser.parse_known_args(arguments[:end])
    if end is not None:  # argparse would take a further `--` out of the command line
        options.command_line = arguments[end + 1 :]
    if hasattr(options, "words"):  # argparse does not take positional arguments that follow an option
        options.words += [argument for argument in unknown if argument == "-" or not argument.startswith("-")]
        unknown = [argument for argument in unknown if argument.startswith("-") and argument != "-"]
    if unknown:
        command.error(_unknown_arguments(command, unknown))
    if options.command is None:
        options.command, options.json = "overview", options.overview_json
    elif options.overview_json:
        parser.error(f"write --json behind the command: mcp-hub {options.command} --json")
    return options


def _make_parser(command_name: str | None) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Returns the main parser and that of the chosen command. The others are not made, as that takes time."""

    def parser_of_command(**kwargs: Any) -> Any:
        return argparse.ArgumentParser(**kwargs) if kwargs["prog"] == f"mcp-hub {command_name}" else object()

    parser_class: Any = parser_of_command
    parser_options: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": EXIT_CODES}
    description = f"One MCP server in front of all of yours.\n{FIRST_STEPS}"
    parser = argparse.ArgumentParser(prog="mcp-hub", description=description, **parser_options)
    parser.add_argument("--version", action="version", version=f"mcp-hub {VERSION}")
    parser.add_argument(
        "--json", action="store_true", dest="overview_json", help="without a command: the facts as JSON"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=parser_class)
    command = parser
    for name, text in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", **parser_options
        )
        if name == command_name:
            module = import_module(f"mcp_hub.cli.{name}")
            module.add_arguments(subparser)
            subparser.epilog = f"{module.EXAMPLES}\n\n{EXIT_CODES}"
            subparser.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr; twice: all")
            command = subparser
    return parser, command


def _unknown_arguments(command: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Returns the message for arguments that a command does not have, with an option of similar name."""
    known_options = set(re.findall(r"--[\w-]+", command.format_help()))
    close_matches = [
        match for argument in unknown if (match := _nearest(argument.partition("=")[0], known_options)) is not None
    ]
    hint = f" (did you mean {close_matches[0]}?)" if close_matches else f"; `{command.prog} --help` has examples"
    return f"unrecognized arguments: {' '.join(unknown)}{hint}"


def _nearest(text: str, candidates: Iterable[str]) -> str | None:
    from mcp_hub.config.findings import nearest

    return nearest(text, candidates)


def json_text(value: Any) -> str:
    r"""Returns indented JSON with hidden characters as \u escapes, so that no text of a server controls a terminal."""
    # Characters that stdout cannot encode must become escapes of JSON, not of Python.
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    try:
        text = json.dumps(value, indent=2, ensure_ascii=ascii_only)
    except RecursionError:
        from mcp_hub.protocol.frames import encode

        text = encode(value).decode()
    return json_escaped(text, keep="\n")


def _escape_unencodable_characters() -> None:
    """Makes stdout and stderr print characters that they cannot encode as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Discards all further output after a closed pipe, so that the interpreter does not report an error at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(devnull, descriptor)
    os.close(devnull)
