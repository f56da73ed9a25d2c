"""Makes the link to a configured server: a process, an HTTP connection, or functions of this program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_hub.config.ancestry import VARIABLE as ANCESTRY_VARIABLE
from mcp_hub.config.ancestry import Ancestry
from mcp_hub.config.commands import child_environment, find_command
from mcp_hub.config.dialect import TRANSPORTS
from mcp_hub.config.models import Server
from mcp_hub.oauth import UpstreamTokens
from mcp_hub.protocol.kinds import TELL_PRESETS
from mcp_hub.security import file_access
from mcp_hub.transport import Link, LinkError
from mcp_hub.transport.children import Children

if TYPE_CHECKING:
    from mcp_hub.transport.egress import Egress

_CANDIDATES: Final[Mapping[str, Sequence[str]]] = {"auto": ("http", "sse")}
"""The transports to try, in order, for configured values of `transport` that name no single transport."""

Functions = Callable[[Server], Link]
"""Makes a link to functions of the program the hub runs in."""


class LinkDialer:
    """Makes links.

    Args:
        environ: the hub's own environment; children inherit a part of it.
        settings: returns the environment variables that configure a built-in server's process.
        sign_ins: returns the tokens for a server; None if it has no sign-in.
        functions: makes links to functions of the program the hub runs in.
        ancestry: the hub's place among nested hubs; None: the hub serves no clients.
    """

    def __init__(
        self,
        children: Children,
        environ: Mapping[str, str] | None = None,
        settings: Callable[[Server], Mapping[str, str]] = lambda server: {},
        sign_ins: Callable[[Server], UpstreamTokens | None] = lambda server: None,
        functions: Functions | None = None,
        ancestry: Ancestry | None = None,
    ) -> None:
        self.ancestry = ancestry
        self.children = children
        self._sign_ins = sign_ins
        self._environ = dict(os.environ if environ is None else environ)
        self._settings = settings
        self._functions = functions

    def transports(self, server: Server) -> Sequence[str]:
        """Returns the names of the transports to try, in order; each is one for `link`."""
        return _CANDIDATES.get(server.transport, (server.transport,))

    def link(self, server: Server, transport: str, clean: Callable[[str], str] = str) -> Link:
        """Returns a new, unopened link. `clean` redacts what the server's process says.

        Raises:
            CommandNotFound: the server's command does not exist.
            LinkError: the server's functions are not available here.
        """
        if server.functions is not None:
            if self._functions is None:
                raise LinkError("its functions are those of a program this hub does not run in")
            return self._functions(server)
        if server.builtin == "skills":
            from mcp_hub.servers.skill_server import SkillLink

            return SkillLink(server.skills)
        module, _, name = TRANSPORTS[transport].link.partition(":")
        kind: type[Link] = getattr(import_module(module), name)
        return kind.of(server, self, clean)

    def argv(self, server: Server) -> list[str]:
        """Returns the command line of a server with a process. Raises CommandNotFound."""
        return self._argv(server, child_environment(server, self._environ, Path.home()).get("PATH", ""))

    def _argv(self, server: Server, path: str) -> list[str]:
        if server.builtin is not None:
            return [sys.executable, "-P", "-m", "mcp_hub.servers", server.builtin]
        if server.tools_dir is not None:
            return [sys.executable, "-P", "-m", "mcp_hub.servers", "local", str(server.tools_dir), TELL_PRESETS]
        return [find_command(server.command or "", path, server.cwd), *server.args]

    def signed_in_anew(self, server: Server) -> bool:
        """Returns whether another process has signed in to the server since its tokens were last read."""
        tokens = self._sign_ins(server)
        return tokens is not None and tokens.changed

    def authorization(self, server: Server) -> UpstreamTokens | None:
        """Returns the tokens for a server; None if it has no sign-in."""
        return self._sign_ins(server)

    def egress(self, server: Server) -> Egress:
        """Returns the Egress that makes the network connections to a server."""
        from mcp_hub.transport.egress import Egress  # imports the HTTP parser, which stdio servers do not need

        return Egress.of(server.egress, self._environ)

    def process(self, server: Server) -> tuple[list[str], dict[str, str]]:
        """Returns (command line, environment) of a server with a process. Raises CommandNotFound."""
        env = child_environment(server, self._environ, Path.home())
        argv = self._argv(server, env.get("PATH", ""))
        if server.builtin == "text_files":
            policies = env.get(file_access.RAW_TEXT_VARIABLE), self._environ.get(file_access.RAW_TEXT_VARIABLE)
            if policies != (None, None):
                env[file_access.RAW_TEXT_VARIABLE] = file_access.strictest_policy(policies)
        if server.builtin is not None:
            env |= self._settings(server)
        if self.ancestry is not None:
            env[ANCESTRY_VARIABLE] = self.ancestry.for_children
        return argv, env
