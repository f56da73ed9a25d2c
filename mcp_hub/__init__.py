"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.config import load_config
    from mcp_hub.errors import HubError
    from mcp_hub.local.registry import tool
    from mcp_hub.local.response import ToolResponse
    from mcp_hub.toolkit.clients import HttpStatefulClient, HttpStatelessClient, StdIOStatefulClient
    from mcp_hub.toolkit.hub import Hub
    from mcp_hub.toolkit.toolkit import Toolkit
    from mcp_hub.version import VERSION as __version__

_HOMES: Final = {
    "Hub": "mcp_hub.toolkit.hub",
    "HttpStatefulClient": "mcp_hub.toolkit.clients",
    "HttpStatelessClient": "mcp_hub.toolkit.clients",
    "HubError": "mcp_hub.errors",
    "Toolkit": "mcp_hub.toolkit.toolkit",
    "ToolResponse": "mcp_hub.local.response",
    "StdIOStatefulClient": "mcp_hub.toolkit.clients",
    "load_config": "mcp_hub.config",
    "tool": "mcp_hub.local.registry",
}
"""The module of each public name."""

__all__ = [
    "HttpStatefulClient",
    "HttpStatelessClient",
    "Hub",
    "HubError",
    "StdIOStatefulClient",
    "ToolResponse",
    "Toolkit",
    "__version__",
    "load_config",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("mcp_hub.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'mcp_hub' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
