"""The endpoints of the live page: functions of one request of a session, in a table by method and path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from mcp_hub.downstream.page.sessions import PageSession
from mcp_hub.errors import HubError
from mcp_hub.protocol.frames import FrameError, decode_exactly, encode
from mcp_hub.text import printable
from mcp_hub.transport.http1.exchange import BodyTooLarge, BodyTooSlow, HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import is_json
from mcp_hub.transport.sse_codec import encode_event

Json = dict[str, Any]

MAX_BODY: Final = 16 * 1024 * 1024
"""The most bytes of a request of the page, which may have the arguments of a call."""
MAX_MESSAGE: Final = 2000
"""Characters of the message of an error."""
NO_STORE: Final = [(b"cache-control", b"no-store")]


class PageError(HubError):
    """A request of the page that is refused: the HTTP status, a code, what happened, and what to do about it."""

    def __init__(self, status: int, code: str, message: str, cure: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.cure = cure

    @property
    def body(self) -> Json:
        """The body of the response: `{"error": {"code", "message", "cure"}}`."""
        return {
            "error": {"code": self.code, "message": printable(str(self), MAX_MESSAGE), "cure": printable(self.cure)}
        }


async def _always() -> bool:
    return True


class PageRequest(msgspec.Struct, frozen=True):
    """One request of a session of the page. `rest` is what follows the endpoint's path, where that ends with `/`."""

    request: HttpRequest
    reply: HttpReply
    session: PageSession
    rest: str = ""
    still_valid: Callable[[], Awaitable[bool]] = _always
    """Verifies the session again, for what lasts longer than one request."""

    @property
    def query(self) -> dict[str, str]:
        """The query of the URL; of equal names the last counts."""
        return query_of(self.request)

    async def body(self, limit: int = MAX_BODY) -> Json:
        """Returns the JSON object that was sent. Raises PageError."""
        return await json_body(self.request, limit)


def query_of(request: HttpRequest) -> dict[str, str]:
    """Returns the query of a URL; of equal names the last counts. Raises PageError."""
    text = request.query.decode("ascii", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise PageError(400, "query", "The query has more than 100 fields.", "Reload the page.") from None


async def json_body(request: HttpRequest, limit: int) -> Json:
    """Returns the JSON object in the body of a request. Raises PageError."""
    if not is_json(request.values(b"content-type")):
        request.drop()
        raise PageError(415, "not_json", "The request has no JSON body.", "Send Content-Type: application/json.")
    try:
        value = decode_exactly(await request.body(limit))
    except BodyTooLarge:
        text = f"The request is larger than {limit:,} bytes."
        raise PageError(413, "too_large", text, "Send less, or use `mcp-hub call` with @FILE.") from None
    except BodyTooSlow:
        raise PageError(408, "too_slow", "The request did not arrive in time.", "Send it again.") from None
    except FrameError as error:
        raise PageError(400, "not_json", f"The body is not valid JSON: {error}", "Send one JSON object.") from None
    if not isinstance(value, dict):
        raise PageError(400, "not_json", "The body is not a JSON object.", "Send one JSON object.")
    return value


def not_found(subject: str) -> PageError:
    """Returns the error for something that does not exist or is somebody else's; it does not tell which of the two."""
    return PageError(404, "not_found", f"There is no {subject}.", "Reload the page.")


Endpoint = Callable[[PageRequest], Awaitable[Json | None]]
"""Returns the JSON answer; None if it has answered by itself, such as with an event stream. Raises PageError."""


class Part(Protocol):
    """One part of the page, with its endpoints."""

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns endpoints by method and path below `/ui/api`. A path that ends with `/` takes any last part."""


MAX_WINDOW: Final = 300
"""Rows in one answer."""
MAX_WORDS: Final = 200
"""Characters of a filter that are read."""
_NUMBER: Final = re.compile(r"(\d{1,20})")


def window(rows: Sequence[Json], query: Mapping[str, str], filtered: Sequence[str]) -> Json:
    """Returns the rows that a page asks for, with the numbers of all rows and of those that match its filter.

    Args:
        rows: All rows, with equal members.
        query: `text` has words that must all be in a row, `sort` names a member, `down` reverses the order, and
            `first` and `count` say which rows of those that match are wanted.
        filtered: The members that `text` is searched in.
    """
    words = query.get("text", "")[:MAX_WORDS].lower().split()
    matching = [row for row in rows if _has(row, words, filtered)] if words else rows
    member = query.get("sort", "")
    if rows and member in rows[0]:

        def order(row: Json) -> Any:
            return natural_order(row[member])

        matching = sorted(matching, key=order, reverse="down" in query)
    first = number_in(query, "first", 0)
    end = first + min(number_in(query, "count", MAX_WINDOW), MAX_WINDOW)
    return {"rows": list(matching[first:end]), "first": first, "matching": len(matching), "total": len(rows)}


def _has(row: Json, words: Sequence[str], filtered: Sequence[str]) -> bool:
    text = " ".join([str(row[name]) for name in filtered if row[name]]).lower()
    return all(word in text for word in words)


def natural_order(value: Any) -> tuple[bool, Any]:
    """Returns a key that sorts numbers before texts, and texts by their words and numbers: `t2` before `t10`."""
    if isinstance(value, int | float):
        return False, value
    parts = _NUMBER.split(str(value or "").casefold())
    return True, [int(part) if at % 2 else part for at, part in enumerate(parts)]


def number_in(query: Mapping[str, str], name: str, default: int) -> int:
    """Returns a number of a query; the default if there is none."""
    text = query.get(name, "")
    return int(text[:9]) if text.isascii() and text.isdigit() else default


def page_event(name: str, value: Any, id: str | None = None) -> bytes:
    """Returns an event of a stream to the page."""
    return encode_event(encode(value), name, id)
