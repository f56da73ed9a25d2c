"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.config import load_config
    from mcp_hub.hub import Hub
    from mcp_hub.local.registry import tool
    from mcp_hub.local.response import ToolResponse
    from mcp_hub.version import VERSION as __version__

_HOMES: Final = {
    "Hub": "mcp_hub.hub",
    "ToolResponse": "mcp_hub.local.response",
    "load_config": "mcp_hub.config",
    "tool": "mcp_hub.local.registry",
}
"""The module of each public name."""

__all__ = ["Hub", "ToolResponse", "__version__", "load_config", "tool"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("mcp_hub.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'mcp_hub' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
