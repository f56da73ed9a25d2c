"""What hub and upstream agree on at the start of a conversation: the era, asked for once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp_hub import era as eras
from mcp_hub.config.models import EraPin
from mcp_hub.era import Envelope, Era
from mcp_hub.errors import UNSUPPORTED_PROTOCOL_VERSION, UpstreamAnswered
from mcp_hub.wire.link import LinkError, LinkLost, Unauthorized
from mcp_hub.wire.peer import Peer

PROBE_WAIT: Final = 3.0
"""Seconds a server gets to answer `server/discover` before `initialize` is sent behind it. A server that only knows
the handshake answers an error at once; one that says nothing would otherwise cost its whole connect deadline."""

VERSION_HEADER: Final = "MCP-Protocol-Version"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one upstream is spoken to, and what it said of itself."""

    era: Era
    version: str
    capabilities: dict[str, Any]
    instructions: str | None
    server_info: dict[str, Any]


Offered = Callable[[], Awaitable[dict[str, Any]]]
"""What a client of the hub can be asked, as capabilities."""


async def nothing() -> dict[str, Any]:
    """No capability at all."""
    return {}


class NoAgreement(Exception):
    """The server speaks no revision the hub knows, or answered the handshake with something else. For the user."""


async def agree(peer: Peer, pin: EraPin, info: dict[str, Any], offered: Offered = nothing) -> Agreement:
    """Find the era of a fresh connection and complete its handshake, in which the server is told what is `offered`.

    Raises NoAgreement, LinkError, or UpstreamAnswered when the handshake itself was refused. Not bounded in time.
    """
    if pin == "handshake":
        try:
            return await _initialize(peer, info, offered)
        except UpstreamAnswered as error:
            if error.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            return await _discover(peer, info)  # it was remembered as a handshake server and has moved on
    if pin == "modern":
        return await _discover(peer, info)
    return await _probe(peer, info, offered)


async def _probe(peer: Peer, info: dict[str, Any], offered: Offered) -> Agreement:
    probe = asyncio.ensure_future(_discover(peer, info))
    handshake: asyncio.Future[Agreement] | None = None
    try:
        done, _ = await asyncio.wait({probe}, timeout=PROBE_WAIT)
        if done and _is_answer(probe):
            return probe.result()
        handshake = asyncio.ensure_future(_initialize(peer, info, offered))
        # A slow dual-era server answers the probe first after all; whichever succeeds first is its era.
        for finished in asyncio.as_completed([task for task in (handshake, probe) if not task.done()]):
            with contextlib.suppress(UpstreamAnswered, NoAgreement):
                return await finished
        return handshake.result()
    finally:
        for task in (probe, handshake):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task


def _is_answer(probe: asyncio.Future[Agreement]) -> bool:
    """Whether a finished probe settles the era; raises what no handshake could change."""
    error = probe.exception()
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
    answer = _object(await peer.request(eras.DISCOVER, params, headers=headers))
    supported = answer.get("supportedVersions")
    mutual = [v for v in eras.MODERN_REVISIONS if isinstance(supported, list) and v in supported]
    if not mutual:
        raise NoAgreement(f"it supports the revisions {supported!r}, the hub {list(eras.MODERN_REVISIONS)!r}")
    meta = answer.get("_meta")
    named = meta.get(eras.SERVER_INFO_KEY) if isinstance(meta, dict) else None
    return Agreement("modern", mutual[-1], _object(answer.get("capabilities")), _text(answer), _object(named))


async def _initialize(peer: Peer, info: dict[str, Any], offered: Offered) -> Agreement:
    params = {"protocolVersion": eras.LATEST_HANDSHAKE, "capabilities": await offered(), "clientInfo": info}
    answer = _object(await peer.request("initialize", params, cancellable=False))
    version = answer.get("protocolVersion")
    if version not in eras.HANDSHAKE_REVISIONS:
        raise NoAgreement(f"it answered `initialize` with the revision {version!r}, which the hub does not know")
    await peer.notify("notifications/initialized", headers={VERSION_HEADER: version})
    capabilities, named = _object(answer.get("capabilities")), _object(answer.get("serverInfo"))
    return Agreement("handshake", version, capabilities, _text(answer), named)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(answer: dict[str, Any]) -> str | None:
    instructions = answer.get("instructions")
    return instructions if isinstance(instructions, str) else None
