"""Resolves the names of hosts and returns the addresses that the rules allow to be dialled."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.transport.egress import PROXIED_LOOKUP

_LOOKUPS: Final = 64
"""Most names resolved at the same time. A name server that hangs blocks a thread for half a minute."""


class RequestRefused(Exception):
    """The rules forbid a request. `code` is one of the hub's error codes, `str()` is the message for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CheckedLookups:
    """Look-ups by the rules about addresses, on threads of their own, so that nothing else waits for a name server."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="lookup")

    async def addresses_of(
        self, host: str, port: int, *, proxied: bool = False, seconds: float | None = None
    ) -> list[str]:
        """Resolves a host and returns the addresses that may be dialled, at least one.

        `proxied`: another proxy dials. It may know names that do not resolve here; for those, the list is empty.

        Raises RequestRefused, whose message names the setting, if none may be dialled; OSError or UnicodeError if the
        host does not resolve, TimeoutError if it does not within `seconds`.
        """
        try:
            async with asyncio.timeout(PROXIED_LOOKUP if proxied else seconds):
                addresses = await asyncio.get_running_loop().run_in_executor(self._threads, _resolve, host, port)
        except (OSError, UnicodeError):
            if not proxied:
                raise
            if (refusal := self._rules.refused_name(host, port)) is not None:
                raise RequestRefused("guard_blocked", refusal) from None
            return []
        refusals = {address: self._rules.refused(host, address, port) for address in addresses}
        allowed = [address for address, refusal in refusals.items() if refusal is None]
        if not allowed:
            reason = next((refusal for refusal in refusals.values() if refusal), "the name has no address")
            raise RequestRefused("guard_blocked", reason)
        return allowed

    def close(self) -> None:
        """Cancels pending look-ups without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _resolve(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
