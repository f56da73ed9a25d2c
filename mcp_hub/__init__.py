"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.config import load_config
    from mcp_hub.errors import HubError
    from mcp_hub.local.blocks import (
        AudioBlock,
        Base64Source,
        ImageBlock,
        TextBlock,
        ToolUseBlock,
        URLSource,
        VideoBlock,
    )
    from mcp_hub.local.registry import tool
    from mcp_hub.local.response import ToolResponse
    from mcp_hub.metrics import IMetricsCollector
    from mcp_hub.toolkit.clients import HttpStatefulClient, HttpStatelessClient, StdIOStatefulClient
    from mcp_hub.toolkit.executor import ToolExecutor
    from mcp_hub.toolkit.formatter import ToolFormatter
    from mcp_hub.toolkit.hub import Hub
    from mcp_hub.toolkit.manager import ToolManager
    from mcp_hub.toolkit.playwright_session import PlaywrightSession
    from mcp_hub.toolkit.protocols import (
        IConfigLoader,
        IConfigSystem,
        ILLMClient,
        ILogger,
        IToolExecutor,
        IToolManager,
        ToolManagerProtocol,
    )
    from mcp_hub.toolkit.timeouts import with_timeout
    from mcp_hub.toolkit.tool_types import BaseTool, ToolMessage
    from mcp_hub.toolkit.toolkit import Toolkit
    from mcp_hub.version import VERSION as __version__

_HOMES: Final = {
    "AudioBlock": "mcp_hub.local.blocks",
    "Base64Source": "mcp_hub.local.blocks",
    "ImageBlock": "mcp_hub.local.blocks",
    "TextBlock": "mcp_hub.local.blocks",
    "ToolUseBlock": "mcp_hub.local.blocks",
    "URLSource": "mcp_hub.local.blocks",
    "VideoBlock": "mcp_hub.local.blocks",
    "BaseTool": "mcp_hub.toolkit.tool_types",
    "HttpStatefulClient": "mcp_hub.toolkit.clients",
    "HttpStatelessClient": "mcp_hub.toolkit.clients",
    "Hub": "mcp_hub.toolkit.hub",
    "HubError": "mcp_hub.errors",
    "IConfigLoader": "mcp_hub.toolkit.protocols",
    "IConfigSystem": "mcp_hub.toolkit.protocols",
    "ILLMClient": "mcp_hub.toolkit.protocols",
    "ILogger": "mcp_hub.toolkit.protocols",
    "IMetricsCollector": "mcp_hub.metrics",
    "IToolExecutor": "mcp_hub.toolkit.protocols",
    "IToolManager": "mcp_hub.toolkit.protocols",
    "load_config": "mcp_hub.config",
    "PlaywrightSession": "mcp_hub.toolkit.playwright_session",
    "StdIOStatefulClient": "mcp_hub.toolkit.clients",
    "tool": "mcp_hub.local.registry",
    "ToolExecutor": "mcp_hub.toolkit.executor",
    "ToolFormatter": "mcp_hub.toolkit.formatter",
    "Toolkit": "mcp_hub.toolkit.toolkit",
    "ToolManager": "mcp_hub.toolkit.manager",
    "ToolManagerProtocol": "mcp_hub.toolkit.protocols",
    "ToolMessage": "mcp_hub.toolkit.tool_types",
    "ToolResponse": "mcp_hub.local.response",
    "with_timeout": "mcp_hub.toolkit.timeouts",
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
