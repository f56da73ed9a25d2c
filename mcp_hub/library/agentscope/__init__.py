"""`mcp_hub.Toolkit`: AgentScope's toolkit, an agent's tools in groups, on top of a hub."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from mcp_hub.codes import with_code
from mcp_hub.config.findings import nearest
from mcp_hub.config.models import Config
from mcp_hub.config.root_rules import BASIC
from mcp_hub.library import Hub
from mcp_hub.library.agentscope.background_tasks import TaskRegistry
from mcp_hub.library.agentscope.mcp_clients import MCPClientBase, ServerClient, function_of
from mcp_hub.library.agentscope.registered_tools import (
    RegisteredToolFunction,
    Strategy,
    configured_tools,
    registered_tool,
    repeated_registrations,
    take_name,
    with_tools,
)
from mcp_hub.library.agentscope.tool_calls import (
    ToolStream,
    call_tool,
    invalid_input,
    read_block,
    record_answer,
)
from mcp_hub.library.agentscope.tool_groups import GroupRegistry, SkillRegistry, StateOfAgent, take_names
from mcp_hub.library.engine_host import ServerTools
from mcp_hub.library.portal import Closable
from mcp_hub.library.server_entries import with_changes
from mcp_hub.policy.rule_names import UnmatchedName
from mcp_hub.servers.local import Mark, inherited_options
from mcp_hub.servers.local.signature import ModelExtension
from mcp_hub.servers.local.tool_results import ToolResponse

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("mcp_hub.library")

Json = dict[str, Any]
Postprocess = Callable[[Json, ToolResponse], Any]
Middleware = Callable[[Json, Callable[..., ToolStream]], AsyncGenerator[Any, None]]

RESET = "reset_equipped_tools"


class Toolkit(StateOfAgent, GroupRegistry, SkillRegistry, TaskRegistry, Closable):
    """Tools and groups of tools for an agent. Every call goes through the hub and its policies.

    `hub` is a hub to share. Without it the toolkit makes its own from `config`: a file, the content of one, or None.
    The tools of the servers in `config` are in the basic group, under the names that the hub gives them. With
    `raise_on_error`, the stream of a call raises what the tool raises instead of yielding a text.
    """

    def __init__(
        self,
        agent_skill_instruction: str | None = None,
        agent_skill_template: str | None = None,
        *,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        hub: Hub | None = None,
        raise_on_error: bool = False,
    ) -> None:
        SkillRegistry.__init__(self, agent_skill_instruction, agent_skill_template)
        GroupRegistry.__init__(self)
        TaskRegistry.__init__(self)
        self._middlewares: list[Middleware] = []
        self.tools: dict[str, RegisteredToolFunction] = {}
        self.raise_on_error = raise_on_error
        self._owns_hub = hub is None
        self._hub = Hub(config) if hub is None else hub
        self._attaches_clients = hub is not None or config is not None
        """Whether its MCP clients move to the hub, so that the hub's policies apply to them too."""
        self._configured = (
            [] if config is None or hub is not None else [server.id for server in self._hub.config.servers]
        )
        """Ids of the servers of the configuration, whose tools are listed without having been registered."""
        self._configured_tools: dict[str, RegisteredToolFunction] = {}
        """Their tools as they were listed last."""
        self._hub_groups: frozenset[str] = frozenset()
        """Names of the groups that this toolkit has added to the hub."""
        self._groups_key, self._names_key = object(), object()
        self._known_clients: WeakSet[ServerClient] = WeakSet()
        """Its MCP clients, also those whose tools were removed."""

    # --- life --------------------------------------------------------------------------------------------------

    @property
    def hub(self) -> Hub:
        """The hub with the toolkit's functions. `Hub.attach` sets it; registered MCP clients move there too."""
        return self._hub

    @hub.setter
    def hub(self, hub: Hub) -> None:
        former_hub, self._hub, self._owns_hub = self._hub, hub, False
        self._attaches_clients, self._hub_groups = True, frozenset()
        for client in self._known_clients:
            if client.is_at(former_hub):  # its server has moved with the others
                client.hub = hub
        hub.attach(*self._clients())
        self._update_hub()

    def close(self) -> None:
        """Closes the hub unless it is shared. MCP clients are closed by whoever connected them."""
        if self._owns_hub:
            self._hub.close()

    async def aclose(self) -> None:
        """Does what `close` does, for coroutines."""
        if self._owns_hub:
            await self._hub.aclose()

    def serve(
        self, transport: Literal["stdio", "http", "sse"] = "stdio", *, host: str | None = None, port: int | None = None
    ) -> None:
        """Serves the toolkit's tools and groups over MCP as `Hub.serve` does, under their registered names."""
        self.hub = self._hub
        client_names = {client.name for client in self._clients()}
        self._change_hub(self._names_key, lambda config: with_changes(config, client_names, namespace=""))
        for tool, first in repeated_registrations(self.tools.values()):
            log.warning("'%s' is served as '%s' alone: both are one tool of '%s'", tool.name, first.name, tool.mcp_name)
        self._hub.serve(transport, host=host, port=port)

    # --- tools -------------------------------------------------------------------------------------------------

    def register_tool_function(
        self,
        tool_func: Callable[..., Any],
        group_name: str = BASIC,
        preset_kwargs: dict[str, Any] | None = None,
        func_description: str | None = None,
        json_schema: Json | None = None,
        include_long_description: bool = True,
        include_var_positional: bool = False,
        include_var_keyword: bool = False,
        postprocess_func: Postprocess | None = None,
        namesake_strategy: Strategy = "raise",
        func_name: str | None = None,
        async_execution: bool = False,
    ) -> None:
        """Registers a function, or a tool of an MCP client, as a tool of the agent.

        With `async_execution`, a call runs in the background, and its caller gets the id of a task for `wait_task`.
        Raises ValueError if the group does not exist or the name is taken (see `namesake_strategy`), and TypeError if
        the json_schema is invalid or no schema can be made of the function.
        """
        if group_name != BASIC and group_name not in self.groups:
            raise ValueError(f"Tool group '{group_name}' not found.")
        options = inherited_options(tool_func)
        mark = Mark(
            name=func_name,
            description=func_description,
            json_schema=json_schema,
            preset={**options.get("preset", {}), **(preset_kwargs or {})},
            postprocess=postprocess_func or options.get("postprocess"),
            include_long_description=include_long_description,
            before_long_description="\n",
            include_var_positional=include_var_positional,
            include_var_keyword=include_var_keyword,
            convert=False,
        )
        tool = registered_tool(tool_func, mark)
        tool.group, tool.async_execution = group_name, async_execution
        name = take_name(tool, self.tools, namesake_strategy)
        if name is None:
            return
        if name in self.tools:
            self._retire(self.tools[name])  # its place in the order stays
        tool.begin = partial(self._begin, tool, in_any_group=True)
        self.tools[name] = tool
        self._update_hub()  # before the hub has the tool, so that it is in its group from the beginning
        if tool.local is not None and not self._is_meta(tool):
            tool.local.renamed(name)
            first = self._hub.functions is None
            self._hub.put_function(tool.local)
            if first:
                self._update_hub()

    def remove_tool_function(self, tool_name: str, allow_not_exist: bool = True) -> None:
        """Removes a tool. Raises ValueError if there is none of this name and `allow_not_exist` is false."""
        if tool_name in self.tools:
            self._remove(tool_name)
            self._update_hub()
        elif not allow_not_exist:
            raise ValueError(f"Tool function '{tool_name}' does not exist in the toolkit.")

    def get_json_schemas(self, group_names: list[str] | None = None) -> list[Json]:
        """Returns the schemas that models see of the tools in the active groups, or in the named ones.

        Where the toolkit has a configuration, this waits until its servers have been tried.
        """
        if RESET in self.tools and self._is_meta(self.tools[RESET]):
            self.tools[RESET].extended_model = self._reset_arguments()
        configured: dict[str, RegisteredToolFunction] = {}
        if self._configured and self._is_active(BASIC, group_names):
            configured = self._find(self._hub.listed_sync())
        registered = [tool for tool in self.tools.values() if self._is_active(tool.group, group_names)]
        configured_only = [tool for name, tool in configured.items() if name not in self.tools]
        return [tool.extended_json_schema for tool in (*registered, *configured_only)]

    def _find(self, listed: Iterable[ServerTools]) -> dict[str, RegisteredToolFunction]:
        self._configured_tools = configured_tools(
            self._hub, [server_tools for server_tools in listed if server_tools.server in self._configured]
        )
        return self._configured_tools

    def set_extended_model(
        self,
        func_name: str | None = None,
        model: type[BaseModel] | None = None,
        *,
        finish_function_name: str | None = None,
        structured_model: type[BaseModel] | None = None,
    ) -> None:
        """Adds the fields of a model to a tool's arguments, which the model then checks; None removes them.

        Responses of such a tool have the checked fields in `metadata`, and the text of the answer in
        `metadata["response_msg"]`, unless the tool sets these itself. `finish_function_name` and `structured_model` are
        other names of the arguments. Raises ValueError if the tool is unknown or has one of the fields already, and
        TypeError if it is not a model.
        """
        func_name = finish_function_name if func_name is None else func_name
        model = structured_model if model is None else model
        if func_name is None:
            raise TypeError("set_extended_model needs the name of a tool")
        if model is not None:
            ModelExtension(model)
        tool = self.tools.get(func_name)
        if tool is None:
            raise ValueError(f"Tool function '{func_name}' not found in the toolkit.")
        if tool.local is not None:
            tool.local.extend(model)
        elif model is not None:
            ModelExtension(model).merged(tool.json_schema["function"]["parameters"], func_name)
        tool.extended_model = model
        if tool.local is not None and not self._is_meta(tool):
            self._hub.put_function(tool.local)
        else:
            self._update_hub()

    # --- calls -------------------------------------------------------------------------------------------------

    def call_tool_function(self, tool_call: Mapping[str, Any] | BaseModel) -> ToolStream:
        """Calls a tool with a block `{"type": "tool_use", "id", "name", "input"}` and returns the stream of its chunks.

        The stream is used with `async for chunk in toolkit.call_tool_function(block)`, or after `await`; its last chunk
        is complete. Errors are chunks with a text. The stream raises TypeError if a tool yields anything but
        ToolResponses.
        """
        return self._handle(0, read_block(tool_call))

    def register_middleware(self, middleware: Middleware) -> None:
        """Puts an async generator function inside those registered before, around every `call_tool_function`.

        `middleware({"tool_call": block}, next_handler)` yields ToolResponses, for example those of
        `async for chunk in await next_handler(tool_call=block)`.
        """
        self._middlewares.append(middleware)

    def _handle(self, depth: int, tool_call: Mapping[str, Any] | BaseModel) -> ToolStream:
        """Returns the stream of a call that has passed `depth` middlewares."""
        if depth == len(self._middlewares):
            return ToolStream(self._chunks_of(read_block(tool_call)))
        return ToolStream(self._middlewares[depth]({"tool_call": tool_call}, partial(self._handle, depth + 1)))

    async def _chunks_of(self, block: Json) -> AsyncGenerator[Any, None]:
        name = block["name"]
        tool = self.tools.get(name) or self._configured_tools.get(name)
        if tool is None and self._configured:
            tool = self._find(await self._hub.listed()).get(name)
        group = tool.group if tool is not None else await self._hub.inactive_group(name) if self._configured else None
        if group is None:
            text = f"FunctionNotFoundError: Cannot find the function named {name}"
            yield await record_answer(self._hub, None, block, text)
        elif tool is None or not self._is_active(group):
            text = (
                f"FunctionInactiveError: The function '{name}' is in the inactive group '{group}'. "
                "Activate the tool group by calling 'reset_equipped_tools' first to use this tool."
            )
            yield await record_answer(self._hub, tool, block, text)
        else:
            async for chunk in self._begin(tool, block):
                yield chunk

    def _begin(self, tool: RegisteredToolFunction, block: Json, *, in_any_group: bool = False) -> ToolStream:
        if self._is_meta(tool):
            return ToolStream(self._reset(tool, block))
        how = {"raise_on_error": self.raise_on_error, "in_any_group": in_any_group}
        stream = call_tool(self._hub, tool, block, **how)
        return ToolStream(self._in_background(tool.name, stream) if tool.async_execution else stream)

    async def _reset(self, tool: RegisteredToolFunction, block: Json) -> AsyncGenerator[Any, None]:
        states = block.get("input") or {}
        if isinstance(states, dict):
            text = self.reset_equipped_tools(**states).content[0]["text"]
            yield await record_answer(self._hub, tool, block, text, failed=False)
        else:
            yield await record_answer(self._hub, tool, block, invalid_input(tool.name, states))

    # --- MCP clients -------------------------------------------------------------------------------------------

    async def register_mcp_client(
        self,
        mcp_client: MCPClientBase | Any,
        group_name: str = BASIC,
        enable_funcs: list[str] | None = None,
        disable_funcs: list[str] | None = None,
        preset_kwargs_mapping: dict[str, dict[str, Any]] | None = None,
        postprocess_func: Postprocess | None = None,
        namesake_strategy: Strategy = "raise",
        execution_timeout: float | None = None,
        wrap_tool_result: bool = True,
    ) -> None:
        """Registers the tools of an MCP client, all of them or those in `enable_funcs`.

        The client may be AgentScope's or the program's own; its tools are functions to the hub. Raises RuntimeError if
        the client must be connected first, ValueError if a name is both enabled and disabled or as
        `register_tool_function` does, TypeError for arguments of the wrong type, and ConfigError for a client of
        another toolkit with a hub and rules of its own.
        """
        if not getattr(mcp_client, "is_connected", True):
            raise RuntimeError("The MCP client is not connected to the server. Use the `connect()` method first.")
        if group_name != BASIC and group_name not in self.groups:
            raise ValueError(f"Tool group '{group_name}' not found.")
        enabled = None if enable_funcs is None else take_names(enable_funcs, "enable_funcs")
        disabled = take_names(disable_funcs or [], "disable_funcs")
        if both := sorted({*(enabled or ())} & {*disabled}):
            raise ValueError(f"The functions in enable_funcs and disable_funcs should not overlap, but got {both}.")
        if preset_kwargs_mapping is not None and not isinstance(preset_kwargs_mapping, dict):
            raise TypeError(
                f"The preset_kwargs_mapping must be a dictionary or None, but got {type(preset_kwargs_mapping)}."
            )
        if self._attaches_clients and isinstance(mcp_client, ServerClient):
            self._hub.attach(mcp_client)
            self._known_clients.add(mcp_client)
            await mcp_client.unfilter()
        try:
            names = [tool.name for tool in await mcp_client.list_tools()]
            for name in sorted({*(enabled or ()), *disabled, *(preset_kwargs_mapping or {})}.difference(names)):
                unmatched = UnmatchedName("register_mcp_client", name, owner="client", hint=nearest(name, names))
                log.warning("%s: %s", unmatched.key, with_code(unmatched.text))
            functions = {
                name: await function_of(mcp_client, name, wrap_tool_result, execution_timeout)
                for name in names
                if (enabled is None or name in enabled) and name not in disabled
            }
            for name, function in functions.items():
                self.register_tool_function(
                    function,
                    group_name,
                    preset_kwargs=(preset_kwargs_mapping or {}).get(name),
                    postprocess_func=postprocess_func,
                    namesake_strategy=namesake_strategy,
                )
        finally:
            self._update_hub()

    register_mcp_server = register_mcp_client

    async def remove_mcp_clients(self, client_names: str | list[str]) -> None:
        """Removes all tools of these clients, which stay connected.

        Raises TypeError if `client_names` are not names.
        """
        names = take_names(client_names, "client_names")
        removed = [name for name, tool in self.tools.items() if tool.mcp_name in names]
        for name in removed:
            self._remove(name)
        self._configured = [id for id in self._configured if id not in names]
        self._configured_tools = {
            name: tool for name, tool in self._configured_tools.items() if tool.mcp_name not in names
        }
        self._update_hub()
        log.info("Removed %d tool functions from %d MCP: %s", len(removed), len(names), ", ".join(removed))

    remove_mcp_servers = remove_mcp_clients

    def clear(self) -> None:
        """Removes all tools and groups."""
        for name in list(self.tools):
            self._remove(name)
        self.groups.clear()
        self._update_hub()

    # --- what the hub knows ------------------------------------------------------------------------------------

    def _is_active(self, group: str, named: Collection[str] | None = None) -> bool:
        if named is not None:
            return group in named
        return group == BASIC or (group in self.groups and self.groups[group].active)

    def _is_meta(self, tool: RegisteredToolFunction) -> bool:
        """Returns whether it is `reset_equipped_tools`, which is not added to the hub, as the hub has its own one."""
        return tool.original_func == self.reset_equipped_tools

    def _remove_tools_of(self, groups: Collection[str]) -> None:
        for name in [name for name, tool in self.tools.items() if tool.group in groups]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._retire(self.tools.pop(name))

    def _retire(self, tool: RegisteredToolFunction) -> None:
        tool.begin = None
        if tool.local is not None and not self._is_meta(tool):
            self._hub.remove_function(tool.name)

    def _clients(self) -> list[ServerClient]:
        """Returns the hub's clients whose tools are registered."""
        return list(dict.fromkeys(tool.client for tool in self.tools.values() if tool.client is not None))

    def _update_hub(self) -> None:
        """Updates the hub with the groups, and with the registered tools of the clients that are attached to it."""
        self._known_clients.update(self._clients())
        for client in self._known_clients:
            client.hold(self, [tool for tool in self.tools.values() if tool.client is client])
        clients = {client.name: client for client in self._known_clients if client.is_at(self._hub)}
        if not (self.groups or self._hub_groups or clients):
            return
        former_groups, self._hub_groups = self._hub_groups | self.groups.keys(), frozenset(self.groups)
        tools, groups = tuple(self.tools.values()), tuple(self.groups.values())
        hub = self._hub
        self._change_hub(
            self._groups_key, lambda config: with_tools(config, tools, groups, former_groups, hub, clients)
        )

    def _change_hub(self, key: object, edit: Callable[[Config], Config]) -> None:
        """Applies an edit to the configuration in force and to later ones."""
        self._hub.keep_edit(key, edit)
        self._hub.change_sync(edit)
