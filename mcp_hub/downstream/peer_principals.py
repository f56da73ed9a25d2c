"""Finds the principal that a connection itself proves, by the user id at a Unix socket or by a client certificate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.listen import UNIX, Listen
from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.transport.http1.peers import CertifiedPeer, Peer, UnixPeer

_PROXY_HEADERS: Final = frozenset({b"forwarded", b"via", b"x-real-ip"})
"""Headers that only proxies add, besides those that begin with `X-Forwarded-`."""

Unproven = Literal["uid", "forwarded", "certificate", "certificate_ended"]
"""Why the identity that a connection proves is not accepted."""


class PeerPrincipals:
    """Finds the principal that a connection proves, for one listener."""

    def __init__(self, listen: Listen, *, own_uid: int | None = None, now: Callable[[], float] = time.time) -> None:
        """`own_uid`: the user of the hub; None: that of the process. `now` returns seconds of the epoch."""
        self._own_uid = own_uid if own_uid is not None else os.getuid() if hasattr(os, "getuid") else None
        self._now = now
        self._behind_proxy = bool(listen.public_host) or UNIX in listen.trusted_proxies
        """Whether connections over a Unix socket come from a reverse proxy, whose user id proves nothing."""
        self._by_name = {} if listen.tls is None or listen.tls.client_ca is None else dict(_names_of(listen))

    @property
    def principals(self) -> Iterable[Principal]:
        """The principals that a certificate can prove."""
        return self._by_name.values()

    def of(self, peer: Peer | None, headers: Iterable[tuple[bytes, bytes]]) -> Principal | Unproven | None:
        """Returns the principal that a connection proves, or why it is not accepted; None if it proves nothing.

        The anonymous principal is the user who runs the hub.
        """
        if isinstance(peer, UnixPeer):
            if self._own_uid is None or peer.uid != self._own_uid:
                return "uid"
            return "forwarded" if self._behind_proxy or any(shows_proxy(name) for name, _ in headers) else ANONYMOUS
        if isinstance(peer, CertifiedPeer):
            principals = {self._by_name[name] for name in peer.names if name in self._by_name}
            if len(principals) != 1:
                return "certificate"
            return principals.pop() if self._now() < peer.until else "certificate_ended"
        return None


def shows_proxy(name: bytes) -> bool:
    """Returns whether only proxies add a header of this name."""
    return name in _PROXY_HEADERS or name.startswith(b"x-forwarded-")


def _names_of(listen: Listen) -> Iterator[tuple[str, Principal]]:
    for name, settings in listen.principals.items():
        for alias in settings.certificate or (name,):
            yield _normalized(alias), Principal(name, settings.profile, label=name)


def _normalized(name: str) -> str:
    """Normalises a name as those of certificates are: DNS names to lower case."""
    return name if ":" in name or "@" in name else name.lower()


def check_certificates(listen: Listen) -> CodedText | None:
    """Returns what is wrong with the settings of client certificates, as a text for the user; None if nothing is."""
    by_certificate = listen.tls is not None and listen.tls.client_ca is not None
    if by_certificate and not listen.principals:
        text = "listen.tls.client_ca lets nobody in: name who has a certificate in listen.principals"
        return CodedText(text, codes.VALUE_WRONG)
    owners: dict[str, str] = {}
    for name, settings in listen.principals.items():
        if settings.certificate and not by_certificate:
            text = (
                f"listen.principals.{name}.certificate needs listen.tls.client_ca, which says whose certificates count"
            )
            return CodedText(text, codes.VALUE_WRONG)
        if settings.token is None and not by_certificate:
            text = f"listen.principals.{name}.token is missing: set it, or listen.tls.client_ca for its certificate"
            return CodedText(text, codes.TOKEN_MISSING)
        for alias in map(_normalized, settings.certificate or (name,)) if by_certificate else ():
            if owners.setdefault(alias, name) != name:
                text = f"listen.principals: {owners[alias]} and {name} have the same certificate, {alias}"
                return CodedText(text, codes.VALUE_WRONG)
    return None
