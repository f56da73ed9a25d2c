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
        sign_in = store.load(server)
    except TokenStoreError:
        sign_in = None  # an unreadable sign-in is deleted too
    was_deleted = store.delete(server)
    name = printable(server.id, 100)
    if not was_deleted:
        print(f"there was no sign-in to {name}")
    elif sign_in is not None and run_loop(_revoke(config, server, sign_in)):
        print(f"signed out of {name}; its tokens are revoked")
    else:
        print(f"signed out of {name}")
    return OK


async def _revoke(config: Config, server: Server, sign_in: SignIn) -> bool:
    from mcp_hub.oauth.token_flow import TokenFlow

    try:
        async with asyncio.timeout(REVOKE_WAIT):
            return await TokenFlow(server, config.web.allow_addresses).revoke(sign_in)
    except (SignInError, TokenUnavailable, TimeoutError):
        return False
