"""A loopback listener for the live page alone, for hubs whose own clients come over stdio or from a network."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcp_hub.config.listen import Listen
from mcp_hub.downstream.admission import Gate
from mcp_hub.downstream.page import UI, PageFront
from mcp_hub.downstream.page_access import comes_back
from mcp_hub.errors import HubError
from mcp_hub.text import printable
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.http1.listening_sockets import serving_loopback

if TYPE_CHECKING:
    from mcp_hub.downstream.page import LivePage

log = logging.getLogger("mcp_hub.downstream")

MAX_CONNECTIONS: Final = 64
UNUSED_FOR: Final = 60.0
"""Seconds without a page after which the listener ends; a page has a stream open, so it is in use all the time."""
LOOK: Final = 5.0
"""Seconds between two checks whether it is still in use."""


class PrivateListener:
    """Listens on 127.0.0.1 while a link waits to be used or a page is open. It has no `/mcp`, and takes no tokens."""

    def __init__(self, page: LivePage) -> None:
        self._page = page
        self._front = PageFront(Gate(Listen()))
        self._serving: asyncio.Task[None] | None = None
        self._base: asyncio.Future[str] | None = None

    async def started(self) -> str:
        """Returns its URL; listens first if it does not yet. Raises HubError if it cannot."""
        if self._serving is None or self._serving.done() or self._base is None:
            loop = asyncio.get_running_loop()
            self._base = loop.create_future()
            self._serving = loop.create_task(self._serve(self._base), name="page")
        return await asyncio.shield(self._base)

    async def _serve(self, base: asyncio.Future[str]) -> None:
        try:
            async with serving_loopback(self._answer, MAX_CONNECTIONS) as url:
                base.set_result(url)
                while True:
                    await asyncio.sleep(LOOK)  # the first link is issued as soon as the URL is known
                    if not self._page.links.waiting and self._page.sessions.unused_for() > UNUSED_FOR:
                        break
                self._serving = None
                log.info("the page is not open any more; its listener ends")
        except Exception as error:
            if base.done():
                raise
            base.set_exception(HubError(f"the page cannot be served: {printable(str(error))}"))
        finally:
            base.cancel()  # ends the wait for a URL that will not come

    async def _answer(self, request: HttpRequest, reply: HttpReply) -> None:
        refusal = self._front.gate.refusal(request.headers, request.port, request.head.authority)
        try:
            if refusal is not None and not (refusal.cause == "cross_site" and comes_back(request)):
                await reply.text(refusal.status, refusal.text)
            elif request.path in ("", "/"):
                await reply.send(303, headers=[(b"location", UI.encode())])
            elif request.path == UI or request.path.startswith(f"{UI}/"):
                request.let_in()
                await self._page.serve(request, reply, lambda: self._front)
            else:
                await reply.text(404, "Not Found")
        except ClientGone:
            return

    async def close(self) -> None:
        """Stops listening and closes all connections. Never raises."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
