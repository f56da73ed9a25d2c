"""From a configured server to a link that can be opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mcp_hub.config.ancestry import VARIABLE, Ancestry
from mcp_hub.config.child_env import child_environment, find_command
from mcp_hub.config.models import Server
from mcp_hub.oauth.tokens import Tokens
from mcp_hub.protocol.kinds import TELL_PRESETS
from mcp_hub.security import raw_text_policy
from mcp_hub.transport.children import Children
from mcp_hub.transport.link import Link, LinkError

_OF_BROWSERS: Final = (
    "MCP_HUB_CHROMIUM", "PLAYWRIGHT_BROWSERS_PATH", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Where a browser is, and where it can show itself."""

Functions = Callable[[Server], Link]
"""A link to functions of the program the hub runs in."""


class Dialer:
    """Makes links. `environ` is the hub's own environment, of which children see only the safe base.

    `functions(server)` leads to those of the program the hub runs in,
    `settings(server)` is what the process of a built-in server is told, as environment variables, `sign_ins(server)`
    has the tokens of one that is signed in to. `ancestry` is the hub's place among hubs; None: it serves nobody.
    """

    def __init__(
        self,
        children: Children,
        environ: Mapping[str, str] | None = None,
        settings: Callable[[Server], Mapping[str, str]] = lambda server: {},
        sign_ins: Callable[[Server], Tokens | None] = lambda server: None,
        functions: Functions | None = None,
        ancestry: Ancestry | None = None,
    ) -> None:
        self.ancestry = ancestry
        self._children = children
        self._sign_ins = sign_ins
        self._environ = dict(os.environ if environ is None else environ)
        self._settings = settings
        self._functions = functions

    def link(self, server: Server, transport: str, clean: Callable[[str], str] = str) -> Link:
        """A new, unopened link. `transport` is never `auto`; `clean` is what its process says, without secrets.

        Raises CommandNotFound, LinkError.
        """
        if server.functions is not None:
            if self._functions is None:
                raise LinkError("its functions are those of a program this hub does not run in")
            return self._functions(server)
        if server.builtin == "skills":
            from mcp_hub.servers.skills.link import SkillLink

            return SkillLink(server.skills)
        if transport == "http":
            from mcp_hub.transport.http_client import HttpLink  # only where a server needs it

            return HttpLink(server, self._sign_ins(server))
        if transport == "sse":
            from mcp_hub.transport.sse_client import SseLink

            return SseLink(server, self._sign_ins(server))
        return self._process(server, clean)

    def argv(self, server: Server) -> list[str]:
        """What is executed for a server with a process, word by word. Raises CommandNotFound."""
        return self._argv(server, child_environment(server, self._environ, Path.home()).get("PATH", ""))

    def _argv(self, server: Server, path: str) -> list[str]:
        if server.builtin is not None:
            return [sys.executable, "-P", "-m", "mcp_hub.servers.builtin", server.builtin]
        if server.tools_dir is not None:
            return [sys.executable, "-P", "-m", "mcp_hub.servers.local", str(server.tools_dir), TELL_PRESETS]
        return [find_command(server.command or "", path, server.cwd), *server.args]

    def signed_in_anew(self, server: Server) -> bool:
        """Whether somebody has signed in to the server, in another process, since its tokens were last asked for."""
        tokens = self._sign_ins(server)
        return tokens is not None and tokens.changed

    def _process(self, server: Server, clean: Callable[[str], str]) -> Link:
        from mcp_hub.transport.stdio import StdioLink

        env = child_environment(server, self._environ, Path.home())
        argv = self._argv(server, env.get("PATH", ""))
        if server.builtin in ("web", "browser"):
            env |= {name: self._environ[name] for name in _OF_BROWSERS if name in self._environ}
        elif server.builtin == "text_files":
            said = env.get(raw_text_policy.VARIABLE), self._environ.get(raw_text_policy.VARIABLE)
            if said != (None, None):
                env[raw_text_policy.VARIABLE] = raw_text_policy.strictest(said)
        if server.builtin is not None:
            env |= self._settings(server)
        if self.ancestry is not None:
            env[VARIABLE] = self.ancestry.for_children
        return StdioLink(
            server.id,
            argv,
            env=env,
            cwd=server.cwd,
            children=self._children,
            max_frame=server.max_frame,
            write_deadline=server.deadlines.write,
            warns=server.builtin is not None,
            clean=clean,
        )
