"""The page `/metrics`: counts of the hub and states of its servers, as OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcp_hub.catalog import Route
from mcp_hub.downstream.refusal_log import CAUSES
from mcp_hub.observability.call_metrics import MetricFamily, bucket_bound, write_openmetrics
from mcp_hub.policy.breaker import CircuitState as Breaker
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher


def metrics_page(
    dispatcher: Dispatcher,
    principal: Principal,
    refusals: Mapping[str, int],
    replicas: Mapping[str, Any] | None = None,
) -> bytes:
    """Returns the page, without the servers and tools that the principal's profile hides.

    `refusals`: counts by cause. `replicas`: the facts of `Replicas`; None if there is one process only.
    """
    hub = dispatcher.hub
    is_shown = _visibility(dispatcher, principal)
    info = MetricFamily("mcp_hub", "info", "The version of the hub.")
    info.add(1, {"version": VERSION}, "_info")
    families = [
        info,
        *_call_families(dispatcher, is_shown),
        *_server_families(dispatcher, is_shown, unrestricted=principal.profile is None),
    ]
    if principal.profile is None:
        clients = MetricFamily("mcp_hub_clients", "gauge", "Clients with a session or a connection.")
        clients.add(len(dispatcher.connections))
        requests = MetricFamily("mcp_hub_requests_running", "gauge", "Requests of clients that are being answered.")
        requests.add(sum(len(connection.in_flight) for connection in dispatcher.connections))
        generation = MetricFamily(
            "mcp_hub_generation", "gauge", "Configurations that have been in force, the current one included."
        )
        generation.add(hub.generation.number)
        text = "Requests and connections refused before authentication, by cause."
        refused = MetricFamily("mcp_hub_refusals", "counter", text)
        for cause in CAUSES:  # with zeros, so that a counter's first step is visible
            refused.add(refusals.get(cause, 0), {"cause": cause}, "_total")
        background = MetricFamily("mcp_hub_background_restarts", "counter", "Background loops begun again.")
        background.add(BACKGROUND.restarts, suffix="_total")
        families += [clients, requests, generation, refused, background]
        if replicas is not None:
            families += _replica_families(replicas)
    return write_openmetrics(families)


def _replica_families(facts: Mapping[str, Any]) -> list[MetricFamily]:
    replicas = MetricFamily("mcp_hub_replicas", "gauge", "Replicas that this one knows to be alive, itself included.")
    replicas.add(facts["replicas"])
    away = MetricFamily("mcp_hub_store_away", "gauge", "1 while the store of the replicas does not answer, else 0.")
    away.add(int(facts["store"] == "away"))
    uses = MetricFamily("mcp_hub_store_uses", "counter", "Requests to the store.")
    uses.add(facts["store_uses"], {}, "_total")
    forwards = MetricFamily("mcp_hub_forwards", "counter", "Requests forwarded to another replica.")
    forwards.add(facts["forwarded"], {}, "_total")
    broken = MetricFamily(
        "mcp_hub_forwards_broken", "counter", "Forwarded requests whose replica failed during the request."
    )
    broken.add(facts["broken_forwards"], {}, "_total")
    return [replicas, away, uses, forwards, broken]


Shown = Callable[[str, str], bool]
"""Returns whether a tool of a server may be seen; with `""` as the tool, whether the server may be seen."""


def _visibility(dispatcher: Dispatcher, principal: Principal) -> Shown:
    if principal.profile is None:
        return lambda server, tool: True
    hub = dispatcher.hub
    servers = hub.catalogs.of(hub.callers.of(principal)).upstreams

    def is_shown(server: str, tool: str) -> bool:
        is_known = server in servers and server in hub.upstreams
        return is_known and (not tool or hub.rules.why(Route(server, TOOLS, tool), principal.profile) is None)

    return is_shown


def _call_families(dispatcher: Dispatcher, is_shown: Shown) -> list[MetricFamily]:
    metrics = dispatcher.hub.metrics
    calls = MetricFamily("mcp_hub_calls", "counter", "Calls that have ended, by outcome (ok, tool_error, a code).")
    for series, count in list(metrics.calls.items()):
        if is_shown(series.server, series.tool):
            calls.add(count, series._asdict(), "_total")
    text = "Time from the first rule to the answer."
    durations = MetricFamily("mcp_hub_call_duration_seconds", "histogram", text, "seconds")
    for (server, method), histogram in list(metrics.durations.items()):
        if not is_shown(server, ""):
            continue
        labels = {"server": server, "method": method}
        for end, count in histogram.cumulative():
            durations.add(count, {**labels, "le": bucket_bound(end)}, "_bucket")
        durations.add(histogram.count, labels, "_count")
        durations.add(histogram.seconds, labels, "_sum")
    return [calls, durations]


def _server_families(dispatcher: Dispatcher, is_shown: Shown, *, unrestricted: bool) -> list[MetricFamily]:
    hub = dispatcher.hub
    state = MetricFamily("mcp_hub_server_state", "stateset", "The state of each server.")
    breaker = MetricFamily("mcp_hub_server_breaker", "stateset", "The state of its circuit breaker.")
    running = MetricFamily("mcp_hub_server_calls_running", "gauge", "Calls to it that are running.")
    tools = MetricFamily("mcp_hub_server_tools", "gauge", "Tools it lists.")
    starts = MetricFamily("mcp_hub_server_starts", "counter", "Attempts to connect to it.")
    for id, upstream in hub.upstreams.items():
        if not is_shown(id, ""):
            continue
        labels = {"server": id}
        state.add_state(str(upstream.state), [str(value) for value in type(upstream.state)], labels)
        breaker.add_state(str(hub.rules.breaker_state(id)), [str(value) for value in Breaker], labels)
        running.add(upstream.calls.count, labels)
        if unrestricted:  # the number includes what a profile hides
            tools.add(len(upstream.lists.items.get(TOOLS, ())), labels)
        starts.add(upstream.starts, labels, "_total")
    return [state, breaker, running, tools, starts]
