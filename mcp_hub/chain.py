"""The rules in their order, made from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_hub.config.models import Config
from mcp_hub.policy import Chain, Next
from mcp_hub.policy.access import Access
from mcp_hub.policy.deadline import Deadline
from mcp_hub.policy.limits import Limits
from mcp_hub.policy.presentation import Presentation
from mcp_hub.policy.preset import Preset
from mcp_hub.policy.selection import Selection


@dataclass(frozen=True)
class Rules:
    """The chain, and the rules somebody asks something besides."""

    chain: Chain
    access: Access


def make_rules(config: Config, selection: Selection, innermost: Next) -> Rules:
    """All rules of a configuration, from the outermost to the innermost."""
    servers = {server.id: server for server in config.servers}
    access = Access(config, selection)
    chain = Chain(
        (
            access,
            Deadline({id: server.deadlines.call for id, server in servers.items()}),
            Preset(servers),
            Limits(),
            Presentation(servers),
        ),
        innermost,
    )
    return Rules(chain, access)
