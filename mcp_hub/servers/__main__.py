"""The process of one of the hub's own servers, which it serves over stdio: `python -m mcp_hub.servers ...`.

`NAME` is a built-in server. `local DIRECTORY [--tell-presets]` serves the user's functions in a directory; with
`--tell-presets`, which the hub passes, the first message lists the values preset for them, so that the hub can redact
them. `steps [--path=DIRECTORY]... MODULE:FUNCTION...` serves the user's functions that change results. `search
[--model=DIRECTORY]` compares the meanings of texts. `programs BYTES` runs programs that models write, one at a time,
whose values may take so many bytes.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mcp_hub.transport.standard_streams import claim

BUILTIN: Final = {
    "web": ("web", "tools", "close"),
    "browser": ("browser_tools", "tools", "close"),
    "code": ("programs", "code_tools", "close_code"),
    "shell": ("programs", "shell_tools", "close_shell"),
    "text_files": ("text_files", "tools", None),
    "files": ("files", "tools", None),
    "native": ("native_endpoints", "tools", "close"),
}
"""Maps a name to its module, the function in it that makes the tools, and the coroutine function that closes them."""
OF_THIS_MACHINE: Final = frozenset({"code", "shell", "text_files", "files"})
"""Servers that only a hub may start, because only the hub ensures that they are not reachable over a network."""
PROGRAM_BASE: Final = 192 * 1024 * 1024
"""Bytes that a process for programs may take besides what a program needs."""
CLOSE_WAIT: Final = 3.0
"""Seconds for closing what is open after stdin has ended. The hub kills the process at about the same time."""


def main() -> None:
    """Serves until stdin ends, closes what is open, then exits without waiting for calls that still run."""
    stdin, stdout = claim()  # before code of the user or of a library can print
    name, *arguments = sys.argv[1:] or [""]
    if name == "local" and arguments:
        _serve_directory(Path(arguments[0]), arguments[1:], stdin, stdout)
    elif name == "steps":
        _serve_steps(arguments, stdin, stdout)
    elif name == "search":
        _serve_search(arguments, stdin, stdout)
    elif name == "programs" and arguments:
        _serve_programs(int(arguments[0]), stdin, stdout)
    elif name in BUILTIN and not arguments:
        _serve_builtin(name, stdin, stdout)
    else:
        sys.exit(
            f"usage: python -m mcp_hub.servers {'|'.join(BUILTIN)}|local DIRECTORY|steps FUNCTION...|search"
            "|programs BYTES"
        )
    sys.stderr.flush()
    os._exit(0)  # a thread that never returns must not keep the process alive


def _serve_builtin(name: str, stdin: int, stdout: int) -> None:
    from mcp_hub.config.extras import OF_BUILTINS, missing
    from mcp_hub.servers.builtin import VARIABLE, Settings

    if name in OF_THIS_MACHINE and VARIABLE not in os.environ:
        sys.exit(f"'{name}' is started by the hub only: write an entry with 'builtin: {name}'")
    from mcp_hub.servers.local import mark_of
    from mcp_hub.servers.local.local_server import LocalServer
    from mcp_hub.servers.local.local_tool import LocalTool

    if name in OF_BUILTINS and (lacking := missing(OF_BUILTINS[name])) is not None:
        sys.exit(f"builtin: {name}: {lacking}")
    module_name, make_tools, close_all = BUILTIN[name]
    try:
        module = import_module(f"mcp_hub.servers.builtin.{module_name}")
    except ImportError as error:
        sys.exit(f"builtin: {name}: {error}")
    try:
        candidates: Sequence[Callable[..., Any] | LocalTool] = getattr(module, make_tools)(
            Settings.from_environ(os.environ)
        )
    except (OSError, ValueError) as error:
        sys.exit(f"builtin: {name}: {error}")
    tools = [candidate for candidate in candidates if isinstance(candidate, LocalTool)]
    tools += [
        LocalTool(candidate, mark)
        for candidate in candidates
        if callable(candidate) and (mark := mark_of(candidate)) is not None
    ]
    server = LocalServer({tool.name: tool for tool in tools}, [], stdin, stdout, name=f"mcp-hub {name}")
    server.serve()
    if close_all is not None:
        close: Callable[[], Coroutine[Any, Any, None]] = getattr(module, close_all)
        server.finish(asyncio.wait_for(close(), CLOSE_WAIT), CLOSE_WAIT + 0.5)


def _serve_directory(directory: Path, arguments: Sequence[str], stdin: int, stdout: int) -> None:
    from mcp_hub.protocol.kinds import TELL_PRESETS
    from mcp_hub.security.redaction import Redactor
    from mcp_hub.servers.local.loader import OwnedImports, load
    from mcp_hub.servers.local.local_server import LocalServer

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what functions print reaches the log at once
    if not directory.is_dir():
        sys.exit(f"{directory} is not a directory: tools_dir must name the one with your Python files")
    left_out: list[str] = []
    duplicates: list[dict[str, str]] = []
    OwnedImports.install((directory,))
    presets: list[str] = []
    tools = load(directory, left_out.append, duplicates, presets)
    redaction = Redactor(presets)
    left_out = [redaction.text(text) for text in left_out]
    server = LocalServer(tools, left_out, stdin, stdout, duplicates=duplicates, redaction=redaction)
    if TELL_PRESETS in arguments:
        server.tell_presets(presets)
    duplicate_notes = [
        f"{duplicate['dropped']}: {duplicate['name']} is left out: {duplicate['kept']} has it already"
        for duplicate in duplicates
    ]
    for text in (*left_out, *duplicate_notes):
        print(text, file=sys.stderr, flush=True)
    server.serve()


def _serve_steps(arguments: Sequence[str], stdin: int, stdout: int) -> None:
    from mcp_hub.servers.local import Mark
    from mcp_hub.servers.local.loader import OwnedImports
    from mcp_hub.servers.local.local_server import LocalServer
    from mcp_hub.servers.local.local_tool import LocalTool
    from mcp_hub.servers.local.postprocess import ThreadRunner, make_step_tool

    directories = [argument.removeprefix("--path=") for argument in arguments if argument.startswith("--path=")]
    sys.path[:0] = directories
    OwnedImports.install(map(Path, directories))
    names = [argument for argument in arguments if not argument.startswith("--")]
    threads = ThreadRunner()
    tools = {name: LocalTool(make_step_tool(name, threads), Mark(name=name)) for name in names}
    LocalServer(tools, [], stdin, stdout, name="mcp-hub functions").serve()


def _serve_search(arguments: Sequence[str], stdin: int, stdout: int) -> None:
    from mcp_hub.search.embedding import UnusableModel, search_tools
    from mcp_hub.servers.local import Mark
    from mcp_hub.servers.local.local_server import LocalServer
    from mcp_hub.servers.local.local_tool import LocalTool

    try:
        functions = search_tools(arguments)
    except UnusableModel as error:
        sys.exit(f"search: {error}")
    tools = {name: LocalTool(function, Mark(name=name)) for name, function in functions.items()}
    LocalServer(tools, [], stdin, stdout, name="mcp-hub search").serve()


def _serve_programs(memory: int, stdin: int, stdout: int) -> None:
    from mcp_hub.servers import bound_memory
    from mcp_hub.servers.local import Mark
    from mcp_hub.servers.local.local_server import LocalServer
    from mcp_hub.servers.local.local_tool import LocalTool
    from mcp_hub.servers.program_runner import program_tools

    # A value is here up to four times on its way: from the interpreter, as a message, as JSON, and to the hub.
    bound_memory(PROGRAM_BASE + 4 * memory)
    tools = {name: LocalTool(function, Mark(name=name)) for name, function in program_tools(memory).items()}
    LocalServer(tools, [], stdin, stdout, name="mcp-hub programs").serve()


if __name__ == "__main__":
    main()
