"""What one hub has in all its generations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mcp_hub.catalog.exposed_ids import TaskSealer, UriMap
from mcp_hub.config.ancestry import Ancestry
from mcp_hub.hub.catalogs import Catalogs
from mcp_hub.observability.call_metrics import CallMetrics
from mcp_hub.policy import Json
from mcp_hub.policy.approvals import Approvals
from mcp_hub.policy.call_record import RecordLabels, RecordTap
from mcp_hub.policy.data_flow import UsedLabels
from mcp_hub.policy.long_results import LongResults
from mcp_hub.policy.sharing import Sharing
from mcp_hub.security.private_files import PendingWrites
from mcp_hub.transport.children import Children
from mcp_hub.upstream.attribution import ClientRegistry
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.upstream.lifecycle import StartLimiter
from mcp_hub.upstream.link_dialer import Functions


class SharedServices(msgspec.Struct, frozen=True):
    """The parts of a hub that outlive its generations; the composition root makes them."""

    info: dict[str, Any]
    """`serverInfo` of the hub."""
    environ: Mapping[str, str] | None
    children: Children
    catalogs: Catalogs
    uris: UriMap
    clients: ClientRegistry
    metrics: CallMetrics
    kept: CatalogCache | None
    """Where catalogs are cached between runs; None: nowhere."""
    record: Callable[[Json], None] | None
    """Takes the record of each call; None: no records are written."""
    long_results: LongResults
    task_ids: TaskSealer
    """Seals the ids of tasks; made at the first use."""
    ancestry: Ancestry
    starts: StartLimiter
    labels: RecordLabels
    tap: RecordTap
    """Passes the records on while somebody watches."""
    used: UsedLabels
    """Data-flow labels that each session has used so far."""
    approvals: Approvals
    """How long each policy took, while somebody watches."""
    token_writes: PendingWrites
    sharing: Sharing
    """Reaches the other replicas of the hub."""
    tracer_provider: Any = None
    """A provider of OpenTelemetry, to be used in place of the configured exporter."""
    functions: Functions | None = None
    """Functions of the program that the hub runs in."""
    note: str = ""
    """The hub's own part of its instructions."""
