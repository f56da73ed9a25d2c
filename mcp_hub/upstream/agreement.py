"""What hub and upstream agree on at the start of a conversation: the era, asked for once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import msgspec

from mcp_hub.config.ancestry import Behind, refused_by
from mcp_hub.config.models import EraPin
from mcp_hub.errors import UpstreamAnswered
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.transport.link import LinkError, LinkLost, Unauthorized
from mcp_hub.transport.peer import Peer
from mcp_hub.upstream.kept import Kept

PROBE_WAIT: Final = 3.0
"""Seconds a server gets to answer `server/discover` before `initialize` is sent behind it. A server that only knows
the handshake answers an error at once; one that says nothing would otherwise cost its whole connect deadline."""

VERSION_HEADER: Final = "MCP-Protocol-Version"


class Agreement(msgspec.Struct, frozen=True):
    """How one upstream is spoken to, and what it said of itself."""

    era: Era
    version: str
    capabilities: dict[str, Any]
    instructions: str | None
    server_info: dict[str, Any]
    told: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the server was told in the handshake that its client can be asked."""
    only: bool = False
    """Whether the server is known to have no other era."""
    behind: Behind = Behind()
    """What it said of itself if it is a hub."""


def agreed_before(kept: Kept) -> Agreement:
    """What an earlier run of the hub has agreed on."""
    era: Era = "modern" if kept.era == "modern" else "handshake"
    return Agreement(era, kept.protocol_version, kept.capabilities, kept.instructions, kept.server_info, only=kept.only)


_Attempt = Callable[[], Coroutine[Any, Any, "Agreement"]]

Offered = Callable[[], Awaitable[dict[str, Any]]]
"""What a client of the hub can be asked, as capabilities."""

Spoken = Callable[[], Awaitable[Era | None]]
"""The era of the client a conversation is for, if it is for one."""


async def nothing() -> dict[str, Any]:
    """No capability at all."""
    return {}


async def anybody() -> Era | None:
    """For nobody in particular."""
    return None


class NoAgreement(Exception):
    """The server speaks no revision the hub knows, or answered the handshake with something else. For the user."""


async def agree(
    peer: Peer,
    pin: EraPin,
    info: dict[str, Any],
    offered: Offered = nothing,
    spoken: Spoken = anybody,
    known: Agreement | None = None,
) -> Agreement:
    """Find the era of a fresh connection and complete its handshake, in which the server is told what is `offered`.

    A server that has both eras is spoken to in that of its client; without one as it was before, at first in the
    modern one. `known` is what was agreed before.

    Raises NoAgreement, LinkError, LeftOut, or UpstreamAnswered when the handshake itself was refused. Not bounded in
    time.
    """
    attempts: dict[Era, _Attempt] = {
        "modern": partial(_discover, peer, info),
        "handshake": partial(_initialize, peer, info, offered),
    }
    if pin != "auto":
        return await attempts[pin]()
    before: Era = known.era if known is not None else "modern"
    first = before if known is not None and known.only else await spoken() or before
    patience = None if known is not None and first == before else PROBE_WAIT
    busy = partial(getattr, peer.link, "signing_in", False)
    return await _first_of(attempts.pop(first), *attempts.values(), patience=patience, busy=busy)


async def _first_of(
    first: _Attempt, second: _Attempt, *, patience: float | None, busy: Callable[[], bool]
) -> Agreement:
    """What the first attempt agrees on; the second is made when it is answered with an error or not soon.

    While the hub is `busy` signing in, the server has not been asked yet. Raises what the last of them raised.
    """
    attempts = [asyncio.ensure_future(first())]
    try:
        done, _ = await asyncio.wait(attempts, timeout=patience)
        while not done and busy():
            done, _ = await asyncio.wait(attempts, timeout=patience)
        if done and _is_answer(attempts[0]):
            return attempts[0].result()
        attempts.append(asyncio.ensure_future(second()))
        # A slow server of both eras answers the first attempt after all; whichever succeeds first is its era.
        for finished in asyncio.as_completed([attempt for attempt in reversed(attempts) if not attempt.done()]):
            with contextlib.suppress(UpstreamAnswered, NoAgreement):
                agreed = await finished
                return msgspec.structs.replace(agreed, only=True) if done else agreed
        return attempts[1].result()
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.wait(attempts)  # unlike awaiting each, it lets a cancellation of this task through
        for attempt in attempts:
            if not attempt.cancelled():
                attempt.exception()  # seen


def _is_answer(attempt: asyncio.Future[Agreement]) -> bool:
    """Whether a finished attempt settles the era; raises what no other attempt could change."""
    error = attempt.exception()
    if error is None:
        return True
    if isinstance(error, Unauthorized | LinkLost):
        raise error
    if isinstance(error, LinkError):
        if error.status is None:
            raise error  # the host is not there: no verdict about the era
        return False
    if isinstance(error, UpstreamAnswered | NoAgreement):
        return False
    raise error


async def _discover(peer: Peer, info: dict[str, Any]) -> Agreement:
    version = eras.LATEST_MODERN
    params = eras.stamped({}, Envelope(version, {}, info))
    headers = {VERSION_HEADER: version, "Mcp-Method": eras.DISCOVER}
    answer = await _answered(peer.request(eras.DISCOVER, params, headers=headers))
    supported = answer.get("supportedVersions")
    mutual = [v for v in eras.MODERN_REVISIONS if isinstance(supported, list) and v in supported]
    if not mutual:
        raise NoAgreement(f"it supports the revisions {supported!r}, the hub {list(eras.MODERN_REVISIONS)!r}")
    meta = answer.get("_meta")
    named = meta.get(eras.SERVER_INFO_KEY) if isinstance(meta, dict) else None
    capabilities, behind = _object(answer.get("capabilities")), Behind.read(answer)
    return Agreement("modern", mutual[-1], capabilities, _text(answer), _object(named), behind=behind)


async def _initialize(peer: Peer, info: dict[str, Any], offered: Offered) -> Agreement:
    told = await offered()
    params = {"protocolVersion": eras.LATEST_HANDSHAKE, "capabilities": told, "clientInfo": info}
    answer = await _answered(peer.request("initialize", params, cancellable=False))
    version = answer.get("protocolVersion")
    if version not in eras.HANDSHAKE_REVISIONS:
        raise NoAgreement(f"it answered `initialize` with the revision {version!r}, which the hub does not know")
    await peer.notify("notifications/initialized", headers={VERSION_HEADER: version})
    capabilities, named = _object(answer.get("capabilities")), _object(answer.get("serverInfo"))
    return Agreement("handshake", version, capabilities, _text(answer), named, told, behind=Behind.read(answer))


async def _answered(request: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    """The result of the first request to a server. Raises LeftOut if it is a hub that refuses this one."""
    try:
        return _object(await request)
    except UpstreamAnswered as error:
        raise refused_by(error) or error from None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(answer: dict[str, Any]) -> str | None:
    instructions = answer.get("instructions")
    return instructions if isinstance(instructions, str) else None
