"""Access to the live page of one hub: its links, its logs, and the page itself, imported at the first request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from mcp_hub.config import LoadedConfig
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page import LivePage
    from mcp_hub.downstream.page.private_listener import PrivateListener
    from mcp_hub.hub import Engine
    from mcp_hub.hub.hub_status import Status
    from mcp_hub.transport.http1.exchange import HttpRequest

Json = dict[str, Any]
UI: Final = "/ui"
RETURN: Final = "/ui/return"
"""The path to which browsers come back from a sign-in; `state` in the query identifies the sign-in."""


def comes_back(request: HttpRequest) -> bool:
    """Returns whether a browser navigates back from a sign-in, which a page of another site may start."""
    navigates = request.values(b"sec-fetch-mode") == ["navigate"]
    return request.method == "GET" and request.path == RETURN and navigates


class Reload(msgspec.Struct, frozen=True):
    """One load of the configuration while the hub ran."""

    time: str
    generation: int
    """The number of the generation that was in force afterwards."""
    changed: tuple[str, ...]
    """What it changed, a sentence each."""
    problem: str | None = None
    """Why it is not in force; None if it is."""


class ConfigurationFacts(msgspec.Struct, frozen=True):
    """The configuration of a running hub, and the loads of its files."""

    loaded: LoadedConfig
    """The configuration in force, with the messages about it."""
    reloads: tuple[Reload, ...] = ()
    """The newest first."""
    refused: str | None = None
    """Why the files as they are now are not in force; None if they are."""
    waiting: str | None = None
    """Why changed files wait for a person; None if none do."""


class PageSources(msgspec.Struct, frozen=True):
    """The sources of what the page shows."""

    dispatcher: Dispatcher
    status: Status
    configuration: Callable[[], ConfigurationFacts]
    reload: Callable[[], Awaitable[Reload | None]]
    """Reads the files again, as a person wants it, and returns what that did."""
    cure: Callable[[str], str | None]
    """Returns what to do about a code such as HUB-201."""
    costs: Callable[[Engine], Json]
    """Returns what the tools cost in a model's context, as `mcp-hub tokens --json` prints it."""


class PageAccess:
    """Makes the page of one hub at the first request for it, and answers `mcp-hub open`, `logs` and `reload`."""

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources
        self._page: LivePage | None = None
        self._private_listener: PrivateListener | None = None
        self.base: Callable[[], str | None] = lambda: None
        """Returns the URL of the hub's own listener where that serves the page; None where it does not."""

    @property
    def page(self) -> LivePage:
        """The page."""
        if self._page is None:
            from mcp_hub.downstream.page.parts import make_page

            self._page = make_page(self._sources)
        return self._page

    async def link(self) -> str:
        """Returns a link that opens the page once, within a minute. Raises HubError."""
        base = self.base()
        if base is None:
            base = await self._private_base()
        return f"{base}{UI}#s={self.page.links.issue()}"

    async def _private_base(self) -> str:
        """Returns the URL of a listener for the page alone; starts it if it does not run."""
        if self._private_listener is None:
            from mcp_hub.downstream.page.private_listener import PrivateListener

            self._private_listener = PrivateListener(self.page)
        return await self._private_listener.started()

    async def answer(self, request: Json) -> AsyncIterator[Json]:
        """Yields the answers to a request on the socket of the hub: `{"ask": "page"}` or `{"ask": "logs", ...}`."""
        hub = self._sources.dispatcher.hub
        if request.get("ask") == "page":
            if hub.config.listen.ui is False:
                cure = "set listen.ui to true, or remove it, and the hub will show its page"
                yield {"problem": "the configuration of this hub has listen.ui: false", "cure": cure}
            else:
                yield {"url": await self.link()}
        elif request.get("ask") == "reload":
            reload = await self._sources.reload()
            yield msgspec.to_builtins(reload) if reload is not None else {"problem": "this hub has no file", "cure": ""}
        elif request.get("ask") == "logs":
            from mcp_hub.downstream.page.log_lines import log_lines

            server = request.get("server")
            server_id = server if isinstance(server, str) else None
            async for line in log_lines(hub, self.page.feed, server_id, follow=request.get("follow") is True):
                yield line
        else:
            cure = "restart it with the version of this command"
            yield {"problem": "this hub does not know what it was asked", "cure": cure}

    def sign_out(self) -> None:
        """Ends every session, as the page is not served any more."""
        if self._page is not None:
            self._page.sessions.end_all()

    def end_sessions(self) -> None:
        """Ends the page's sessions and streams, as the hub ends."""
        if self._page is not None:
            self._page.close()

    async def close(self) -> None:
        """Ends the page and its own listener."""
        self.end_sessions()
        if self._private_listener is not None:
            await self._private_listener.close()
