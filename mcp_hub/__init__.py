"""mcp-hub: one MCP server in front of all of yours. The public names are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_hub.errors import HubError as HubError
    from mcp_hub.hub.composition import load_config as load_config
    from mcp_hub.library import Hub as Hub
    from mcp_hub.library.agentscope import Toolkit as Toolkit
    from mcp_hub.library.agentscope.machine_tools import (
        execute_python_code as execute_python_code,
        execute_shell_command as execute_shell_command,
        insert_text_file as insert_text_file,
        view_text_file as view_text_file,
        write_text_file as write_text_file,
    )
    from mcp_hub.library.agentscope.mcp_clients import (
        HttpStatefulClient as HttpStatefulClient,
        HttpStatelessClient as HttpStatelessClient,
        MCPClientBase as MCPClientBase,
        MCPToolFunction as MCPToolFunction,
        StatefulClientBase as StatefulClientBase,
        StdIOStatefulClient as StdIOStatefulClient,
    )
    from mcp_hub.library.engine_host import CallToolResult as CallToolResult
    from mcp_hub.library.manager import ToolManager as ToolManager
    from mcp_hub.library.miroflow import PlaywrightSession as PlaywrightSession, with_timeout as with_timeout
    from mcp_hub.library.mounted_hub import asgi as asgi
    from mcp_hub.library.tool_system import (
        IConfigLoader as IConfigLoader,
        IConfigSystem as IConfigSystem,
        ILLMClient as ILLMClient,
        IToolFormatter as IToolFormatter,
        IToolManager as IToolManager,
        StrategyUnavailable as StrategyUnavailable,
        ToolFormatter as ToolFormatter,
    )
    from mcp_hub.library.tool_system.executor import (
        ILogger as ILogger,
        IToolExecutor as IToolExecutor,
        ToolExecutor as ToolExecutor,
    )
    from mcp_hub.library.tool_system.tool_types import (
        BaseTool as BaseTool,
        BuiltinTool as BuiltinTool,
        MCPTool as MCPTool,
        NativeTool as NativeTool,
        ToolManagerProtocol as ToolManagerProtocol,
        ToolMessage as ToolMessage,
    )
    from mcp_hub.observability.call_metrics import IMetricsCollector as IMetricsCollector
    from mcp_hub.security import Principal as Principal
    from mcp_hub.servers.local import tool as tool
    from mcp_hub.servers.local.tool_results import (
        AudioBlock as AudioBlock,
        Base64Source as Base64Source,
        ImageBlock as ImageBlock,
        TextBlock as TextBlock,
        ToolResponse as ToolResponse,
        ToolUseBlock as ToolUseBlock,
        URLSource as URLSource,
        VideoBlock as VideoBlock,
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

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("mcp_hub.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'mcp_hub' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
