"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.config import load_config
    from mcp_hub.errors import HubError
    from mcp_hub.library.agentscope.clients import HttpStatefulClient, HttpStatelessClient, StdIOStatefulClient
    from mcp_hub.library.agentscope.toolkit import Toolkit
    from mcp_hub.library.hub import Hub
    from mcp_hub.library.manager import ToolManager
    from mcp_hub.library.miroflow.playwright_session import PlaywrightSession
    from mcp_hub.library.miroflow.timeouts import with_timeout
    from mcp_hub.library.tool_system.executor import ToolExecutor
    from mcp_hub.library.tool_system.formatter import ToolFormatter
    from mcp_hub.library.tool_system.protocols import (
        IConfigLoader,
        IConfigSystem,
        ILLMClient,
        ILogger,
        IToolExecutor,
        IToolManager,
        ToolManagerProtocol,
    )
    from mcp_hub.library.tool_system.tool_types import BaseTool, ToolMessage
    from mcp_hub.observability.metrics import IMetricsCollector
    from mcp_hub.servers.local.blocks import (
        AudioBlock,
        Base64Source,
        ImageBlock,
        TextBlock,
        ToolUseBlock,
        URLSource,
        VideoBlock,
    )
    from mcp_hub.servers.local.registry import tool
    from mcp_hub.servers.local.response import ToolResponse
    from mcp_hub.version import VERSION as __version__

_HOMES: Final = {
    "AudioBlock": "mcp_hub.servers.local.blocks",
    "Base64Source": "mcp_hub.servers.local.blocks",
    "ImageBlock": "mcp_hub.servers.local.blocks",
    "TextBlock": "mcp_hub.servers.local.blocks",
    "ToolUseBlock": "mcp_hub.servers.local.blocks",
    "URLSource": "mcp_hub.servers.local.blocks",
    "VideoBlock": "mcp_hub.servers.local.blocks",
    "BaseTool": "mcp_hub.library.tool_system.tool_types",
    "HttpStatefulClient": "mcp_hub.library.agentscope.clients",
    "HttpStatelessClient": "mcp_hub.library.agentscope.clients",
    "Hub": "mcp_hub.library.hub",
    "HubError": "mcp_hub.errors",
    "IConfigLoader": "mcp_hub.library.tool_system.protocols",
    "IConfigSystem": "mcp_hub.library.tool_system.protocols",
    "ILLMClient": "mcp_hub.library.tool_system.protocols",
    "ILogger": "mcp_hub.library.tool_system.protocols",
    "IMetricsCollector": "mcp_hub.observability.metrics",
    "IToolExecutor": "mcp_hub.library.tool_system.protocols",
    "IToolManager": "mcp_hub.library.tool_system.protocols",
    "load_config": "mcp_hub.config",
    "PlaywrightSession": "mcp_hub.library.miroflow.playwright_session",
    "StdIOStatefulClient": "mcp_hub.library.agentscope.clients",
    "tool": "mcp_hub.servers.local.registry",
    "ToolExecutor": "mcp_hub.library.tool_system.executor",
    "ToolFormatter": "mcp_hub.library.tool_system.formatter",
    "Toolkit": "mcp_hub.library.agentscope.toolkit",
    "ToolManager": "mcp_hub.library.manager",
    "ToolManagerProtocol": "mcp_hub.library.tool_system.protocols",
    "ToolMessage": "mcp_hub.library.tool_system.tool_types",
    "ToolResponse": "mcp_hub.servers.local.response",
    "with_timeout": "mcp_hub.library.miroflow.timeouts",
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
