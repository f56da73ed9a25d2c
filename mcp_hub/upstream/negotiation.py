"""Negotiation with a server on a new connection: the era, the revision, and the capabilities of both sides."""

from __future__ import annotations

import asyncio
import contextlib
import reprlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.ancestry import HubPath, refusal_in
from mcp_hub.config.models import EraPin
from mcp_hub.errors import UpstreamAnswered
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.questions import Json
from mcp_hub.transport import Link, LinkError, LinkLost, Unauthorized
from mcp_hub.transport.peer import Peer
from mcp_hub.upstream.session import VERSION_HEADER, Agreement

PROBE_WAIT: Final = 3.0
"""Seconds a server gets to answer `server/discover` before `initialize` is sent after it. Most servers that only know
the handshake answer with an error at once; one that never answers would otherwise use up the connect deadline."""

ClientCapabilities = Callable[[], Awaitable[Json]]
"""Returns the client capabilities that are declared to the server."""
ClientEra = Callable[[], Awaitable[Era | None]]
"""Returns the era of the client the session is for; None if it is for no client in particular."""


class NoAgreement(Exception):
    """The server speaks no revision that the hub knows. `str()` is for the user."""

    hub_code: Final = codes.NO_COMMON_REVISION


_Attempt = Callable[[], Coroutine[Any, Any, Agreement]]


async def no_capabilities() -> Json:
    """Declares no client capabilities."""
    return {}


async def negotiate(
    peer: Peer,
    pin: EraPin,
    info: Json,
    capabilities: ClientCapabilities,
    client_era: ClientEra,
    previous: Agreement | None,
) -> Agreement:
    """Finds the era of a fresh connection and completes its handshake. Not bounded in time.

    If the server has both eras, the session gets the era of its client; without a client, that of the earlier session,
    or the modern one if there was none.

    Args:
        pin: the only era to try; `auto`: both.
        previous: what was negotiated on an earlier session.

    Raises:
        NoAgreement: the server speaks no revision that the hub knows.
        UpstreamAnswered: the server refused the handshake.
        LinkError: the transport failed.
        LeftOut: the server is a hub that refuses this one.
    """
    modern = asyncio.Event()
    attempts: dict[Era, _Attempt] = {
        "modern": partial(_discover, peer, info, modern),
        "handshake": partial(_initialize, peer, info, capabilities),
    }
    if pin != "auto":
        return await attempts[pin]()
    attempts["handshake"] = partial(_initialize_unless_modern, attempts["handshake"], attempts["modern"])
    if previous is None and not peer.link.is_local and peer.link.sole_era is None and await client_era() == "handshake":
        return await _of_both(attempts["modern"], attempts["handshake"], peer.link, modern)
    previous_era: Era = previous.era if previous is not None else "modern"
    first_era = (
        previous_era
        if previous is not None and previous.only
        else peer.link.sole_era or await client_era() or previous_era
    )
    wait = None if previous is not None and first_era == previous_era else PROBE_WAIT
    return await _first_of(attempts.pop(first_era), *attempts.values(), wait=wait, link=peer.link, modern=modern)


async def _of_both(discover: _Attempt, initialize: _Attempt, link: Link, modern: asyncio.Event) -> Agreement:
    """Agrees with a server over HTTP for a client of the handshake era.

    `server/discover` is sent first, as a server with only the modern era must not get `initialize`. The revisions that
    a server lists do not tell whether it has both eras: servers with both list only the modern ones.
    """
    agreement = await _first_of(discover, initialize, wait=PROBE_WAIT, link=link, modern=modern)
    if agreement.era == "handshake" or agreement.only:
        return agreement
    try:
        return await initialize()
    except (UpstreamAnswered, NoAgreement):
        return agreement
    except LinkError as error:
        if error.status is None:
            raise
        return agreement


async def _first_of(
    first: _Attempt, second: _Attempt, *, wait: float | None, link: Link, modern: asyncio.Event
) -> Agreement:
    """Returns the result of the first attempt; makes the second one when the first fails, or after `wait` seconds.

    It waits longer for the first while the link is signing in, as nothing was sent yet, and once `modern` is set, as
    a modern server needs no `initialize`. Raises the error of the second attempt if both fail.
    """
    attempts = [asyncio.ensure_future(first())]
    try:
        done, _ = await asyncio.wait(attempts, timeout=wait)
        while not done and (link.signing_in or modern.is_set()):
            done, _ = await asyncio.wait(attempts, timeout=wait)
        if done and _is_answer(attempts[0]):
            return attempts[0].result()
        attempts.append(asyncio.ensure_future(second()))
        # A slow server with both eras may still answer the first attempt; the attempt that succeeds first counts.
        for finished in asyncio.as_completed([attempt for attempt in reversed(attempts) if not attempt.done()]):
            with contextlib.suppress(UpstreamAnswered, NoAgreement):
                agreement = await finished
                return msgspec.structs.replace(agreement, only=True) if done else agreement
        return attempts[1].result()
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.wait(attempts)  # unlike awaiting each, it lets a cancellation of this task through
        for attempt in attempts:
            if not attempt.cancelled():
                attempt.exception()  # marks it as retrieved


