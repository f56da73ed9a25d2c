"""`mcp-hub login SERVER`: sign in to a server, so that the hub can call it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path
from urllib.parse import urlsplit

from mcp_hub.cli import OK
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import parse_duration
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ConfigError, HubError, UpstreamAnswered
from mcp_hub.oauth.redirect import open_browser, redirect_listener
from mcp_hub.oauth.token_store import SignIn, SignInError, TokenStore, token_store_for
from mcp_hub.oauth.tokens import UpstreamTokens, with_sign_in
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.text import printable
from mcp_hub.transport.children import Children
from mcp_hub.transport.link import Challenge, LinkError
from mcp_hub.upstream.attribution import CallAttribution, ClientRegistry
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.link_dialer import LinkDialer
from mcp_hub.upstream.session_opener import HubSide, NoAgreement, no_capabilities, open_session
from mcp_hub.version import VERSION

USER_WAIT = 300.0
"""Seconds that a user has to sign in."""
CONNECT = 60.0
"""Further seconds for the requests to the servers."""


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
        raise ConfigError(f"{file}: there is no server {shown!r}")
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
