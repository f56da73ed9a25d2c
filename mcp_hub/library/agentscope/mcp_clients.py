"""AgentScope's MCP clients. Each has one server, on a hub of its own or, once attached, on the hub of a toolkit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from mcp_hub.config.models import Config
from mcp_hub.library import Hub
from mcp_hub.library.engine_host import CallLabel
from mcp_hub.library.server_entries import DetachableServer, make_server, secrets_among, with_changes
from mcp_hub.security.redaction import preset_texts
from mcp_hub.servers.local.tool_results import blocks, response_of

if TYPE_CHECKING:
    from mcp_hub.library.agentscope.registered_tools import RegisteredToolFunction

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
"""Values of fields that may be missing."""
_NEXT_WORD: Final = re.compile(r"_([a-z])")
_CLASSES: Final = {
    "text": "TextContent",
    "image": "ImageContent",
    "audio": "AudioContent",
    "resource": "EmbeddedResource",
    "resource_link": "ResourceLink",
}
"""Type of a content block -> its class in the MCP SDK."""


class McpObject(dict[str, Any]):
    """A JSON object of the protocol whose fields are attributes too: `result.isError` or `result.is_error`.

    The names are those of both generations of the MCP SDK; `meta` is `_meta`. Lists and objects inside are converted
    when they are accessed. Where the program has imported the SDK, it is an instance of the SDK's class too.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Returns the SDK's class of such an object, or McpObject."""
        if "inputSchema" in self:
            name = "Tool"
        elif "type" in self:
            name = _CLASSES.get(str(self["type"]), "")
        elif "uri" in self:
            name = "TextResourceContents" if "text" in self else "BlobResourceContents"
        else:
            name = "CallToolResult" if "content" in self else ""
        return getattr(sys.modules.get("mcp.types"), name, McpObject)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """Returns the fields of the SDK's object, as pydantic reads them; {} if it is invalid or there is no SDK."""
        with contextlib.suppress(ValueError):
            return {} if self.__class__ is McpObject else dict(vars(self._sdk_object()))
        return {}

    def _sdk_object(self) -> Any:
        """Returns the same object of the SDK's class. Raises pydantic.ValidationError if the server's is invalid."""
        cls: Any = self.__class__
        return cls.model_validate(_plain(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns how to make a copy, as the class that `pickle` reads is the SDK's."""
        return McpObject, (dict(self),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__pydantic_") and self.__class__ is not McpObject:
            return getattr(self._sdk_object(), name)
        for key in (name, "_meta" if name == "meta" else _NEXT_WORD.sub(lambda match: match[1].upper(), name)):
            if key in self:
                return objects(self[key])
            if key in _ABSENT:
                return [] if key == "content" else _ABSENT[key]
        raise AttributeError(f"there is no field {name!r}; the fields are: {', '.join(self)}")

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Returns a plain copy. The options that the SDK's models take are ignored."""
        return _plain(self)  # type: ignore[no-any-return]

    def model_dump_json(self, *, indent: int | None = None, **_: Any) -> str:
        """Returns the object as JSON. The other options that the SDK's models take are ignored."""
        return json.dumps(self, ensure_ascii=False, indent=indent)


def objects(value: Any) -> Any:
    """Returns a JSON value in which every object is an McpObject."""
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
    """A tool of a server as an async function with keyword arguments.

    It has either the session in which it calls the tool, or `client_gen`, which returns a context manager of the
    streams for a session of the MCP SDK. With those of the hub's own clients, the hub makes the call.

    Raises ValueError if both are given, or none.
    """

    def __init__(
        self,
        mcp_name: str,
        tool: Any,
        wrap_tool_result: bool,
        client_gen: Callable[..., Any] | None = None,
        session: Any = None,
        timeout: float | None = None,
    ) -> None:
        if (client_gen is None) is (session is None):
            raise ValueError("Either client or session must be provided, but not both.")
        self.mcp_name = mcp_name
        self.name: str = tool.name
        self.description: str | None = tool.description
        self.json_schema = function_schema(tool)
        self.wrap_tool_result = wrap_tool_result
        self.timeout = timedelta(seconds=timeout) if timeout else None
        self.client_gen = client_gen
        self.session = session
        owner = session.client if isinstance(session, ServerSession) else getattr(client_gen, "__self__", None)
        self.client: ServerClient | None = owner if isinstance(owner, ServerClient) else None
        """The hub's client of the server; None if the session is not the hub's."""

    async def __call__(self, **kwargs: Any) -> Any:
        """Calls the tool and returns a ToolResponse, or the CallToolResult unchanged with `wrap_tool_result=False`.

        Raises CallError if the hub refused the call or could not carry it out, UpstreamAnswered for a JSON-RPC error of
        the server, and TimeoutError after `timeout` seconds.
        """
        return await self.called(kwargs)

    async def called(
        self, arguments: Json, preset: Mapping[str, Any] | None = None, label: CallLabel | None = None
    ) -> Any:
        """Does what `__call__` does.

        `preset` are additional arguments that are kept out of all records and logs.
        """
        result: Any
        async with asyncio.timeout(self.timeout.total_seconds() if self.timeout else None):
            if self.client is not None:
                result = await self.client.call(self.name, arguments, preset, label)
            elif self.client_gen is None:
                result = await self.session.call_tool(self.name, arguments=arguments)
            else:
                from mcp import ClientSession  # the streams of `client_gen` are the SDK's

                async with self.client_gen() as streams, ClientSession(streams[0], streams[1]) as session:
                    await session.initialize()
                    result = await session.call_tool(self.name, arguments=arguments)
        return response_of(_as_object(result)) if self.wrap_tool_result else result


def _as_object(value: Any) -> Json:
    """Returns an object of the SDK or of the hub as JSON."""
    dumped: Json = value if isinstance(value, dict) else value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


class MCPClientBase:
    """The base of all clients of servers, those of a program's own too, which define these two methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def list_tools(self) -> list[Any]:
        """Returns objects with a `name`. Raises NotImplementedError unless a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define list_tools")

    async def get_callable_function(
        self, func_name: str, wrap_tool_result: bool = True, execution_timeout: float | None = None
    ) -> Callable[..., Any]:
        """Returns a tool as a function. Raises NotImplementedError unless a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define get_callable_function")

    @staticmethod
    def _convert_mcp_content_to_as_blocks(mcp_content_blocks: list[Any]) -> list[Any]:
        """Returns content blocks of the MCP SDK, or of a raw result, as those of a ToolResponse."""
        return blocks(map(_as_object, mcp_content_blocks))


class ServerSession:
    """The session of a connected client, with the methods of the SDK's session that call tools."""

    def __init__(self, client: ServerClient) -> None:
        self.client = client

    async def list_tools(self) -> McpObject:
        """Returns `{"tools": [...]}`. Raises what the client's `list_tools` raises."""
        return McpObject({"tools": await self.client.list_tools()})

    async def call_tool(
        self, name: str, arguments: Json | None = None, read_timeout_seconds: timedelta | float | None = None
    ) -> McpObject:
        """Calls a tool. Raises CallError, UpstreamAnswered and TimeoutError."""
        limit = read_timeout_seconds
        async with asyncio.timeout(limit.total_seconds() if isinstance(limit, timedelta) else limit):
            return await self.client.call(name, arguments or {})


@asynccontextmanager
async def _streams_of_sdk_2(url: str, headers: dict[str, str]) -> AsyncGenerator[Any, None]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    client = create_mcp_http_client(headers=headers)
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


class ServerClient(MCPClientBase):
    """A client of one server, on a hub. `entry` is the server's entry as in a configuration file."""

    def __init__(self, name: str, entry: Json) -> None:
        super().__init__(name)
        self.entry = entry
        self._hub: Hub | None = None
        self._attached: DetachableServer | None = None
        """The server on a hub that others use too; None: the client has a hub of its own."""
        self._tools: list[McpObject] | None = None
        self._registered: WeakKeyDictionary[Any, tuple[RegisteredToolFunction, ...]] = WeakKeyDictionary()
        """The tools that each toolkit has registered."""
        self._check()

    def get_client(self) -> Any:
        """Returns the MCP SDK's own client of this server, a context manager of the streams for its session.

        It connects to the server directly, past the hub. Raises ImportError if the SDK is not installed.
        """
        if "command" in self.entry:
            from mcp import StdioServerParameters, stdio_client

            fields = {key: value for key, value in self.entry.items() if key in ("command", "args", "env", "cwd")}
            return stdio_client(StdioServerParameters(**fields))
        config = {"url": self.entry["url"], "headers": self.entry["headers"]}
        if self.entry["transport"] == "sse":
            from mcp.client.sse import sse_client

            return sse_client(**config)
        from mcp.client import streamable_http

        if hasattr(streamable_http, "streamablehttp_client"):  # the SDK 1.x
            return streamable_http.streamablehttp_client(**config)
        return _streams_of_sdk_2(**config)

    def _check(self) -> None:
        """Makes a hub with this server. Raises ConfigError if the entry is invalid."""
        self._hub = Hub()
        self._hub.add_server_unstarted(self.name, self.entry, literal=True)
        self._hub.edit_unstarted(self._with_presets)

    @property
    def registered(self) -> list[RegisteredToolFunction]:
        """The tools of the server that all toolkits together have registered."""
        return [tool for tools in list(self._registered.values()) for tool in tools]

    def hold(self, toolkit: object, tools: Iterable[RegisteredToolFunction]) -> None:
        """Notes what a toolkit has registered, and keeps preset values out of everything that the client's hub writes.

        This holds as long as the toolkit lives.
        """
        if (held := tuple(tools)) != self._registered.get(toolkit, ()):
            self._registered[toolkit] = held
            if self._hub is not None and not self._hub.closed:
                self._hub.change_sync(self._with_presets)

    def _with_presets(self, config: Config) -> Config:
        texts = [text for tool in self.registered for text in preset_texts(tool.preset_kwargs)]
        return with_changes(config, [self.name], secrets=secrets_among(texts)) if texts else config

    async def unfilter(self) -> None:
        """Makes the hub list the tools again that no toolkit has registered yet."""
        filters = make_server(self.name, self.entry, literal=True).filters
        if any(server.id == self.name and server.filters != filters for server in self.hub.config.servers):
            await self.hub.edit(partial(with_changes, ids=[self.name], filters=filters))

    @property
    def hub(self) -> Hub:
        """The hub with the client's server. Setting it moves the client to a hub that has a server of the same name."""
        if self._hub is None or self._hub.closed:
            self._check()
            self._attached = None
        assert self._hub is not None
        return self._hub

    @hub.setter
    def hub(self, hub: Hub) -> None:
        self._hub = hub
        if self._attached is None:
            self._attached = DetachableServer(hub, self.name)
        else:
            self._attached.hub = hub

    def is_at(self, hub: Hub) -> bool:
        """Returns whether the client uses this hub."""
        return self._hub is hub

    @property
    def owns_hub(self) -> bool:
        """Whether no toolkit uses the hub too."""
        return self._attached is None

    def _require_connection(self) -> None:
        """Raises RuntimeError if the program has to call `connect` first."""

    async def list_tools(self) -> list[McpObject]:
        """Returns all tools with the fields of `mcp.types.Tool`.

        Raises CallError if the server is unavailable, and RuntimeError if the program has to call `connect` first.
        """
        self._require_connection()
        return await self._list()

    async def _list(self) -> list[McpObject]:
        (listed,) = await self.hub.listed(self.name)
        if listed.error is not None:
            raise listed.error
        self._tools = [objects({**card.definition, "name": card.name}) for card in listed.tools]
        return self._tools

    async def get_callable_function(
        self, func_name: str, wrap_tool_result: bool = True, execution_timeout: float | None = None
    ) -> MCPToolFunction:
        """Returns a tool as a function.

        Raises ValueError if the server has none of this name, and what `list_tools` raises.
        """
        self._require_connection()
        tools = self._tools if self._tools is not None else await self.list_tools()
        for tool in tools:
            if tool["name"] == func_name:
                return self._function(tool, wrap_tool_result, execution_timeout)
        raise ValueError(f"Tool '{func_name}' not found in the MCP server")

    def _function(self, tool: McpObject, wrap: bool, timeout: float | None) -> MCPToolFunction:
        return MCPToolFunction(self.name, tool, wrap, client_gen=self.get_client, timeout=timeout)

    async def call(
        self, tool: str, arguments: Json, preset: Mapping[str, Any] | None = None, label: CallLabel | None = None
    ) -> McpObject:
        """Calls a tool and returns the CallToolResult.

        Raises CallError, UpstreamAnswered, and RuntimeError if the program has to call `connect` first.
        """
        self._require_connection()
        outcome = await self.hub.act(self.name, tool, arguments, preset=preset, label=label)
        if outcome.error is not None:
            raise outcome.error
        return McpObject(outcome.result or {})

    async def _detach(self) -> None:
        self._tools = None
        if self._attached is not None:
            await self._attached.detach()
        elif self._hub is not None:
            hub, self._hub = self._hub, None
            await hub.aclose()


class ConfiguredServer(ServerClient):
    """A server of a toolkit's configuration, as a client whose tools can be called."""

    def __init__(self, name: str, hub: Hub) -> None:
        super().__init__(name, {})
        self.hub = hub

    def _check(self) -> None:
        """Does nothing: the hub has the server."""


async def function_of(client: Any, name: str, wrap: bool, timeout: float | None) -> Callable[..., Any]:
    """Returns a tool of a client as a function. Raises TypeError for options that the client lacks."""
    if not wrap and not isinstance(client, ServerClient):
        raise TypeError("wrap_tool_result=False needs a client of mcp_hub")
    options = {} if timeout is None else {"execution_timeout": timeout}  # the clients of AgentScope 1.0.10 have none
    function: Callable[..., Any] = await client.get_callable_function(func_name=name, wrap_tool_result=wrap, **options)
    return function


class StatefulClientBase(ServerClient):
    """A client with one session from `connect` to `close`. Several clients may be closed in any order."""

    def __init__(self, name: str, entry: Json) -> None:
        super().__init__(name, entry)
        self.is_connected = False
        self.session: ServerSession | None = None
        """The session; None while the client is not connected."""

    @property
    def client(self) -> Any:
        """Returns what `get_client` returns."""
        return self.get_client()

    def _function(self, tool: McpObject, wrap: bool, timeout: float | None) -> MCPToolFunction:
        return MCPToolFunction(self.name, tool, wrap, session=self.session, timeout=timeout)

    async def connect(self) -> None:
        """Connects to the server.

        Raises RuntimeError if it is connected already, and CallError if it cannot be reached.
        """
        if self.is_connected:
            raise RuntimeError(_CONNECTED)
        try:
            hub = self.hub
            if self._attached is not None:
                await self._attached.restore()
                await hub.edit(self._with_presets)
            await self._list()
        except BaseException:  # a client that is not connected cannot be closed, also if connecting was cancelled
            await self._detach()
            raise
        self.is_connected, self.session = True, ServerSession(self)

    async def close(self, ignore_errors: bool = True) -> None:
        """Ends the session and the server's process; errors of that are logged and never raised.

        Raises RuntimeError if the client is not connected.
        """
        if not self.is_connected:
            raise RuntimeError(_NOT_CLOSABLE)
        self.is_connected, self.session = False, None
        await self._detach()

    def _require_connection(self) -> None:
        if not self.is_connected:
            raise RuntimeError(_NOT_CONNECTED)


class _HttpClient(ServerClient):
    """A client of a server over streamable HTTP or SSE."""

    stateful = True

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
        super().__init__(name, entry if self.stateful else {**entry, "session": "call"})
        self.transport = transport
        self.client_config: Json = {
            "url": url,
            "headers": headers or {},
            "timeout": timeout,
            "sse_read_timeout": sse_read_timeout,
            **client_kwargs,
        }


class HttpStatefulClient(_HttpClient, StatefulClientBase):
    """A client of a server over streamable HTTP or SSE with one session.

    `timeout` is in seconds, for connecting and for listing. `sse_read_timeout` is in seconds, for a call without any
    message from the server. Other keywords are keys of a configuration entry, such as `oauth`.
    """


class HttpStatelessClient(_HttpClient):
    """A client of a server over streamable HTTP or SSE with a new session for every call."""

    stateful = False


class StdIOStatefulClient(StatefulClientBase):
    """A client of a server that is a child process. Raises ValueError for an encoding other than UTF-8."""

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


def function_schema(tool: Any) -> Json:
    """Returns `{"type": "function", "function": {"name", "description", "parameters"}}` for a tool."""
    schema = getattr(tool, "inputSchema" if hasattr(tool, "inputSchema") else "input_schema", None)
    parameters = {"type": "object", "properties": {}, **(schema if isinstance(schema, dict) else {})}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description or "", "parameters": parameters},
    }


def _http_entry(
    transport: str, url: str, headers: dict[str, str] | None, timeout: float, idle_timeout: float, options: Json
) -> Json:
    if transport not in _TRANSPORTS:
        raise ValueError(f"Unsupported transport type: {transport}. Supported types are 'sse' and 'streamable_http'.")
    if foreign := [name for name in _FOREIGN if options.get(name) is not None]:
        raise TypeError(f"{', '.join(foreign)} cannot be used: the hub speaks HTTP itself; give 'headers' or 'oauth'")
    entry: Json = {name: value for name, value in options.items() if name not in (*_FOREIGN, "terminate_on_close")}
    deadlines = {"connect": timeout, "list": timeout, "idle": idle_timeout}
    base = {"url": url, "transport": _TRANSPORTS[transport], "headers": dict(headers or {}), "session": "shared"}
    return {**base, "deadlines": deadlines, **entry}
