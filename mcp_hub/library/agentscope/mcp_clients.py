"""AgentScope's MCP clients: one server each, on a hub of its own or, once attached, on that of a toolkit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Literal
from weakref import WeakKeyDictionary

from mcp_hub.config.models import Config
from mcp_hub.errors import CallError
from mcp_hub.library.hub import Hub
from mcp_hub.library.server_entries import secrets_among, with_secrets
from mcp_hub.servers.local.tool_results import response_of

_ABSENT: Final[dict[str, Any]] = {
    "annotations": None,
    "content": (),
    "description": None,
    "execution": None,
    "icons": None,
    "isError": False,
    "mimeType": None,
    "outputSchema": None,
    "size": None,
    "structuredContent": None,
    "title": None,
    "_meta": None,
}
"""What fields mean that may be missing."""
_NEXT_WORD: Final = re.compile(r"_([a-z])")


class McpObject(dict[str, Any]):
    """A dict as it came over the wire, whose fields are attributes too: `result.isError`, `result.is_error`.

    The names are those of both generations of the MCP SDK; `meta` is `_meta`. Inside of lists and objects it goes on.
    """

    def __getattr__(self, name: str) -> Any:
        for key in (name, "_meta" if name == "meta" else _NEXT_WORD.sub(lambda word: word[1].upper(), name)):
            if key in self:
                return objects(self[key])
            if key in _ABSENT:
                return [] if key == "content" else _ABSENT[key]
        raise AttributeError(f"it has no {name!r}; it has: {', '.join(self)}")

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """A plain copy; what the SDK's models take as options makes no difference."""
        return _plain(self)  # type: ignore[no-any-return]


