"""The event streams of streamable HTTP: reading them, and resuming one over several connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Final

import msgspec

from mcp_hub.protocol.frames import FrameError, Message, decode, has_method, is_noise, number_of, salvage_id
from mcp_hub.transport import FrameTooLarge, LinkError, RequestId, SessionLost, messages_of_batch
from mcp_hub.transport.http1.client_response import HttpResponse
from mcp_hub.transport.http1.pool import is_header
from mcp_hub.transport.http_client import HttpClient, is_json
from mcp_hub.transport.lines import pieces
from mcp_hub.transport.sse_codec import SseEvent, SseParser

log = logging.getLogger("mcp_hub.transport")

LINGER: Final = 1.0
"""Seconds a stream has to end after its response, so that its connection can be reused."""
FIRST_DELAY: Final = 1.0
"""Seconds before a stream is reopened, if the upstream sent no `retry`; doubled for each attempt without an event."""
LEAST_DELAY: Final = 0.05
MAX_DELAY: Final = 30.0
MAX_EVENT_ID: Final = 4096
"""Characters of an event id; with a longer one the stream is opened anew instead of resumed, as servers refuse it."""
_RANDOM: Final = random.Random()


class EventStream(msgspec.Struct):
    """The state of one event stream across reconnections. `request` is None for the standing stream.

    `arrived` counts its events. `retry` is the upstream's, in milliseconds.
    """

    request: RequestId | None
    answered: bool = False
    last_event_id: str | None = None
    retry: int | None = None
    arrived: int = 0

    def delay(self, fruitless: int) -> float:
        """Returns the seconds before the next connection: at least `retry`, at most MAX_DELAY, plus jitter.

        `fruitless`: connections in a row that brought no event.
        """
        first = FIRST_DELAY if self.retry is None else max(self.retry / 1000, LEAST_DELAY)
        return min(first * 2.0 ** min(fruitless, 16), MAX_DELAY) * (1 + _RANDOM.random() / 4)


class UnreadableAnswer(LinkError):
    """An answer is not valid JSON."""

    answered = True


def messages_of(data: bytes | memoryview, stream: EventStream) -> list[Message]:
    """Returns the messages of one JSON text; splits a batch.

    Raises UnreadableAnswer for invalid JSON that may be the answer to the stream's request.
    """
    try:
        value = decode(data)
    except FrameError as error:
        head, tail = bytes(data[:4096]), bytes(data[-4096:])
        may_answer = not has_method(head, tail) and number_of(salvage_id(head, tail)) in (None, stream.request)
        if stream.request is not None and may_answer:
            raise UnreadableAnswer(f"the answer is not valid JSON: {error}") from None
        log.warning("a message that is not valid JSON was dropped")
        return []
    if isinstance(value, dict):
        return [value]
    return [message for message in messages_of_batch(value) if isinstance(message, dict)]


def error_about(error: LinkError, body: bytes, asked: RequestId | None) -> Message | None:
    """Returns the JSON-RPC error in the body of an HTTP error, if it answers the request `asked`.

    One without an id answers it, too, unless it says that the session is lost.
    """
    is_lost = isinstance(error, SessionLost)
    if not is_lost and (type(error) is not LinkError or error.retry_after is not None):
        return None
    try:
        value = decode(body)
    except FrameError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("error"), dict) or "method" in value:
        return None
    request_id = number_of(value.get("id"))
    is_match = (request_id is None and not is_lost) or (request_id == asked and type(request_id) is type(asked))
    return value if is_match else None


class EventReader:
    """Reads the events of an upstream's responses and gives the data of each message to `take(data, stream)`."""

    def __init__(
        self, http: HttpClient, max_frame: int, take: Callable[[bytes | memoryview, EventStream], None]
    ) -> None:
        self._http = http
        self._max_frame = max_frame
        self._take = take

    async def follow(self, response: HttpResponse, stream: EventStream) -> LinkError | None:
        """Reads events until the stream ends, breaks, or has answered its request. Returns the error that broke it.

        Raises FrameTooLarge and UnreadableAnswer, on a request's own stream only.
        """
        parser = SseParser(self._max_frame)
        parser.last_event_id = stream.last_event_id
        try:
            while chunk := await self._http.chunk(response):
                await self._feed(parser, chunk, stream)
                if stream.answered:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LINGER):
                            while chunk := await self._http.chunk(response):
                                await self._feed(parser, chunk, stream)
                    break
        except (FrameTooLarge, UnreadableAnswer):
            raise  # resuming would bring the same message again
        except LinkError as error:
            return error
        finally:
            response.close()
        return None

    async def _feed(self, parser: SseParser, chunk: bytes, stream: EventStream) -> None:
        for piece in pieces(chunk):
            self._feed_piece(parser, piece, stream)
            if piece is not chunk:
                await asyncio.sleep(0)

    def _feed_piece(self, parser: SseParser, piece: bytes, stream: EventStream) -> None:
        for event in parser.feed(piece):
            if isinstance(event, SseEvent):
                self._handle_event(event, stream)
            elif stream.request is not None and not has_method(event.head, event.tail or b""):
                raise self._http.too_large()
            else:
                log.warning("a message that is larger than max_frame and no answer was dropped")
        id = parser.last_event_id or ""
        can_resume = 0 < len(id) <= MAX_EVENT_ID and is_header("last-event-id", id)
        stream.last_event_id = id if can_resume else None
        stream.retry = parser.retry if parser.retry is not None else stream.retry

    def _handle_event(self, event: SseEvent, stream: EventStream) -> None:
        stream.arrived += 1
        if event.event != "message" or not is_json(event.data):
            return
        try:
            self._take(event.data, stream)
        except UnreadableAnswer:
            if not is_noise(bytes(event.data[:4096]), bytes(event.data[-4096:])):
                raise
            log.warning("an event that is not a message was dropped")
