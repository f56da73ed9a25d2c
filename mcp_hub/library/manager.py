"""`ToolManager`: the methods of three tool systems on one hub."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mcp_hub.config.discovery import default_config, default_path
from mcp_hub.library import Hub
from mcp_hub.library.agently import ToolsByName
from mcp_hub.library.engine_host import Source
from mcp_hub.library.miroflow import OnTimeout, ToolsByServer
from mcp_hub.library.portal import Closable
from mcp_hub.library.tool_system import IConfigLoader, IConfigSystem, ToolsBySet
from mcp_hub.observability.call_metrics import IMetricsCollector


class ToolManager(ToolsByServer, ToolsByName, ToolsBySet, Closable):
    """MiroFlow's `execute_tool_call`, Agently's `register` and `call_tool`, and tools by name and by tool set.

    `tool_blacklist` has `(server, tool)` pairs or `"server/tool"`, patterns too. `timeout` is the deadline of one call
    in seconds (by default 1200, or what the configuration says). After it, asyncio.TimeoutError is raised, or an error
    returned with `on_timeout="return"`. `config` is a file or the content of one. Without `check_arguments`, functions
    and servers get arguments unchecked. `config_system` resolves tool sets and profiles in place of the configuration;
    `collectors` get the metrics of every call.

    Raises ValueError if two servers have the same name, and ConfigError if the configuration is invalid.
    """

    def __init__(
        self,
        server_configs: Sequence[Mapping[str, Any]] = (),
        tool_blacklist: Iterable[Any] | None = None,
        timeout: float | None = None,
        on_timeout: OnTimeout = "raise",
        config: Source = None,
        check_arguments: bool = True,
        *,
        config_system: IConfigSystem | None = None,
        collectors: Sequence[IMetricsCollector] = (),
    ) -> None:
        self._hub = Hub(config, collectors=collectors)
        self.config_system = config_system
        configured = [{"name": server.id, "params": server} for server in self.hub.config.servers]
        servers = [*configured, *server_configs]
        ToolsByServer.__init__(self, servers, tool_blacklist, timeout, on_timeout, check_arguments)
        ToolsByName.__init__(self, timeout, check_arguments)

    @classmethod
    def from_config(
        cls, path: str | Path | None = None, *, config_loader: IConfigLoader | None = None, **options: Any
    ) -> ToolManager:
        """Makes a manager from a configuration file, by default the one that `mcp-hub` would use.

        `config_loader` loads the file in place of the hub. Raises ConfigError.
        """
        if config_loader is not None:
            return cls(config=config_loader.load(str(default_path() if path is None else path)), **options)
        return cls(config=default_config() if path is None else path, **options)

    @property
    def hub(self) -> Hub:
        """The hub with the manager's servers and functions."""
        return self._hub

    @hub.setter
    def hub(self, hub: Hub) -> None:
        self._hub, self.browser_session = hub, None
        self._keep_blacklist(self._applied_blacklist)

    def serve(
        self, transport: Literal["stdio", "http", "sse"] = "stdio", *, host: str | None = None, port: int | None = None
    ) -> None:
        """Serves all tools over MCP, as `Hub.serve` does."""
        self.hub.run(self._apply_changes)
        self.hub.serve(transport, host=host, port=port)

    # --- life --------------------------------------------------------------------------------------------------

    def close(self) -> PendingShutdown:
        """Ends all servers: `await manager.close()` in a coroutine, `manager.close()` elsewhere. Idempotent."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.hub.close()
        else:
            self.hub.begin_end()
        return PendingShutdown(self.hub)

    async def aclose(self) -> None:
        """Does what `await close()` does."""
        await self.hub.aclose()


class PendingShutdown(Coroutine[Any, Any, None]):
    """A shutdown that has begun. Awaiting it waits until it is complete; it need not be awaited."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._shutdown_coroutine: Coroutine[Any, Any, None] | None = None

    def _shutdown(self) -> Coroutine[Any, Any, None]:
        if self._shutdown_coroutine is None:
            self._shutdown_coroutine = self._hub.aclose()
        return self._shutdown_coroutine

    def __await__(self) -> Generator[Any, None, None]:
        return self._shutdown().__await__()

    def send(self, value: Any, /) -> Any:
        """Resumes the coroutine; part of the protocol of coroutines."""
        return self._shutdown().send(value)

    def throw(self, *error: Any) -> Any:
        """Raises an exception in the coroutine; part of the protocol of coroutines."""
        return self._shutdown().throw(*error)

    def close(self) -> None:
        """Closes the coroutine without stopping the shutdown; part of the protocol of coroutines."""
        if self._shutdown_coroutine is not None:
            self._shutdown_coroutine.close()
