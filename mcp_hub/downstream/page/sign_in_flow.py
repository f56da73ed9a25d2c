"""Signing in to a server from the page: the person opens a URL, and the browser comes back to the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mcp_hub.config.credentials import is_loopback
from mcp_hub.downstream.page.endpoints import PageError
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.oauth import UpstreamTokens
from mcp_hub.oauth.token_store import SignInError, token_store_for
from mcp_hub.text import printable
from mcp_hub.upstream.sign_in import CONNECT, USER_WAIT, BrowserReturn, find_oauth_server, sign_in

if TYPE_CHECKING:
    from mcp_hub.config.models import Server
    from mcp_hub.hub import Engine

MAX_WAITING: Final = 8
"""The most sign-ins that wait for their user; with one more, the oldest ends."""


class SignIns:
    """The sign-ins that wait for their user. `ended(server, problem)` is called at the end; None means success."""

    def __init__(self, hub: Engine, on_end: Callable[[str, str | None], None]) -> None:
        self._hub = hub
        self._on_end = on_end
        self._waiting: dict[str, tuple[BrowserReturn, asyncio.Task[None]]] = {}

    async def begin(self, id: str, return_uri: str) -> str:
        """Returns the URL at which a person signs in to a server. Raises PageError.

        The sign-in goes on in the background for `USER_WAIT` seconds. `return_uri`: where the browser comes back to.
        """
        server = self._server(id)
        by_hand = f"Run `mcp-hub login {printable(id, 100)}` on the machine of the hub."
        if server.oauth is not None and (server.oauth.client_id is not None or server.oauth.redirect_port is not None):
            text = f"The client of {id} is registered for the address of `mcp-hub login`, not for that of this page."
            raise PageError(409, "registered", text, by_hand)
        url_parts = urlsplit(return_uri)
        if url_parts.scheme != "https" and not is_loopback(url_parts.hostname):
            text = "An authorization server sends its answer over https or to this machine only."
            raise PageError(409, "not_private", text, by_hand)
        self._end(id)
        while len(self._waiting) >= MAX_WAITING:
            self._end(next(iter(self._waiting)))
        login_url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        user = BrowserReturn(return_uri, lambda url: None if login_url.done() else login_url.set_result(url))
        task = asyncio.get_running_loop().create_task(self._sign_in(server, user), name=f"sign-in {id}")
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # `_on_end` reports it
        self._waiting[id] = user, task
        futures: set[asyncio.Future[Any]] = {login_url, task}
        await asyncio.wait(futures, timeout=CONNECT, return_when=asyncio.FIRST_COMPLETED)
        if task.cancelled():
            text = f"This sign-in to {id} has ended, as another one has begun."
            raise PageError(409, "replaced", text, "Go on with the newest one, or begin again.")
        if login_url.done():
            return login_url.result()
        task.cancel()  # `_end` could end a newer one
        problem = task.exception() if task.done() and not task.cancelled() else None
        text = str(problem) if problem is not None else "The server did not ask for a sign-in in time."
        raise PageError(502, "sign_in", printable(text, 1000), by_hand)

    def returned(self, query: Mapping[str, str]) -> bool:
        """Takes the query with which a browser comes back; returns whether a sign-in waits for it."""
        return any([user.take(query) for user, _ in self._waiting.values()])

    def close(self) -> None:
        """Ends every sign-in."""
        for id in list(self._waiting):
            self._end(id)

    def _end(self, id: str) -> None:
        if (entry := self._waiting.pop(id, None)) is not None:
            entry[1].cancel()

    def _server(self, id: str) -> Server:
        try:
            server = find_oauth_server(self._hub.config, id)
        except ConfigError as error:
            cure = "`mcp-hub doctor` says what its entry needs."
            raise PageError(409, "no_sign_in", printable(str(error), 1000), cure) from None
        if server.oauth is not None and server.oauth.grant == "client_credentials":
            text = f"{id} is signed in to by the hub itself, without a person."
            raise PageError(409, "no_sign_in", text, "Look at client_id, its secret and scopes under `auth`.")
        return server

    async def _sign_in(self, server: Server, user: BrowserReturn) -> None:
        config = self._hub.config
        tokens = UpstreamTokens(server, token_store_for(config), config.web.allow_addresses, user)
        problem: str | None = "it did not end in time"
        try:
            async with asyncio.timeout(USER_WAIT + CONNECT):
                await sign_in(server, tokens)
            problem = None
            upstream = self._hub.upstreams.get(server.id)
            if upstream is not None:
                upstream.wake()
        except asyncio.CancelledError:
            problem = "it was cancelled"
            raise
        except (HubError, SignInError) as error:
            problem = str(error)
            raise
        finally:
            if (entry := self._waiting.get(server.id)) is not None and entry[0] is user:
                del self._waiting[server.id]
            self._on_end(server.id, problem)
