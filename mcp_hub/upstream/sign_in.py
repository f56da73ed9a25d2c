"""Signs a user in to a server: connects like the hub, and waits until the user's browser returns from the sign-in."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mcp_hub import codes
from mcp_hub.config.extras import missing
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ConfigError, HubError, UpstreamAnswered
from mcp_hub.oauth import UpstreamTokens, with_sign_in
from mcp_hub.oauth.token_store import SignInError
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.text import printable
from mcp_hub.transport import Challenge, LinkError
from mcp_hub.transport.children import Children
from mcp_hub.upstream.attribution import CallAttribution, ClientRegistry
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.link_dialer import LinkDialer
from mcp_hub.upstream.negotiation import NoAgreement, no_capabilities
from mcp_hub.upstream.session_opener import HubSide, open_session
from mcp_hub.version import VERSION

USER_WAIT: Final = 300.0
"""Seconds that a user has to sign in."""
CONNECT: Final = 60.0
"""Further seconds for the requests to the servers."""
MAX_QUERY: Final = 16 * 1024
"""Characters of one query parameter; some servers' codes are tokens of several thousand characters."""
SIGNED_IN: Final = "Signed in. This window can be closed."
FOREIGN_RESPONSE: Final = "This does not belong to the sign-in that the hub waits for."


def find_oauth_server(config: Config, id: str) -> Server:
    """Returns the server with an id. An entry that has only a url gets the default sign-in.

    Raises:
        ConfigError: there is no such server, it is switched off, or it cannot be signed in to.
    """
    server = next((server for server in config.servers if server.id == id), None)
    name = printable(id, 100)
    file = printable(str(config.path or Path("the configuration")))
    if server is None:
        raise ConfigError(f"{file}: there is no server {name!r}", codes.NAME_UNKNOWN)
    if not server.enabled and server.disabled_reason is not None:
        raise ConfigError(f"{file}: servers.{name} is switched off: {server.disabled_reason}")
    if server.oauth is not None:
        return server
    if (implied := with_sign_in(server)) is None:
        reason = "has no sign-in: it needs a url with https:// and no Authorization of its own"
        raise ConfigError(f"{file}: servers.{name} {reason}")
    if (missing_extra := missing("oauth")) is not None:
        raise ConfigError(f"signing in to {name}: {missing_extra}")
    return implied


async def sign_in(server: Server, tokens: UpstreamTokens) -> None:
    """Connects to the server like the hub. The first refusal starts the sign-in; then the connection shows if it works.

    Raises HubError if the server cannot be reached or refuses, and SignInError if the sign-in fails.
    """
    challenge = await tokens.last_challenge()
    try:
        if challenge is not None and challenge.status == 403 and tokens.signed_in:
            await tokens.sign_in(challenge)
        await _open_session(server, tokens)
        if not tokens.has_new:
            await tokens.sign_in(challenge or Challenge(401))  # only later requests need the sign-in
            await _open_session(server, tokens)
    except (LinkError, UpstreamAnswered, NoAgreement) as error:
        raise HubError(f"{printable(server.id, 100)}: {ErrorMessages(server).explain(error)}") from None


async def _open_session(server: Server, tokens: UpstreamTokens) -> None:
    children, clients = Children(), ClientRegistry(expected=False)
    attribution = CallAttribution(server, None, clients)
    info = {"name": "mcp-hub", "title": "mcp-hub", "version": VERSION}
    side = HubSide(info, lambda method, params, cause: None, attribution, no_capabilities, clients.sole_era)
    session = await open_session(server, LinkDialer(children, sign_ins=lambda _: tokens), side)
    try:
        with contextlib.suppress(UpstreamAnswered):
            await session.request(TOOLS.list_method, {})  # some servers refuse only what follows the handshake
    finally:
        await session.close()
        await children.close()


class BrowserReturn:
    """A SignInUser that shows a URL and waits until the browser returns. `show(url)` is called once."""

    def __init__(self, redirect_uri: str, show: Callable[[str], None], wait: float = USER_WAIT) -> None:
        self.redirect_uri = redirect_uri
        self._show = show
        self._wait = wait
        self._state: str | None = None
        self._query: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def comes_back(self, url: str, state: str) -> dict[str, str]:
        """Shows the URL and waits for the browser (SignInUser)."""
        self._state = state
        self._show(url)
        try:
            async with asyncio.timeout(self._wait):
                return await asyncio.shield(self._query)
        except TimeoutError:
            raise SignInError(f"nobody has signed in within {self._wait:g} s") from None

    def take(self, query: Mapping[str, str]) -> bool:
        """Takes the query parameters with which a browser has returned; returns False if their `state` is wrong."""
        params = {name: value for name, value in query.items() if len(value) <= MAX_QUERY}
        state = params.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode(), self._state.encode()):
            return False
        if not self._query.done():
            self._query.set_result(params)
        return True
