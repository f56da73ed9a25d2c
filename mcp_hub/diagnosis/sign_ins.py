"""Checks the sign-ins to servers: which exist, which are missing, which have expired."""

from __future__ import annotations

import time
from typing import Final

from mcp_hub import codes
from mcp_hub.config.models import Config, Server
from mcp_hub.diagnosis import Finding, Section, fail, ok, warn
from mcp_hub.oauth import with_sign_in
from mcp_hub.oauth.token_store import SignIn, TokenStore, TokenStoreError, token_store_for
from mcp_hub.text import printable

HOUR: Final = 3600
DAY: Final = 24 * HOUR


def sign_ins_section(config: Config) -> Section:
    """Returns `doctor`'s findings on the sign-ins of all servers that are switched on."""
    store = token_store_for(config)
    servers = [server for server in config.servers if server.enabled and server.url is not None]
    found = [one for server in servers if (one := _finding(server, store)) is not None]
    return Section("Sign-ins", tuple(found or [ok("sign-ins", "no server is signed in to")]))


def _finding(server: Server, store: TokenStore) -> Finding | None:
    """Returns the finding on one server; None for a server without a sign-in."""
    entry = server if server.oauth is not None else with_sign_in(server)
    if entry is None or entry.oauth is None or (server.oauth is None and store.stamp(entry) is None):
        return None
    shown = printable(server.id, 100)
    own = entry.oauth.grant == "client_credentials"
    try:
        known = store.load(entry)
    except TokenStoreError as error:
        return fail(shown, printable(str(error), 2000), codes.TOKENS_UNREADABLE)
    if known is None or known.access_token is None:
        if own:
            return ok(shown, "the hub signs in itself when it connects")
        return fail(shown, f"nobody has signed in yet; run: mcp-hub login {shown}", codes.SIGN_IN_NEEDED)
    return _lasts(shown, known, own=own)


def _lasts(shown: str, known: SignIn, *, own: bool) -> Finding:
    if known.expires_at is None:
        return ok(shown, "signed in")
    left = known.expires_at - time.time()
    renewable = known.refresh_token is not None or own
    if left > 0 and (renewable or left > HOUR):
        return ok(shown, f"signed in for {_span(left)}{', renewed by itself' if renewable else ''}")
    if renewable:
        return ok(shown, "expired, renewed by itself when it is needed")
    when = f"ends in {_span(left)}" if left > 0 else f"has expired {_span(-left)} ago"
    text = f"the sign-in {when}; run: mcp-hub login {shown}"
    return warn(shown, text, codes.SIGN_IN_NEEDED) if left > 0 else fail(shown, text, codes.SIGN_IN_NEEDED)


def _span(seconds: float) -> str:
    if seconds < HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.0f} h" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"
