"""Answers the calls that go to the hub itself: of its own tools, and of pages of long results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from mcp_hub.catalog import OWN, READ, RUN, SEARCH, Catalog, Route
from mcp_hub.errors import InvalidParameters
from mcp_hub.hub.catalogs import Catalogs
from mcp_hub.hub.generations import Generation, SharedServices
from mcp_hub.policy import Call, Json, unknown_name
from mcp_hub.policy.confirm import CODE_MODE
from mcp_hub.policy.quotas import Backlog
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from mcp_hub.security.callers import Caller

if TYPE_CHECKING:
    from mcp_hub.hub.code_runs import CodeRuns
    from mcp_hub.hub.groups import Groups
    from mcp_hub.hub.groups.tool_search import ToolSearch
    from mcp_hub.upstream import Upstream

CODE_RUN: Final = Route(OWN, TOOLS, RUN)

Act = Callable[[Call], Awaitable[Json]]
FindTool = Callable[[str], Awaitable[Route]]
"""Returns the route of a tool for one caller. Raises UnknownName."""


class OwnTools:
    """Answers the calls of one hub's own tools. `now()` returns the generation in force."""

    def __init__(self, services: SharedServices, catalogs: Catalogs, now: Callable[[], Generation]) -> None:
        self._services = services
        self._catalogs = catalogs
        self._now = now
        self._search: ToolSearch | None = None
        self._runs: CodeRuns | None = None

    async def call(self, call: Call, groups: Callable[[], Groups], find: FindTool, act: Act) -> Json:
        """Returns the result of one call. Raises CallError and ProtocolError.

        Args:
            call: A call of one of the hub's own tools, or of a page of a long result.
            groups: Returns the groups of tools.
            find: Finds a tool that a program names.
            act: Executes a call that a program makes.
        """
        if call.method == TOOLS.act_method:
            if call.within == READ and call.route.name != SEARCH:
                raise InvalidParameters(f"{READ} does not call {call.route.name}; call it without {READ}.")
            await self._catalogs.settled_for(call.caller)  # the first thing a client does may be a search
            if call.route == CODE_RUN:
                return await self._run_code(call, groups().whole_of(call.caller), find, act)
            from mcp_hub.hub.groups.meta_tools import call_meta_tool

            return await call_meta_tool(groups(), call, self._find, code=self._has_code_mode(call.caller))
        is_read = call.method == RESOURCES.act_method
        page = self._services.long_results.read(call.exposed, call.caller) if is_read else None
        if page is None:
            raise unknown_name(call.kind, call.exposed, call.era)
        return page

    async def _run_code(self, call: Call, full_catalog: Catalog, find: FindTool, act: Act) -> Json:
        if self._runs is None:
            from mcp_hub.hub.code_runs import CodeRuns

            labels = self._services.labels
            self._runs = CodeRuns(labels.next_call)
        generation = self._now()
        share = call.allowance.share if call.allowance else Backlog(lambda: generation.config.unread).share()
        internal, counter = generation.internal_servers, generation.calls
        local = frozenset(id for id, upstream in generation.upstreams.items() if upstream.server.origin != "mcp")
        counter.count += 1  # the process stays until the program has ended
        try:
            settings = CODE_MODE.of(generation.config)
            return await self._runs.run(call, settings, full_catalog, internal, local, share, find, act)
        finally:
            counter.count -= 1
            if counter.waiters and not counter.count:
                counter.notify()

    def _has_code_mode(self, caller: Caller) -> bool:
        """Returns whether a caller is listed `hub_run`."""
        exposure = self._catalogs.exposure
        generation = self._now()
        return CODE_MODE.of(generation.config).enabled or (exposure is not None and exposure.mode(caller) == "code")

    async def _find(self, catalog: Catalog, query: str) -> list[str]:
        """Returns the names of the tools of a catalog that fit a query, the best first."""
        if self._search is None:
            from mcp_hub.hub.groups.tool_search import ToolSearch

            self._search = ToolSearch(self._meaning, self._services.kept, self._may_cache)
        return await self._search.find(catalog, query)

    def _meaning(self) -> Upstream | None:
        internal = self._now().internal_servers
        return internal.meaning()

    def _may_cache(self, route: Route) -> bool:
        """Returns whether a tool may be kept on disk: its server may be cached, and lists the same to everybody."""
        upstream = self._now().upstreams.get(route.upstream)
        return (
            upstream is not None
            and upstream.server.keep_catalog
            and not upstream.caller_lists.all
            and self._catalogs.everybodys.exposed(route) is not None
        )

    async def close(self) -> None:
        """Stops the search."""
        if self._search is not None:
            await self._search.close()
