"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.errors import HubError
    from mcp_hub.hub.composition import load_config
    from mcp_hub.library import Hub
    from mcp_hub.library.agentscope import Toolkit
    from mcp_hub.library.agentscope.machine_tools import (
        execute_python_code,
        execute_shell_command,
        insert_text_file,
        view_text_file,
        write_text_file,
    )
    from mcp_hub.library.agentscope.mcp_clients import (
        HttpStatefulClient,
        HttpStatelessClient,
        MCPClientBase,
        MCPToolFunction,
        StatefulClientBase,
        StdIOStatefulClient,
    )
    from mcp_hub.library.engine_host import CallToolResult
    from mcp_hub.library.manager import ToolManager
    from mcp_hub.library.miroflow import PlaywrightSession, with_timeout
    from mcp_hub.library.mounted_hub import asgi
    from mcp_hub.library.tool_system import (
        IConfigLoader,
        IConfigSystem,
        ILLMClient,
        IToolFormatter,
        IToolManager,
        StrategyUnavailable,
        ToolFormatter,
    )
    from mcp_hub.library.tool_system.executor import ILogger, IToolExecutor, ToolExecutor
    from mcp_hub.library.tool_system.tool_types import (
        BaseTool,
        BuiltinTool,
        MCPTool,
        NativeTool,
        ToolManagerProtocol,
        ToolMessage,
    )
    from mcp_hub.observability.call_metrics import IMetricsCollector
    from mcp_hub.security import Principal
    from mcp_hub.servers.local import tool
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

_NAMES: Final = {
    "mcp_hub.errors": "HubError",
    "mcp_hub.hub.composition": "load_config",
    "mcp_hub.library": "Hub",
    "mcp_hub.library.agentscope": "Toolkit",
    "mcp_hub.library.agentscope.machine_tools": (
        "execute_python_code execute_shell_command insert_text_file view_text_file write_text_file"
    ),
    "mcp_hub.library.agentscope.mcp_clients": (
        "HttpStatefulClient HttpStatelessClient MCPClientBase MCPToolFunction StatefulClientBase StdIOStatefulClient"
    ),
    "mcp_hub.library.engine_host": "CallToolResult",
    "mcp_hub.library.manager": "ToolManager",
    "mcp_hub.library.miroflow": "PlaywrightSession with_timeout",
    "mcp_hub.library.mounted_hub": "asgi",
    "mcp_hub.library.tool_system": (
        "IConfigLoader IConfigSystem ILLMClient IToolFormatter IToolManager StrategyUnavailable ToolFormatter"
    ),
    "mcp_hub.library.tool_system.executor": "ILogger IToolExecutor ToolExecutor",
    "mcp_hub.library.tool_system.tool_types": (
        "BaseTool BuiltinTool MCPTool NativeTool ToolManagerProtocol ToolMessage"
    ),
    "mcp_hub.observability.call_metrics": "IMetricsCollector",
    "mcp_hub.security": "Principal",
    "mcp_hub.servers.local": "tool",
    "mcp_hub.servers.local.tool_results": (
        "AudioBlock Base64Source ImageBlock TextBlock ToolResponse ToolUseBlock URLSource VideoBlock"
    ),
}
"""The public names of each module."""
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "AudioBlock",
    "Base64Source",
    "BaseTool",
    "BuiltinTool",
    "CallToolResult",
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
    "IToolFormatter",
    "IToolManager",
    "ImageBlock",
    "MCPClientBase",
    "MCPTool",
    "MCPToolFunction",
    "NativeTool",
    "PlaywrightSession",
    "Principal",
    "StatefulClientBase",
    "StdIOStatefulClient",
    "StrategyUnavailable",
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
    "asgi",
    "execute_python_code",
    "execute_shell_command",
    "insert_text_file",
    "load_config",
    "tool",
    "view_text_file",
    "with_timeout",
    "write_text_file",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("mcp_hub.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'mcp_hub' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
