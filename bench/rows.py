"""What is measured side by side: the server itself, the hub, and the proxies it is compared with."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

DIRECT = "direct"
HUB = "hub"
SDK = "sdk"
FASTMCP = "fastmcp"


@dataclass(frozen=True, slots=True)
class Row:
    """A proxy by the command that starts it; the one of `direct` is empty: there is no proxy.

    In the arguments of a command `{config}`, `{transport}`, `{port}` and `{era}` are replaced.
    """

    name: str
    command: tuple[str, ...]

    def argv(self, config: Path, transport: str, port: int, era: str) -> list[str]:
        """The command for a client's transport: `stdio`, `http` or `sse`."""
        if self.name == HUB:
            listen_flags = [] if transport == "stdio" else [f"--{transport}", "--port", str(port)]
            # The other rows list everything, so the hub does.
            return [*self.command, "serve", "--config", str(config), "--expose", "all", *listen_flags]
        substitutions = {"{config}": str(config), "{transport}": transport, "{port}": str(port), "{era}": era}
        argv = []
        for argument in self.command:
            for placeholder, value in substitutions.items():
                argument = argument.replace(placeholder, value)
            argv.append(argument)
        return argv


def _own(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"bench.proxies.{module}", "{config}", "{transport}", "{port}", "{era}")


OWN = (
    Row(DIRECT, ()),
    Row(HUB, (sys.executable, "-m", "mcp_hub")),
    Row(SDK, _own("sdk")),
    Row(FASTMCP, _own("fastmcp_mounts")),
)


def peer(text: str) -> Row:
    """`NAME=COMMAND` of the command line. Raises ValueError."""
    name, equals, command = text.partition("=")
    argv = shlex.split(command)
    if not equals or not name.isidentifier() or not argv or name in (row.name for row in OWN):
        raise ValueError(f"--peer {text}: must be NAME=COMMAND, with a name of letters that no other row has")
    return Row(name, tuple(argv))
