"""The page of the metrics, read from what a hub writes at `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mcp_hub.config.models import Config, Server
from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.metrics_page import metrics_page
from mcp_hub.downstream.replicas import Replicas
from mcp_hub.hub import Engine
from mcp_hub.security import Principal

PAGE: Final = "docs/reference/metrics.md"
BEGINNING: Final = """# Metrics

A hub on a network reports these metrics at `/metrics`. `mcp-hub status --json` has them under `metrics`.
[Spans and metrics](../observability.md) shows how to collect them, and explains the labels. A histogram has `_bucket`,
`_count` and `_sum`. Only [replicas](../scale.md) report the last five. `scripts/reference` generates this page from
the output of a hub.

"""
OF_SAMPLES: Final = {"le"}
"""Labels that the kind of a metric makes, and not the hub."""


def exposition() -> str:
    """Returns what a replica with one server and one call says."""
    server = Server(id="up", transport="stdio", command="true", namespace="up")
    hub = Engine(Config(servers=(server,)))
    hub.metrics.record("up", "tools/call", "echo", "ok", None, 1.0)
    dispatcher = Dispatcher(hub)
    replicas = Replicas(StoreSettings.model_validate({"url": "redis://localhost"}), dispatcher)
    return metrics_page(dispatcher, Principal(""), {}, replicas.facts()).decode()


def rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields name, kind, labels and meaning of each metric."""
    for family in text_string_to_metric_families(text):
        labels = {label: None for sample in family.samples for label in sample.labels if label not in OF_SAMPLES}
        states = [f"`{sample.labels[family.name]}`" for sample in family.samples if family.name in sample.labels]
        labels.pop(family.name, None)
        meaning = family.documentation + (f" One of {', '.join(states)}." if states else "")
        unit = f", {family.unit}" if family.unit else ""
        yield f"`{name_of(family)}`", f"{family.type}{unit}", ", ".join(f"`{label}`" for label in labels), meaning


def name_of(family: Metric) -> str:
    """Returns the name that a query has, which for a counter and an info is that of its sample."""
    return family.samples[0].name if family.type in ("counter", "info") else str(family.name)
