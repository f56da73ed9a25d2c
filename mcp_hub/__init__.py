"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.config import load_config
    from mcp_hub.hub import Hub
    from mcp_hub.local.registry import tool
    from mcp_hub.metrics import IMetricsCollector
    from mcp_hub.toolkit.formatter import ToolFormatter
    from mcp_hub.version import VERSION as __version__

__all__ = ["Hub", "IMetricsCollector", "ToolFormatter", "__version__", "load_config", "tool"]

_HOMES: Final = {
    "Hub": ("mcp_hub.hub", "Hub"),
    "ToolFormatter": ("mcp_hub.toolkit.formatter", "ToolFormatter"),
    "IMetricsCollector": ("mcp_hub.metrics", "IMetricsCollector"),
    "load_config": ("mcp_hub.config", "load_config"),
    "tool": ("mcp_hub.local.registry", "tool"),
    "__version__": ("mcp_hub.version", "VERSION"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mcp_hub' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
