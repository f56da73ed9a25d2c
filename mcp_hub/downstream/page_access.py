"""The way to the live page of one hub: whether it is shown, and the page itself, imported when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page import LivePage
    from mcp_hub.hub.hub_status import Status

UI: Final = "/ui"


class PageAccess:
    """Makes the page of one hub at the first request for it."""

    def __init__(self, dispatcher: Dispatcher, status: Status) -> None:
        self._dispatcher = dispatcher
        self._status = status
        self._page: LivePage | None = None

    @property
    def page(self) -> LivePage:
        """The page."""
        if self._page is None:
            from mcp_hub.downstream.page.parts import make_page

            self._page = make_page(self._dispatcher, self._status)
        return self._page

    async def close(self) -> None:
        """Ends what is open for the page."""
        if self._page is not None:
            self._page.close()
