"""`mcp-hub login SERVER`: sign in to a server, so that the hub can call it; the browser returns to an address here."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mcp_hub import codes
from mcp_hub.cli import OK
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import parse_duration
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ConfigError, HubError, UpstreamAnswered
from mcp_hub.oauth import UpstreamTokens, with_sign_in
from mcp_hub.oauth.token_store import SignIn, SignInError, TokenStore, token_store_for
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

USER_WAIT = 300.0
"""Seconds that a user has to sign in."""
CONNECT = 60.0
"""Further seconds for the requests to the servers."""


EXAMPLES = """examples:
  mcp-hub login sentry
  mcp-hub login sentry --no-browser    prints the address to open elsewhere"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub login SERVER [--no-browser] [--timeout T] [--config F]`."""
    parser.add_argument("server", help="id of the server in the configuration")
    parser.add_argument("--no-browser", action="store_true", help="only print the address to open")
    parser.add_argument("--timeout", type=_duration, default=USER_WAIT, help="how long to wait for you (default: 5m)")
    add_config_arguments(parser)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    """Signs in. Raises ConfigError for an unusable entry, HubError if the sign-in fails."""
    config = load(options, quiet=True)
    server = find_oauth_server(config, options.server)
    run_loop(_login(config, server, options.timeout, browser=not options.no_browser))
    print(f"signed in to {printable(server.id, 100)}; the tokens are in {token_store_for(config).where(server)}")
    return OK


def find_oauth_server(config: Config, id: str) -> Server:
    """Returns the server of an id. An entry with a url alone has the usual sign-in.

    Raises:
        ConfigError: there is no such server, it is switched off, or it cannot be signed in to.
    """
    server = next((server for server in config.servers if server.id == id), None)
    shown = printable(id, 100)
    file = printable(str(config.path or Path("the configuration")))
    if server is None:
        raise ConfigError(f"{file}: there is no server {shown!r}", codes.NAME_UNKNOWN)
    if not server.enabled and server.disabled_reason is not None:
        raise ConfigError(f"{file}: servers.{shown} is switched off: {server.disabled_reason}")
    if server.oauth is not None:
        return server
    if (implied := with_sign_in(server)) is None:
        why = "has no sign-in: it needs a url with https:// and no Authorization of its own"
        raise ConfigError(f"{file}: servers.{shown} {why}")
    if (lacking := missing("oauth")) is not None:
        raise ConfigError(f"signing in to {shown}: {lacking}")
    return implied


async def _login(config: Config, server: Server, wait: float, *, browser: bool) -> None:
    assert server.oauth is not None
    store, allow = token_store_for(config), config.web.allow_addresses
    try:
        if server.oauth.grant == "client_credentials":
            await _sign_in(server, UpstreamTokens(server, store, allow))
            return

        def show(url: str) -> None:
            print(f"Open this address to sign in to {printable(server.id, 100)}:\n{url}", flush=True)
            if browser:
                opening.append(asyncio.get_running_loop().run_in_executor(None, open_browser, url))

        opening: list[asyncio.Future[bool]] = []
        async with redirect_listener(_ports(server, store), show, wait) as user, asyncio.timeout(wait + CONNECT):
            await _sign_in(server, UpstreamTokens(server, store, allow, user))
    except SignInError as error:
        raise HubError(f"{printable(server.id, 100)}: {error}") from None
    except TimeoutError:
        raise HubError(f"{printable(server.id, 100)}: it did not answer in time") from None


def _ports(server: Server, store: TokenStore) -> list[int]:
    """Returns the ports to try for the redirect: as configured, else as registered before, else any."""
    assert server.oauth is not None
    if server.oauth.redirect_port is not None:
        return [server.oauth.redirect_port]
    before = store.load(server)
    return [*_registered(before), 0]


def _registered(before: SignIn | None) -> list[int]:
    uris = before.client.get("redirect_uris") if before is not None and before.client is not None else None
    try:
        return [port for uri in uris or () if (port := urlsplit(uri).port)]
    except (ValueError, TypeError, AttributeError):
        return []


