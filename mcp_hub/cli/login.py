"""`mcp-hub login SERVER`: sign in to a server by OAuth. The browser is redirected to a local listener."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.cli import OK
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.field_types import parse_duration
from mcp_hub.config.models import Config, Server
from mcp_hub.downstream.open_pages import is_read
from mcp_hub.downstream.page.endpoints import NO_STORE, PageError, query_of
from mcp_hub.errors import HubError
from mcp_hub.oauth import UpstreamTokens
from mcp_hub.oauth.token_store import SignIn, SignInError, TokenStore, token_store_for
from mcp_hub.text import printable
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.listening_sockets import serving_loopback
from mcp_hub.upstream.sign_in import (
    CONNECT,
    FOREIGN_RESPONSE,
    SIGNED_IN,
    USER_WAIT,
    BrowserReturn,
    find_oauth_server,
    sign_in,
)

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
    """Signs in. Raises ConfigError if the server has no sign-in, HubError if the sign-in fails."""
    config = load(options, quiet=True)
    server = find_oauth_server(config, options.server)
    run_loop(_login(config, server, options.timeout, browser=not options.no_browser))
    print(f"signed in to {printable(server.id, 100)}; the tokens are in {token_store_for(config).where(server)}")
    return OK


async def _login(config: Config, server: Server, wait: float, *, browser: bool) -> None:
    assert server.oauth is not None
    store, allow = token_store_for(config), config.web.allow_addresses
    try:
        if server.oauth.grant == "client_credentials":
            await sign_in(server, UpstreamTokens(server, store, allow))
            return

        def show(url: str) -> None:
            print(f"Open this address to sign in to {printable(server.id, 100)}:\n{url}", flush=True)
            if browser:
                browser_tasks.append(asyncio.get_running_loop().run_in_executor(None, open_browser, url))

        browser_tasks: list[asyncio.Future[bool]] = []
        async with redirect_listener(_ports(server, store), show, wait) as user, asyncio.timeout(wait + CONNECT):
            await sign_in(server, UpstreamTokens(server, store, allow, user))
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
    return [*_registered_ports(before), 0]


def _registered_ports(before: SignIn | None) -> list[int]:
    uris = before.client.get("redirect_uris") if before is not None and before.client is not None else None
    try:
        return [port for uri in uris or () if (port := urlsplit(uri).port)]
    except (ValueError, TypeError, AttributeError):
        return []


PATH: Final = "/callback"
MAX_CONNECTIONS: Final = 64
"""Connections of browsers at the same time; a browser opens a few before it needs them."""
_REFUSED: Final = "The sign-in was refused; the terminal says more. This window can be closed."
_WITH_SCREEN: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Except on macOS and Windows, a browser can open a window only if one of these variables is set."""


@contextlib.asynccontextmanager
async def redirect_listener(ports: list[int], show: Callable[[str], None], wait: float) -> AsyncIterator[BrowserReturn]:
    """Receives the redirect of the browser on the first free port of `ports`, where 0 means any port.

    Raises SignInError if none is free.
    """
    user = BrowserReturn("", show, wait)

    async def answer(request: HttpRequest, reply: HttpReply) -> None:
        """Answers a request of the browser. It is accepted only with the right `state`."""
        if request.path != PATH:
            await reply.text(404, "Not Found")
        elif await is_read(request, reply):
            query: dict[str, str] = {}
            with contextlib.suppress(PageError):
                query = query_of(request)
            if user.take(query):
                await reply.text(200, SIGNED_IN if "code" in query else _REFUSED, NO_STORE)
            else:
                await reply.text(400, FOREIGN_RESPONSE)

    async with contextlib.AsyncExitStack() as stack:
        try:
            base = await stack.enter_async_context(serving_loopback(answer, MAX_CONNECTIONS, ports))
        except HubError:
            text = f"the port {ports[-1]} on 127.0.0.1 is taken; set another auth.redirect_port"
            raise SignInError(text) from None
        user.redirect_uri = f"{base}{PATH}"
        yield user


def open_browser(url: str) -> bool:
    """Opens a URL in the user's browser, without a shell. Returns False if there is no browser."""
    if not url.startswith(("https://", "http://")):
        return False
    if os.name == "posix" and sys.platform != "darwin" and not any(os.environ.get(name) for name in _WITH_SCREEN):
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
