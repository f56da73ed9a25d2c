"""The event streams of sessions: kept in the store, so that another replica can continue them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.downstream import error_response
from mcp_hub.downstream.event_stream import KEEP_ALIVE
from mcp_hub.errors import CallError
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.replica_keys import ReplicaKeys
from mcp_hub.store.stored_stream import LOOK_EVERY, StoredEvent, StoredStream
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.sse_codec import COMMENT, encode_event

MAX_ID: Final = 80
"""The most characters of an event id."""
MAX_DIGITS: Final = 18
"""The most digits of its numbers: the store refuses those above 64 bits."""


class EventId(NamedTuple):
    """The id of an event: the replica that has written it first, its stream, and its number there."""

    replica: str
    stream: int
    number: int

    @classmethod
    def of(cls, text: str) -> EventId | None:
        """Reads an id; None if no replica has made it."""
        replica, _, remainder = text.partition(".")
        stream, _, number = remainder.partition("-")
        numbers = (stream, number)
        if len(text) > MAX_ID or any(len(part) > MAX_DIGITS for part in numbers):
            return None
        if not all(part.isascii() and part.isdecimal() for part in numbers):
            return None
        return cls(replica, int(stream), int(number))


class SessionEvents:
    """Keeps the events that this replica writes for one session (EventKeeper).

    `owned()` returns whether this replica still has the session's standing stream.
    """

    def __init__(
        self,
        store: Store,
        keys: Callable[[], ReplicaKeys],
        session: str,
        replica: str,
        owned: Callable[[], Awaitable[bool]],
    ) -> None:
        self._is_owned = owned
        self._store = store
        self._keys = keys
        self._session = session
        self._replica = replica
        self.prefix = f"{replica}."

    def _stream(self, number: int) -> StoredStream:
        return StoredStream(self._store, self._keys, f"{self._session}:{self._replica}:{number}")

    async def begin(self, stream: int, asked: Any) -> None:
        """Keeps `asked`, the request or batch that a stream answers."""
        with suppress(StoreUnavailable):
            await self._stream(stream).begin(encode(_requests_of(asked)))

    async def keep(self, stream: int, number: int, data: bytes | None) -> bool:
        """Keeps an event; `data` None ends the stream. Returns False if another replica has taken over the stream."""
        if not stream and not await self._is_owned():
            return False
        with suppress(StoreUnavailable):
            await self._stream(stream).append(number, data)
        return True


class ReplicaLost(CallError):
    """The replica that answered a request is gone. The call may have been executed."""

    code, rpc_code, retryable = "session_restarted", -32010, True


_BROKEN_OFF: Final = (
    "The replica that carried out this call is gone. It may have been carried out; it is not sent again."
)


def stream_of(store: Store, keys: Callable[[], ReplicaKeys], session: str, event: EventId) -> StoredStream:
    """Returns the stream of a session to which an event belongs."""
    return StoredStream(store, keys, f"{session}:{event.replica}:{event.stream}")


async def rest_of(stream: StoredStream, last: EventId) -> list[bytes] | None:
    """Returns the messages of a stream after an event, as far as they are kept; None if they are not.

    Raises StoreUnavailable.
    """
    messages: list[bytes] = []
    after = last.number
    while events := await stream.read(after):
        messages += [event.data for event in events if event.data is not None]
        after = events[-1].number
    return messages if events is not None else None


async def write_rest(
    request: HttpRequest, reply: HttpReply, stream: StoredStream, last: EventId, lives: Callable[[], bool]
) -> bool:
    """Writes another replica's stream after the event `last`, as it grows; returns False if that is not kept any more.

    If that replica dies before the stream ends (`lives()` is false), its open requests are answered with an error.
    Raises StoreUnavailable before anything is written, and ClientGone.
    """
    after, idle_seconds = last.number, 0.0
    was_alive, events = lives(), await stream.read(after)
    if events is None or (not events and not after and await stream.requests() is None):
        return False
    await reply.start()
    while not request.disconnected:
        for event in events:
            if event.data is None:
                await reply.end()
                return True
            await reply.write(encode_event(event.data, id=f"{last.replica}.{last.stream}-{event.number}"))
            after, idle_seconds = event.number, 0.0
        if not events and not was_alive:
            events = await _end_with_errors(stream, after)
            continue
        if not events:
            await asyncio.sleep(LOOK_EVERY)
            idle_seconds += LOOK_EVERY
            if idle_seconds >= KEEP_ALIVE:
                idle_seconds = 0.0
                await reply.write(COMMENT)
        try:
            was_alive, events = lives(), await stream.read(after) or []
        except StoreUnavailable:
            reply.give_up()  # the client comes back with its last event
            raise ClientGone from None
    return True


async def _end_with_errors(stream: StoredStream, after: int) -> list[StoredEvent]:
    """Ends a stream whose replica is gone with errors for the requests that it has not answered."""
    try:
        requests = msgspec.convert(
            decode(await stream.requests() or b"[]"), list[tuple[str | int, str | None, str | None]]
        )
    except (FrameError, msgspec.ValidationError):
        requests = []
    answered_ids = {id for event in await stream.all_events() for id in _answered_ids(event.data)}
    unanswered = [request for request in requests if encode(request[0]) not in answered_ids]
    answers = [
        error_response(request[0], ReplicaLost(_BROKEN_OFF), request[1], {"name": request[2]}) for request in unanswered
    ]
    number = after + 1
    for answer in answers:
        await stream.append(number, encode(answer))
        number += 1
    await stream.append(number, None)
    return await stream.read(after) or [StoredEvent(number, None)]


def _answered_ids(data: bytes | None) -> set[bytes]:
    """Returns the ids, as JSON, of the requests that an event answers: one, or those of a batch."""
    try:
        content = decode(data or b"{}")
    except FrameError:
        return set()
    messages = content if isinstance(content, list) else [content]
    return {
        encode(message["id"])
        for message in messages
        if isinstance(message, dict) and "id" in message and "method" not in message
    }


def _requests_of(payload: Any) -> list[list[Any]]:
    """Returns id, method and name of each request in what a stream answers."""
    messages = payload if isinstance(payload, list) else [payload]
    requests = []
    for message in messages:
        if isinstance(message, dict) and "id" in message:
            params = message.get("params")
            name = params.get("name") if isinstance(params, dict) else None
            requests.append([message["id"], message.get("method"), name if isinstance(name, str) else None])
    return requests
