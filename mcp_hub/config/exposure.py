"""What must not, and what cannot, be served over a network."""

from __future__ import annotations

from mcp_hub.config.extras import missing
from mcp_hub.config.models import Config
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable


def refuse_over_network(config: Config) -> None:
    """Raises ConfigError for servers that give a network this machine, unless their entries say that they may.

    Also for a verifier of tokens whose packages are missing: without it nobody can be told apart.
    """
    if config.listen.verify is not None and (lacking := missing("verify")) is not None:
        raise ConfigError(f"listen.verify cannot be used: {lacking}")
    kept = [server for server in config.servers if server.enabled and server.of_this_machine]
    if kept:
        names = ", ".join(f"{printable(server.id)} (builtin: {server.builtin})" for server in kept)
        text = "would let whoever reaches the listener use this machine as you; serve over stdio, switch the entry off"
        raise ConfigError(f"{names} {text}, or write 'allow_over_network: true' into it")
