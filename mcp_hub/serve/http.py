"""One HTTP request and its reply over ASGI: bounded bodies, whole answers, event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from mcp_hub.errors import HubError
from mcp_hub.wire.frames import encode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]
HeaderLines = list[tuple[bytes, bytes]]

BODY_DEADLINE: Final = 60.0
"""Seconds a client may take for a whole body, so that a trickle ends: 70 KB/s for the largest default body."""
STALLED_AFTER: Final = 120.0
"""Seconds a client may leave a full send buffer unread before its stream is given up."""

ABORT: Final = "mcp_hub.abort"
"""Extension of the ASGI scope: `{"call": f}`, where `f()` drops the connection; ASGI itself has no word for that."""

BLANKS: Final = " \t"
"""What may stand around a header's value and is no part of it; Python's own idea of blanks has more."""

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
PLAIN: Final = b"text/plain; charset=utf-8"


class ClientGone(HubError):
    """The connection ended; there is nobody to answer."""


class BodyTooLarge(HubError):
    """The body passes its limit. What has come of it so far is thrown away."""


class BodyTooSlow(HubError):
    """The body was not complete at its deadline."""


class Request:
    """The receiving half of one exchange."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.root_path: str = scope.get("root_path", "")
        self.query: bytes = scope.get("query_string", b"")
        self.headers: HeaderLines = list(scope["headers"])
        server = scope.get("server")
        self.port: int | None = server[1] if server else None
        """Of the listener's own socket, never from the client's words."""
        self._receive = receive

    def values(self, name: bytes) -> list[str]:
        """Every line of one header (name in lower case), in order."""
        return [value.decode("latin-1").strip(BLANKS) for key, value in self.headers if key == name]

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge, BodyTooSlow and ClientGone."""
        declared = self.values(b"content-length")
        if any(length.isdigit() and int(length[:20]) > limit for length in declared):
            raise BodyTooLarge
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_DEADLINE):
                while True:
                    event = await self._receive()
                    if event["type"] != "http.request":
                        raise ClientGone
                    body += event.get("body", b"")
                    if len(body) > limit:
                        raise BodyTooLarge
                    if not event.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise BodyTooSlow from None

    async def gone(self) -> None:
        """Return when the client has closed the connection; the body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Reply:
    """The sending half: either `whole`, or `start` and then `write` until `end`."""

    def __init__(self, send: SendEvent, abort: Callable[[], None] | None = None) -> None:
        self._send = send
        self._abort = abort
        self.started = False
        self.streams = False
        """Whether what was started is an event stream."""
        self.extra: HeaderLines = []
        """Lines that whatever is answered carries."""

    async def whole(
        self, status: int, body: bytes = b"", kind: bytes = PLAIN, headers: HeaderLines | None = None
    ) -> None:
        """A complete answer. Without a body it has no Content-Type either."""
        lines = [(b"content-type", kind), (b"x-content-type-options", b"nosniff")] if body else []
        if status != 204:
            lines.append((b"content-length", b"%d" % len(body)))
        self.started = True
        lines = [*lines, *(headers or []), *self.extra]
        await self._send({"type": "http.response.start", "status": status, "headers": lines})
        await self._send({"type": "http.response.body", "body": body})

    async def text(self, status: int, text: str, headers: HeaderLines | None = None) -> None:
        """A complete answer for a person."""
        await self.whole(status, text.encode() + b"\n", PLAIN, headers)

    async def json(self, status: int, value: Any, headers: HeaderLines | None = None) -> None:
        """A complete answer for a program."""
        await self.whole(status, encode(value), JSON, headers)

    async def start(self, headers: HeaderLines | None = None) -> None:
        """Begin an event stream."""
        self.started = self.streams = True
        lines = [
            (b"content-type", EVENTS),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
            *(headers or []),
            *self.extra,
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": lines})

    async def write(self, data: bytes) -> None:
        """More of an event stream; waits while the client does not read. Raises ClientGone when it never does."""
        try:
            async with asyncio.timeout(STALLED_AFTER):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self.give_up()
            await asyncio.sleep(0)  # lets the server see that the connection is lost; else it logs an error
            raise ClientGone from None

    def give_up(self) -> None:
        """Drop the connection with what is in its buffers; closing it would wait for them to be read."""
        if self._abort is not None:
            self._abort()

    async def end(self) -> None:
        """The end of an event stream."""
        await self._send({"type": "http.response.body", "body": b""})


def accepts(values: list[str], *, kind: bytes) -> bool:
    """Whether the lines of an Accept header allow `kind` (`type/subtype`); no such header allows everything."""
    if not values:
        return True
    wanted = kind.decode()
    ranges = (wanted, wanted.partition("/")[0] + "/*", "*/*")
    best: tuple[int, bool] | None = None
    for item in ",".join(values).split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name in ranges:
            refused = any(_is_zero(parameter) for parameter in parameters)
            found = (ranges.index(name), not refused)
            best = found if best is None or found[0] < best[0] else best  # the closest range decides
    return best is not None and best[1]


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip() in ("0", "0.", "0.0", "0.00", "0.000")


def is_json(values: list[str]) -> bool:
    """Whether Content-Type is said exactly once and is JSON, whatever its parameters."""
    return len(values) == 1 and values[0].partition(";")[0].strip().lower() == JSON.decode()
