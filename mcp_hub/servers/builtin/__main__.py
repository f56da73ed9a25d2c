"""`python -m mcp_hub.servers.builtin NAME`: serves one built-in upstream over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, Final

from mcp_hub.transport.standard_streams import claim

SERVERS: Final = {
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
"""Upstreams that refuse to start unless a hub starts them, because only the hub keeps them off a network."""
CLOSE_WAIT: Final = 3.0
"""Seconds for closing what is open after stdin has ended. The hub kills the process at about the same time."""


def main() -> None:
    """Serves until stdin ends, closes what is open, then exits without waiting for calls that still run."""
    stdin, stdout = claim()  # before anything of a library's can print
    from mcp_hub.servers.builtin.settings import VARIABLE, Settings

    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in SERVERS:
        sys.exit(f"usage: python -m mcp_hub.servers.builtin {'|'.join(SERVERS)}")
    if name in OF_THIS_MACHINE and VARIABLE not in os.environ:
        sys.exit(f"'{name}' is started by the hub only: write an entry with 'builtin: {name}'")
    from mcp_hub.servers.local import mark_of
    from mcp_hub.servers.local.local_server import LocalServer
    from mcp_hub.servers.local.local_tool import LocalTool

    module_name, make_tools, close_all = SERVERS[name]
    try:
        module = import_module(f"mcp_hub.servers.builtin.{module_name}")
    except ImportError as error:
        from mcp_hub.config.extras import OF_BUILTINS, missing

        lacking = missing(OF_BUILTINS[name]) if name in OF_BUILTINS else None
        sys.exit(f"builtin: {name}: {lacking or error}")
    try:
        offered: Sequence[Callable[..., Any] | LocalTool] = getattr(module, make_tools)(
            Settings.from_environ(os.environ)
        )
    except (OSError, ValueError) as error:
        sys.exit(f"builtin: {name}: {error}")
    tools = [one for one in offered if isinstance(one, LocalTool)]
    tools += [LocalTool(one, mark) for one in offered if callable(one) and (mark := mark_of(one)) is not None]
    server = LocalServer({tool.name: tool for tool in tools}, [], stdin, stdout, name=f"mcp-hub {name}")
    server.serve()
    if close_all is not None:
        close: Callable[[], Coroutine[Any, Any, None]] = getattr(module, close_all)
        server.finish(asyncio.wait_for(close(), CLOSE_WAIT), CLOSE_WAIT + 0.5)
    sys.stderr.flush()
    os._exit(0)  # a thread that never returns must not keep the process


main()
