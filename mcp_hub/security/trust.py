"""Whose certificates the hub trusts."""

from __future__ import annotations

import functools
import ssl


@functools.cache
def trusted_certificates() -> ssl.SSLContext:
    """TLS for clients, with the authorities of the system and HTTP/1.1.

    One for the process: loading the authorities takes 50 ms, so the first call belongs in a thread.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