async def _sign_in(server: Server, tokens: UpstreamTokens) -> None:
    """Connects as the hub would. The first refusal starts the sign-in, and the answers show that it works."""
    said = await tokens.last_challenge()
    try:
        if said is not None and said.status == 403 and tokens.signed_in:
            await tokens.sign_in(said)
        await _open_session(server, tokens)
        if not tokens.has_new:
            await tokens.sign_in(said or Challenge(401))  # only later requests need the sign-in
            await _open_session(server, tokens)
    except (LinkError, UpstreamAnswered, NoAgreement) as error:
        raise HubError(f"{printable(server.id, 100)}: {ErrorMessages(server).explain(error)}") from None


async def _open_session(server: Server, tokens: UpstreamTokens) -> None:
    children, clients = Children(), ClientRegistry(expected=False)
    causes = CallAttribution(server, None, clients, shared=True)
    info = {"name": "mcp-hub", "title": "mcp-hub", "version": VERSION}
    side = HubSide(info, lambda method, params, cause: None, causes, no_capabilities, clients.sole_era)
    session = await open_session(server, LinkDialer(children, sign_ins=lambda _: tokens), side)
    try:
        with contextlib.suppress(UpstreamAnswered):
            await session.request(TOOLS.list_method, {})  # some servers let everybody connect and list nothing
    finally:
        await session.close()
        await children.close()


if TYPE_CHECKING:
    from aiohttp import web

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
MAX_QUERY: Final = 16 * 1024
"""Characters of a query; some servers' codes are tokens of several thousand."""
_DONE: Final = "Signed in. This window can be closed."
_REFUSED: Final = "The sign-in was refused; the terminal says more. This window can be closed."
_STRANGE: Final = "This is not the answer to the sign-in that is waited for."
_WITH_SCREEN: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set on POSIX where a browser can open a window."""


class RedirectListener:
    """A SignInUser that shows a URL and waits until the browser returns. `show(url)` is called once."""

    def __init__(self, port: int, show: Callable[[str], None], wait: float) -> None:
        self.redirect_uri = f"http://{HOST}:{port}{PATH}"
        self._show = show
        self._wait = wait
        self._state: str | None = None
        self._given: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def comes_back(self, url: str, state: str) -> dict[str, str]:
        """Shows the URL and waits for the browser (SignInUser)."""
        self._state = state
        self._show(url)
        try:
            async with asyncio.timeout(self._wait):
                return await asyncio.shield(self._given)
        except TimeoutError:
            raise SignInError(f"nobody has signed in within {self._wait:g} s") from None

    async def answer(self, request: web.Request) -> web.Response:
        """Answers the browser's request. Only one with the right state counts."""
        from aiohttp import web

        given = {name: value for name, value in request.query.items() if len(value) <= MAX_QUERY}
        state = given.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode(), self._state.encode()):
            return web.Response(status=400, text=_STRANGE)
        if not self._given.done():
            self._given.set_result(given)
        return web.Response(text=_DONE if "code" in given else _REFUSED, headers={"Cache-Control": "no-store"})


@contextlib.asynccontextmanager
async def redirect_listener(
    ports: list[int], show: Callable[[str], None], wait: float
) -> AsyncIterator[RedirectListener]:
    """Listens on the first free port of `ports`; 0 is any. Raises SignInError if none is free."""
    from aiohttp import web

    redirects: list[RedirectListener] = []

    async def answer(request: web.Request) -> web.Response:
        return await redirects[0].answer(request)

    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app, access_log=None, max_line_size=2 * MAX_QUERY)
    await runner.setup()
    try:
        for port in ports:
            try:
                await web.TCPSite(runner, HOST, port).start()
                break
            except OSError:
                continue
        else:
            raise SignInError(f"the port {ports[-1]} on {HOST} is taken; set another auth.redirect_port")
        redirects.append(RedirectListener(runner.addresses[0][1], show, wait))
        yield redirects[0]
    finally:
        await runner.cleanup()


def open_browser(url: str) -> bool:
    """Opens a URL in the user's browser, without a shell; returns whether there is one."""
    if not url.startswith(("https://", "http://")):
        return False
    if os.name == "posix" and sys.platform != "darwin" and not any(os.environ.get(name) for name in _WITH_SCREEN):
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
