"""`mcp-hub login SERVER`: sign in to a server, so that the hub can call it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path
from urllib.parse import urlsplit

from mcp_hub.cli import OK
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.models import Config, Server
from mcp_hub.config.quantities import parse_duration
from mcp_hub.errors import ConfigError, HubError, UpstreamAnswered
from mcp_hub.oauth.redirect import listening, open_browser
from mcp_hub.oauth.sign_in import SignIn, SignInFailed
from mcp_hub.oauth.store import TokenStore, store_of
from mcp_hub.oauth.tokens import Tokens
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.text import printable
from mcp_hub.transport.authorization import Challenge
from mcp_hub.transport.children import Children
from mcp_hub.transport.link import LinkError
from mcp_hub.upstream.agreement import NoAgreement, nothing
from mcp_hub.upstream.causes import Causes
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.session import Side, open_session
from mcp_hub.upstream.words import Words
from mcp_hub.version import VERSION

USER_WAIT = 300.0
"""Seconds a user has to sign in."""
CONNECT = 60.0
"""Seconds beside those for all that the servers have to say."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`mcp-hub login SERVER [--no-browser] [--timeout T] [--config F]`."""
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
    """Exit code 1 if there is no sign-in in the end. Raises ConfigError, HubError."""
    config = load(options, quiet=True)
    server = signed_in_to(config, options.server)
    run_loop(_login(config, server, options.timeout, browser=not options.no_browser))
    print(f"signed in to {printable(server.id, 100)}; the tokens are in {store_of(config).where(server)}")
    return OK


def signed_in_to(config: Config, id: str) -> Server:
    """The server of that id. Raises ConfigError if there is none, or none that is signed in to."""
    server = next((server for server in config.servers if server.id == id), None)
    shown = printable(id, 100)
    file = printable(str(config.path or Path("the configuration")))
    if server is None:
        raise ConfigError(f"{file}: there is no server {shown!r}")
    if not server.enabled and server.disabled_reason is not None:
        raise ConfigError(f"{file}: servers.{shown} is switched off: {server.disabled_reason}")
    if server.oauth is None:
        raise ConfigError(f"{file}: servers.{shown} has no sign-in; write 'auth: oauth' into its entry")
    return server


async def _login(config: Config, server: Server, wait: float, *, browser: bool) -> None:
    assert server.oauth is not None
    store, allow = store_of(config), config.web.allow_addresses
    try:
        if server.oauth.grant == "client_credentials":
            await _connect(server, Tokens(server, store, allow))
            return

        def show(url: str) -> None:
            print(f"Open this address to sign in to {printable(server.id, 100)}:\n{url}", flush=True)
            if browser:
                opening.append(asyncio.get_running_loop().run_in_executor(None, open_browser, url))

        opening: list[asyncio.Future[bool]] = []
        async with listening(_ports(server, store), show, wait) as user, asyncio.timeout(wait + CONNECT):
            await _connect(server, Tokens(server, store, allow, user))
    except SignInFailed as error:
        raise HubError(f"{printable(server.id, 100)}: {error}") from None
    except TimeoutError:
        raise HubError(f"{printable(server.id, 100)}: it did not answer in time") from None


def _ports(server: Server, store: TokenStore) -> list[int]:
    """Where to be come back to: as configured, else as registered before, else anywhere."""
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


async def _connect(server: Server, tokens: Tokens) -> None:
    """Use the server as the hub would: the first refusal leads to the sign-in, the answers show that it counts."""
    said = await tokens.last_challenge()
    try:
        if said is not None and said.status == 403 and tokens.signed_in:
            await tokens.sign_in(said)
        await _open(server, tokens)
        if not tokens.has_new:
            await tokens.sign_in(said or Challenge(401))  # what needs it is called later
            await _open(server, tokens)
    except (LinkError, UpstreamAnswered, NoAgreement) as error:
        raise HubError(f"{printable(server.id, 100)}: {Words(server).explain(error)}") from None


async def _open(server: Server, tokens: Tokens) -> None:
    children, clients = Children(), Clients(expected=False)
    causes = Causes(server, None, clients, shared=True)
    info = {"name": "mcp-hub", "title": "mcp-hub", "version": VERSION}
    side = Side(info, lambda method, params, cause: None, causes, nothing, clients.spoken)
    session = await open_session(server, Dialer(children, sign_ins=lambda _: tokens), side)
    try:
        with contextlib.suppress(UpstreamAnswered):
            await session.request(TOOLS.list_method, {})  # some servers let anybody in and show nothing
    finally:
        await session.close()
        await children.close()
