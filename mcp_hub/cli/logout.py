"""`mcp-hub logout SERVER`: forget the tokens of a server, and tell its authorization server where it wants to know."""

from __future__ import annotations

import argparse
import asyncio

from mcp_hub.cli import OK
from mcp_hub.cli.login import signed_in_to
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.models import Config, Server
from mcp_hub.oauth.sign_in import NoTokenNow, SignIn, SignInFailed
from mcp_hub.oauth.store import StoreFailed, store_of
from mcp_hub.text import printable

REVOKE_WAIT = 15.0
"""Seconds the authorization server gets; the tokens are forgotten in any case."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`mcp-hub logout SERVER [--config F]`."""
    parser.add_argument("server", help="id of the server in the configuration")
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Raises ConfigError, StoreFailed."""
    config = load(options, quiet=True)
    server = signed_in_to(config, options.server)
    store = store_of(config)
    try:
        before = store.load(server)
    except StoreFailed:
        before = None  # whatever is there goes
    gone = store.delete(server)
    shown = printable(server.id, 100)
    if not gone:
        print(f"there was no sign-in to {shown}")
    elif before is not None and run_loop(_revoked(config, server, before)):
        print(f"signed out of {shown}; its tokens are revoked")
    else:
        print(f"signed out of {shown}")
    return OK


async def _revoked(config: Config, server: Server, before: SignIn) -> bool:
    from mcp_hub.oauth.flow import Flow

    try:
        async with asyncio.timeout(REVOKE_WAIT):
            return await Flow(server, config.web.allow_addresses).revoke(before)
    except (SignInFailed, NoTokenNow, TimeoutError):
        return False
