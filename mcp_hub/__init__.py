"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.errors import HubError
    from mcp_hub.hub.composition import load_config
    from mcp_hub.library.agentscope.mcp_clients import HttpStatefulClient, HttpStatelessClient, StdIOStatefulClient
    from mcp_hub.library.agentscope.toolkit import Toolkit
    from mcp_hub.library.hub import Hub
    from mcp_hub.library.manager import ToolManager
    from mcp_hub.library.miroflow.tools_by_server import PlaywrightSession, with_timeout
    from mcp_hub.library.tool_system.executor import ToolExecutor
    from mcp_hub.library.tool_system.formatter import ToolFormatter
    from mcp_hub.library.tool_system.tool_types import (
        BaseTool,
        IConfigLoader,
        IConfigSystem,
        ILLMClient,
        ILogger,
        IToolExecutor,
        IToolManager,
        ToolManagerProtocol,
        ToolMessage,
    )
    from mcp_hub.observability.call_metrics import IMetricsCollector
    from mcp_hub.servers.local.registry import tool
    from mcp_hub.servers.local.tool_results import (
        AudioBlock,
        Base64Source,
        ImageBlock,
        TextBlock,
        ToolResponse,
        ToolUseBlock,
        URLSource,
        VideoBlock,
    )
    from mcp_hub.version import VERSION as __version__

_HOMES: Final = {
    "AudioBlock": "mcp_hub.servers.local.tool_results",
    "Base64Source": "mcp_hub.servers.local.tool_results",
    "ImageBlock": "mcp_hub.servers.local.tool_results",
    "TextBlock": "mcp_hub.servers.local.tool_results",
    "ToolUseBlock": "mcp_hub.servers.local.tool_results",
    "URLSource": "mcp_hub.servers.local.tool_results",
    "VideoBlock": "mcp_hub.servers.local.tool_results",
    "BaseTool": "mcp_hub.library.tool_system.tool_types",
    "HttpStatefulClient": "mcp_hub.library.agentscope.mcp_clients",
    "HttpStatelessClient": "mcp_hub.library.agentscope.mcp_clients",
    "Hub": "mcp_hub.library.hub",
    "HubError": "mcp_hub.errors",
    "IConfigLoader": "mcp_hub.library.tool_system.tool_types",
    "IConfigSystem": "mcp_hub.library.tool_system.tool_types",
    "ILLMClient": "mcp_hub.library.tool_system.tool_types",
    "ILogger": "mcp_hub.library.tool_system.tool_types",
    "IMetricsCollector": "mcp_hub.observability.call_metrics",
    "IToolExecutor": "mcp_hub.library.tool_system.tool_types",
    "IToolManager": "mcp_hub.library.tool_system.tool_types",
    "load_config": "mcp_hub.hub.composition",
    "PlaywrightSession": "mcp_hub.library.miroflow.tools_by_server",
    "StdIOStatefulClient": "mcp_hub.library.agentscope.mcp_clients",
    "tool": "mcp_hub.servers.local.registry",
    "ToolExecutor": "mcp_hub.library.tool_system.executor",
    "ToolFormatter": "mcp_hub.library.tool_system.formatter",
    "Toolkit": "mcp_hub.library.agentscope.toolkit",
    "ToolManager": "mcp_hub.library.manager",
    "ToolManagerProtocol": "mcp_hub.library.tool_system.tool_types",
    "ToolMessage": "mcp_hub.library.tool_system.tool_types",
    "ToolResponse": "mcp_hub.servers.local.tool_results",
    "with_timeout": "mcp_hub.library.miroflow.tools_by_server",
}
"""The module of each public name."""

__all__ = [
    "AudioBlock",
    "Base64Source",
    "BaseTool",
    "HttpStatefulClient",
    "HttpStatelessClient",
    "Hub",
    "HubError",
    "IConfigLoader",
    "IConfigSystem",
    "ILLMClient",
    "ILogger",
    "IMetricsCollector",
    "IToolExecutor",
    "IToolManager",
    "ImageBlock",
    "PlaywrightSession",
    "StdIOStatefulClient",
    "TextBlock",
    "ToolExecutor",
    "ToolFormatter",
    "ToolManager",
    "ToolManagerProtocol",
    "ToolMessage",
    "ToolResponse",
    "ToolUseBlock",
    "Toolkit",
    "URLSource",
    "VideoBlock",
    "__version__",
    "load_config",
    "tool",
    "with_timeout",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("mcp_hub.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'mcp_hub' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