def objects(value: Any) -> Any:
    """A JSON value with every object in it as an McpObject."""
    if isinstance(value, dict):
        return value if isinstance(value, McpObject) else McpObject(value)
    return [objects(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


Json = dict[str, Any]
HttpTransport = Literal["streamable_http", "sse"]

_TRANSPORTS: Final = {"streamable_http": "http", "sse": "sse"}
_FOREIGN: Final = ("auth", "httpx_client_factory")
"""Keywords of the SDK's client that are objects of its HTTP library, which the hub does not use."""
_CONNECTED: Final = "The MCP server is already connected. Call close() before connecting again."
_NOT_CLOSABLE: Final = "The MCP server is not connected. Call connect() before closing."
_NOT_CONNECTED: Final = "The connection is not established. Call connect() before using the client."


class MCPToolFunction:
    """A tool of a server as an async function with keyword arguments."""

    def __init__(
        self, client: MCPClientBase, tool: McpObject, wrap_tool_result: bool, execution_timeout: float | None = None
    ) -> None:
        self.mcp_name = client.name
        self.name: str = tool["name"]
        self.description: str | None = tool.get("description")
        self.json_schema = function_schema(tool)
        self.wrap_tool_result = wrap_tool_result
        self.execution_timeout = execution_timeout
        self.client = client

    async def __call__(self, **kwargs: Any) -> Any:
        """A ToolResponse, or with `wrap_tool_result=False` the CallToolResult as it came.

        Raises CallError for what the hub refused or could not do, UpstreamAnswered for an error of the protocol,
        TimeoutError after `execution_timeout` seconds.
        """
        return await self.called(kwargs)

    async def called(self, arguments: Json, preset: Mapping[str, Any] | None = None) -> Any:
        """The same; `preset` are arguments of whoever has registered it, which nothing that is written has."""
        async with asyncio.timeout(self.execution_timeout):
            result = await self.client.call(self.name, arguments, preset)
        return response_of(result) if self.wrap_tool_result else result


class MCPClientBase:
    """One server: `entry` is what would stand for it in a configuration."""

    is_stateful: ClassVar[bool]

    def __init__(self, name: str, entry: Json) -> None:
        self.name = name
        self.entry = entry
        self._hub: Hub | None = None
        self._own = True
        self._tools: list[McpObject] | None = None
        self._presets: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
        self._check()

    def _check(self) -> None:
        """Raises ConfigError for an entry that is none."""
        self._hub = Hub()
        self._hub.add_server_unstarted(self.name, self.entry, literal=True)
        self._hub.edit_unstarted(self._with_presets)

    def hold(self, owner: object, presets: Iterable[str]) -> None:
        """Keep what a toolkit has preset out of all that its hub writes, as long as the toolkit lives."""
        texts = tuple(presets)
        if texts != self._presets.get(owner, ()):
            self._presets[owner] = texts
            self.hub.change_sync(self._with_presets)

    def _with_presets(self, config: Config) -> Config:
        texts = [text for held in list(self._presets.values()) for text in held]
        return with_secrets(config, self.name, secrets_among(texts)) if texts else config

    @property
    def hub(self) -> Hub:
        """Where its server is. Setting it moves the client to a hub that has a server of its name."""
        if self._hub is None or self._hub.closed:
            self._check()
            self._own = True
        assert self._hub is not None
        return self._hub

    @hub.setter
    def hub(self, hub: Hub) -> None:
        self._hub, self._own = hub, False

    async def list_tools(self) -> list[McpObject]:
        """All tools, with the fields of `mcp.types.Tool`. Raises CallError if the server is not there."""
        (listed,) = await self.hub.listed(self.name)
        if listed.error is not None:
            raise listed.error
        self._tools = [objects({**card.definition, "name": card.name}) for card in listed.tools]
        return self._tools

    async def get_callable_function(
        self, func_name: str, wrap_tool_result: bool = True, execution_timeout: float | None = None
    ) -> MCPToolFunction:
        """A tool as a function. Raises ValueError if the server has none of this name."""
        tools = self._tools if self._tools is not None else await self.list_tools()
        for tool in tools:
            if tool["name"] == func_name:
                return MCPToolFunction(self, tool, wrap_tool_result, execution_timeout)
        raise ValueError(f"Tool '{func_name}' not found in the MCP server")

    async def call(self, tool: str, arguments: Json, preset: Mapping[str, Any] | None = None) -> McpObject:
        """The result of one call. Raises CallError, UpstreamAnswered."""
        outcome = await self.hub.act(self.name, tool, arguments, preset=preset)
        if outcome.error is not None:
            raise outcome.error
        return McpObject(outcome.result or {})

    async def _leave(self) -> None:
        hub, self._hub, self._tools = self._hub, None, None
        if hub is None or hub.closed:
            return
        if self._own:
            await hub.aclose()
        elif any(server.id == self.name for server in hub.config.servers):
            await hub.remove_server(self.name)
        self._own = True


class StatefulClientBase(MCPClientBase):
    """One session from `connect` to `close`. Several may be closed in any order."""

    is_stateful = True

    def __init__(self, name: str, entry: Json) -> None:
        super().__init__(name, entry)
        self.is_connected = False

    async def connect(self) -> None:
        """Connect to the server. Raises RuntimeError if it is connected already, CallError if it cannot be reached."""
        if self.is_connected:
            raise RuntimeError(_CONNECTED)
        try:
            await self.list_tools_anyway()
        except CallError:
            await self._leave()
            raise
        self.is_connected = True

    async def list_tools_anyway(self) -> list[McpObject]:
        """`list_tools` before there is a connection."""
        return await super().list_tools()

    async def close(self) -> None:
        """End the session and the server's process. Raises RuntimeError if it is not connected."""
        if not self.is_connected:
            raise RuntimeError(_NOT_CLOSABLE)
        self.is_connected = False
        await self._leave()

    async def list_tools(self) -> list[McpObject]:
        """All tools. Raises RuntimeError before `connect`."""
        self._require_connection()
        return await super().list_tools()

    async def get_callable_function(
        self, func_name: str, wrap_tool_result: bool = True, execution_timeout: float | None = None
    ) -> MCPToolFunction:
        """A tool as a function. Raises RuntimeError before `connect`, ValueError if there is none of this name."""
        self._require_connection()
        return await super().get_callable_function(func_name, wrap_tool_result, execution_timeout)

    async def call(self, tool: str, arguments: Json, preset: Mapping[str, Any] | None = None) -> McpObject:
        """The result of one call. Raises RuntimeError after `close`."""
        self._require_connection()
        return await super().call(tool, arguments, preset)

    def _require_connection(self) -> None:
        if not self.is_connected:
            raise RuntimeError(_NOT_CONNECTED)


class HttpStatefulClient(StatefulClientBase):
    """A server over streamable HTTP or SSE with one session.

    `timeout` is for connecting and listing, `sse_read_timeout` for a call of which nothing is heard. Other keywords
    are keys of an entry, such as `oauth`.
    """

    def __init__(
        self,
        name: str,
        transport: HttpTransport,
        url: str,
        headers: dict[str, str] | None = None,
        timeout: float = 30,
        sse_read_timeout: float = 60 * 5,
        **client_kwargs: Any,
    ) -> None:
        super().__init__(name, _http_entry(transport, url, headers, timeout, sse_read_timeout, client_kwargs))
        self.transport = transport


class HttpStatelessClient(MCPClientBase):
    """A server over streamable HTTP or SSE with a session of its own for every call."""

    is_stateful = False
    stateful = False

    def __init__(
        self,
        name: str,
        transport: HttpTransport,
        url: str,
        headers: dict[str, str] | None = None,
        timeout: float = 30,
        sse_read_timeout: float = 60 * 5,
        **client_kwargs: Any,
    ) -> None:
        entry = _http_entry(transport, url, headers, timeout, sse_read_timeout, client_kwargs)
        super().__init__(name, {**entry, "session": "call"})
        self.transport = transport
        self.client_config: Json = {
            "url": url,
            "headers": headers or {},
            "timeout": timeout,
            "sse_read_timeout": sse_read_timeout,
            **client_kwargs,
        }


class StdIOStatefulClient(StatefulClientBase):
    """A server as a child process. It speaks UTF-8, as the protocol has it."""

    def __init__(
        self,
        name: str,
        command: str,
        args: list[str] | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        encoding: str = "utf-8",
        encoding_error_handler: Literal["strict", "ignore", "replace"] = "strict",
    ) -> None:
        if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
            raise ValueError(f"MCP over stdio is UTF-8, not {encoding}")
        entry: Json = {"command": command, "args": list(args or ()), "env": dict(env or {}), "session": "shared"}
        super().__init__(name, entry | ({} if cwd is None else {"cwd": str(cwd)}))


def function_schema(tool: Json) -> Json:
    """A tool as a function for a model, with its whole inputSchema."""
    schema = tool.get("inputSchema")
    parameters = {"type": "object", "properties": {}, **(schema if isinstance(schema, dict) else {})}
    return {
        "type": "function",
        "function": {"name": tool["name"], "description": tool.get("description") or "", "parameters": parameters},
    }


def _http_entry(
    transport: str, url: str, headers: dict[str, str] | None, timeout: float, silence: float, more: Json
) -> Json:
    if transport not in _TRANSPORTS:
        raise ValueError(f"Unsupported transport type: {transport}. Supported types are 'sse' and 'streamable_http'.")
    if foreign := [name for name in _FOREIGN if more.get(name) is not None]:
        raise TypeError(f"{', '.join(foreign)} cannot be used: the hub speaks HTTP itself; give 'headers' or 'oauth'")
    entry: Json = {name: value for name, value in more.items() if name not in (*_FOREIGN, "terminate_on_close")}
    deadlines = {"connect": timeout, "list": timeout, "idle": silence}
    own = {"url": url, "transport": _TRANSPORTS[transport], "headers": dict(headers or {}), "session": "shared"}
    return {**own, "deadlines": deadlines, **entry}
