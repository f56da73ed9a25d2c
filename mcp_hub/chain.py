"""The rules in their order, made from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.policy import Chain, Json, Next
from mcp_hub.policy.access import Access
from mcp_hub.policy.deadline import Deadline
from mcp_hub.policy.limits import Limits
from mcp_hub.policy.presentation import Presentation
from mcp_hub.policy.preset import Preset
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.trace import Trace
from mcp_hub.redaction import Redaction


@dataclass(frozen=True)
class Rules:
    """The chain, and the rules somebody asks something besides."""

    chain: Chain
    access: Access
    trace: Trace


def make_rules(
    config: Config, selection: Selection, innermost: Next, record: Callable[[Json], None] | None = None
) -> Rules:
    """All rules of a configuration, from the outermost to the innermost; `record` gets a record of every call."""
    servers = {server.id: server for server in config.servers}
    access = Access(config, selection)
    trace = Trace(record, Redaction(secrets_of(config)), arguments=config.call_log.arguments)
    chain = Chain(
        (
            trace,
            access,
            Deadline({id: server.deadlines.call for id, server in servers.items()}),
            Preset(servers),
            Limits(),
            Presentation(servers),
        ),
        innermost,
    )
    return Rules(chain, access, trace)