def _is_answer(attempt: asyncio.Future[Agreement]) -> bool:
    """Returns whether a finished attempt settles the era; raises its error if another attempt would fail, too."""
    error = attempt.exception()
    if error is None:
        return True
    if isinstance(error, Unauthorized | LinkLost):
        raise error
    if isinstance(error, LinkError):
        if error.status is None or error.status == 429 or error.retry_after is not None:
            raise error  # no HTTP response, or one for every request, so nothing is known about the era
        return False
    if isinstance(error, UpstreamAnswered | NoAgreement):
        return False
    raise error


async def _discover(peer: Peer, info: Json, modern: asyncio.Event) -> Agreement:
    """Sends `server/discover`. Sets `modern` once the server has named a modern revision."""
    version, only = eras.LATEST_MODERN, False
    for is_retry in (False, True):
        params = eras.with_envelope({}, Envelope(version, {}, info))
        headers = {VERSION_HEADER: version, "Mcp-Method": eras.DISCOVER}
        try:
            answer = await _first_result(peer.request(eras.DISCOVER, params, headers=headers))
            break
        except UpstreamAnswered as error:
            mutual = _named_by(error, eras.MODERN_REVISIONS)
            if is_retry or not mutual:
                raise
            modern.set()
            version = mutual[-1]
            only = not set(eras.HANDSHAKE_REVISIONS).intersection(error.data["supported"])
    supported = answer.get("supportedVersions")
    mutual = [revision for revision in eras.MODERN_REVISIONS if isinstance(supported, list) and revision in supported]
    if not mutual:
        raise NoAgreement(f"it supports the revisions {reprlib.repr(supported)}, the hub {list(eras.MODERN_REVISIONS)}")
    meta = answer.get("_meta")
    server_info = meta.get(eras.SERVER_INFO_KEY) if isinstance(meta, dict) else None
    server_capabilities, behind = _object(answer.get("capabilities")), HubPath.read(answer)
    instructions = _instructions(answer)
    return Agreement(
        "modern", mutual[-1], server_capabilities, instructions, _object(server_info), only=only, nested_hubs=behind
    )


def _named_by(error: UpstreamAnswered, known: Sequence[str]) -> list[str]:
    """Returns which of the `known` revisions a server says it supports when it refuses another one, oldest first.

    The eras have different codes for that, and servers use others still, so that only `supported` counts.
    """
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return [version for version in known if isinstance(supported, list) and version in supported]


async def _initialize_unless_modern(initialize: _Attempt, discover: _Attempt) -> Agreement:
    """Initializes a server; if it refuses and names modern revisions, discovers it instead."""
    try:
        return await initialize()
    except UpstreamAnswered as error:
        if not _named_by(error, eras.MODERN_REVISIONS):
            raise
        return await discover()


async def _initialize(peer: Peer, info: Json, capabilities: ClientCapabilities) -> Agreement:
    declared = await capabilities()
    params = {"protocolVersion": eras.LATEST_HANDSHAKE, "capabilities": declared, "clientInfo": info}
    headers = {"Mcp-Method": "initialize"}  # servers with both eras may require it on every request
    try:
        answer = await _first_result(peer.request("initialize", params, headers=headers, cancellable=False))
    except UpstreamAnswered as error:
        if not (mutual := _named_by(error, eras.HANDSHAKE_REVISIONS)):
            raise
        params["protocolVersion"] = mutual[-1]
        answer = await _first_result(peer.request("initialize", params, headers=headers, cancellable=False))
    version = answer.get("protocolVersion")
    if version not in eras.HANDSHAKE_REVISIONS:
        text = f"it answered `initialize` with the revision {reprlib.repr(version)}, which the hub does not know"
        raise NoAgreement(text)
    await peer.notify("notifications/initialized", headers={VERSION_HEADER: version})
    server_capabilities, server_info = _object(answer.get("capabilities")), _object(answer.get("serverInfo"))
    return Agreement(
        "handshake",
        version,
        server_capabilities,
        _instructions(answer),
        server_info,
        declared,
        nested_hubs=HubPath.read(answer),
    )


async def _first_result(request: Coroutine[Any, Any, Any]) -> Json:
    """Returns the result of the first request to a server. Raises LeftOut if it is a hub that refuses this one."""
    try:
        return _object(await request)
    except UpstreamAnswered as error:
        raise refusal_in(error) or error from None


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _instructions(answer: Json) -> str | None:
    instructions = answer.get("instructions")
    return instructions if isinstance(instructions, str) else None
