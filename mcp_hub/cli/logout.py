"""`mcp-hub logout SERVER`: delete the tokens of a server, and revoke them if its authorization server can."""

from __future__ import annotations

import argparse
import asyncio

from mcp_hub.cli import OK
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.models import Config, Server
from mcp_hub.oauth.token_store import SignIn, SignInError, TokenStoreError, TokenUnavailable, token_store_for
from mcp_hub.text import printable
from mcp_hub.upstream.sign_in import find_oauth_server

REVOKE_WAIT = 15.0
"""Seconds for the revocation. The tokens are deleted in any case."""


EXAMPLES = """example:
  mcp-hub logout sentry"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub logout SERVER [--config F]`."""
    parser.add_argument("server", help="id of the server in the configuration")
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Signs out. Raises ConfigError, TokenStoreError."""
    config = load(options, quiet=True)
    server = find_oauth_server(config, options.server)
    store = token_store_for(config)
    try:
        before = store.load(server)
    except TokenStoreError:
        before = None  # an unreadable sign-in is deleted too
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
    from mcp_hub.oauth.token_flow import TokenFlow

    try:
        async with asyncio.timeout(REVOKE_WAIT):
            return await TokenFlow(server, config.web.allow_addresses).revoke(before)
    except (SignInError, TokenUnavailable, TimeoutError):
        return False
