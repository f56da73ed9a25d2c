"""Whose certificates the hub trusts."""

from __future__ import annotations

import functools
import ssl


@functools.cache
def trusted_certificates() -> ssl.SSLContext:
    """Returns the TLS context for clients, with the certificate authorities of the system, for HTTP/1.1.

    There is one for the process. Loading the authorities takes 50 ms, so the first call belongs in a thread.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
