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
    findings = [finding for server in servers if (finding := _finding(server, store)) is not None]
    return Section("Sign-ins", tuple(findings or [ok("sign-ins", "no server is signed in to")]))


def _finding(server: Server, store: TokenStore) -> Finding | None:
    """Returns the finding on one server; None for a server without a sign-in."""
    entry = server if server.oauth is not None else with_sign_in(server)
    if entry is None or entry.oauth is None or (server.oauth is None and store.stamp(entry) is None):
        return None
    about = printable(server.id, 100)
    is_automatic = entry.oauth.grant == "client_credentials"
    try:
        sign_in = store.load(entry)
    except TokenStoreError as error:
        return fail(about, printable(str(error), 2000), codes.TOKENS_UNREADABLE)
    if sign_in is None or sign_in.access_token is None:
        if is_automatic:
            return ok(about, "the hub signs in itself when it connects")
        return fail(about, f"nobody has signed in yet; run: mcp-hub login {about}", codes.SIGN_IN_NEEDED)
    return _validity(about, sign_in, is_automatic=is_automatic)


def _validity(about: str, sign_in: SignIn, *, is_automatic: bool) -> Finding:
    if sign_in.expires_at is None:
        return ok(about, "signed in")
    remaining = sign_in.expires_at - time.time()
    renewable = sign_in.refresh_token is not None or is_automatic
    if remaining > 0 and (renewable or remaining > HOUR):
        return ok(about, f"signed in for {_span(remaining)}{', renewed by itself' if renewable else ''}")
    if renewable:
        return ok(about, "expired, renewed by itself when it is needed")
    end_text = f"ends in {_span(remaining)}" if remaining > 0 else f"has expired {_span(-remaining)} ago"
    text = f"the sign-in {end_text}; run: mcp-hub login {about}"
    return warn(about, text, codes.SIGN_IN_NEEDED) if remaining > 0 else fail(about, text, codes.SIGN_IN_NEEDED)


def _span(seconds: float) -> str:
    if seconds < HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.0f} h" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"
