"""HTTP/1.1 without I/O: the states of both halves of a connection, and the parsing of what the other side sends.

`theirs` is the half that is read, `ours` the one that is written. One of them carries requests, the other responses;
`REQUESTS` and `RESPONSES` are their transitions. The connection can carry another exchange once both are DONE.
`receive` takes bytes, httptools parses them, and a sink gets the heads and bodies.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final, Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpRequestParser,
    HttpResponseParser,
)

from mcp_hub.transport.http1.client_response import NotHttp
from mcp_hub.transport.http1.heads import MAX_HEAD, BadHead, HeaderLines, RequestHead, RequestHeadCache

log = logging.getLogger("mcp_hub.downstream")

IDLE: Final = "IDLE"  # no exchange is under way
HEAD: Final = "HEAD"  # a request's head is incomplete; or a response is due and its head is incomplete
BODY: Final = "BODY"  # the head is complete; the rest ends by its length, by chunks, or with the connection
DONE: Final = "DONE"  # the message is complete
MUST_CLOSE: Final = "MUST_CLOSE"  # no further message is accepted
SWITCHED: Final = "SWITCHED"  # the connection continues in another protocol
ERROR: Final = "ERROR"  # the bytes are not valid HTTP

ASKED: Final = "ASKED"  # the head of a request was sent: a response is due
BEGIN: Final = "BEGIN"  # a message begins; also each `1xx`, and a request parsed again without its offer to upgrade
HEADED: Final = "HEADED"  # a head is complete
WHOLE: Final = "WHOLE"  # a request was sent or read as a whole
END: Final = "END"  # a message is complete; it may be a response that was sent as a whole
LAST: Final = "LAST"  # a message is complete, and no other can follow
SWITCH: Final = "SWITCH"  # a response with status 101 is complete
NEXT: Final = "NEXT"  # both halves are DONE
BREAK: Final = "BREAK"  # bytes are refused, because they are invalid or were not requested
STOP: Final = "STOP"  # nothing more is read

Table = dict[str, dict[str, str]]
REQUESTS: Final[Table] = {
    IDLE: {BEGIN: HEAD, WHOLE: DONE, BREAK: ERROR, STOP: MUST_CLOSE},
    HEAD: {BEGIN: HEAD, HEADED: BODY, BREAK: ERROR, STOP: MUST_CLOSE},
    BODY: {END: DONE, LAST: MUST_CLOSE, BREAK: ERROR, STOP: MUST_CLOSE},
    DONE: {NEXT: IDLE, BEGIN: HEAD, BREAK: ERROR, STOP: MUST_CLOSE},
    MUST_CLOSE: {BEGIN: MUST_CLOSE, BREAK: MUST_CLOSE, STOP: MUST_CLOSE},
    ERROR: {BREAK: ERROR, STOP: ERROR},
}
"""The next state of the half that carries requests, by state and event. A BEGIN in DONE is a pipelined request."""
RESPONSES: Final[Table] = {
    IDLE: {ASKED: HEAD, BREAK: ERROR, STOP: MUST_CLOSE},
    HEAD: {ASKED: HEAD, BEGIN: HEAD, HEADED: BODY, END: DONE, LAST: MUST_CLOSE, BREAK: ERROR, STOP: MUST_CLOSE},
    BODY: {ASKED: BODY, END: DONE, LAST: MUST_CLOSE, SWITCH: SWITCHED, BREAK: ERROR, STOP: MUST_CLOSE},
    DONE: {NEXT: IDLE, ASKED: HEAD, BEGIN: MUST_CLOSE, BREAK: MUST_CLOSE, STOP: MUST_CLOSE},
    MUST_CLOSE: {BEGIN: MUST_CLOSE, BREAK: MUST_CLOSE, STOP: MUST_CLOSE},
    SWITCHED: {BREAK: SWITCHED, STOP: SWITCHED},
    ERROR: {BREAK: ERROR, STOP: ERROR},
}
"""The same for the half that carries responses. An unrequested response is ignored and ends the connection."""

VERSIONS: Final = frozenset({"1.1", "1.0"})
"""The versions that are accepted. The parser also accepts HTTP/0.9 and HTTP/2.0, whose messages look different."""
MAX_FIELDS: Final = 128
"""Headers of one response."""
LINE: Final = 16
"""Bytes that count for a header line of a response beside its name and value."""
_BODILESS: Final = frozenset({101, 204, 304})


class MessageSink(Protocol):
    """Receives the rest of a message after its head."""

    def body_received(self, piece: bytes) -> None:
        """Takes a piece of the body."""

    def message_ended(self) -> None:
        """Takes note that the message is complete."""


class RequestSink(MessageSink, Protocol):
    """Receives the requests that a RequestMachine reads."""

    def request_begun(self, head: RequestHead, length: int | None, *, keep: bool, chunks: bool, expects: bool) -> None:
        """Takes the head of a request, and its Content-Length.

        `keep`: another request may follow. `chunks`: the client understands chunks. `expects`: it awaits a `100`.
        """


class ResponseSink(MessageSink, Protocol):
    """Receives the responses that a ResponseMachine reads."""

    def response_begun(self, status: int, fields: HeaderLines, first: dict[bytes, bytes]) -> None:
        """Takes the head of a response. `first`: the first value of each header name."""


class MessageMachine:
    """The base of the machines of both sides."""

    __slots__ = ("_end", "_lines", "_parser", "_sink", "_unfinished", "ours", "theirs")
    _parser: HttpRequestParser | HttpResponseParser
    read: ClassVar[Table]
    written: ClassVar[Table]

    def __init__(self, sink: MessageSink) -> None:
        self.theirs: str = IDLE
        self.ours: str = IDLE
        self._sink = sink
        self._lines: HeaderLines = []
        self._end: str = END
        """The event at the end of the message that is being read: END, LAST or SWITCH."""
        self._unfinished = 0
        """Bytes received since the parser last reported anything."""

    @property
    def under_way(self) -> bool:
        """Whether a message is being read and is incomplete."""
        return self.theirs is HEAD or self.theirs is BODY

    @property
    def shut(self) -> bool:
        """Whether nothing more is read."""
        return self.theirs is MUST_CLOSE or self.theirs is ERROR or self.theirs is SWITCHED

    def start_next_cycle(self) -> bool:
        """Becomes IDLE if both halves are DONE; returns whether they were."""
        if self.theirs is not DONE or self.ours is not DONE:
            return False
        self.theirs, self.ours = self.read[DONE][NEXT], self.written[DONE][NEXT]
        return True

    def stop(self) -> None:
        """Notes that nothing more is read."""
        self.theirs = self.read[self.theirs][STOP]

    def close(self) -> None:
        """Stops reading and drops the parser and the sink, which refer back to the machine: this breaks the cycles."""
        self.stop()
        del self._parser, self._sink

    def on_body(self, piece: bytes) -> None:
        """Passes a piece of the body to the sink (callback of the parser)."""
        self._unfinished = 0
        if self.theirs is BODY:
            self._sink.body_received(piece)

    def on_message_complete(self) -> None:
        """Reports the end of a message to the sink (callback of the parser), but not the end of a `1xx`."""
        if self.theirs is BODY:
            self._unfinished = 0
            self.theirs = self.read[BODY][self._end]
            self._sink.message_ended()


class RequestMachine(MessageMachine):
    """The machine of the server: it reads requests."""

    __slots__ = ("_heads", "_length", "_target")
    read, written = REQUESTS, RESPONSES
    _parser: HttpRequestParser
    _sink: RequestSink

    def __init__(self, sink: RequestSink) -> None:
        super().__init__(sink)
        self._parser = HttpRequestParser(self)
        self._target = b""
        self._heads = RequestHeadCache()
        self._length: int | None = None
        """Content-Length of the head that was read last."""

    @property
    def blank(self) -> bool:
        """Whether only blank lines came since the end of the last message."""
        return self._unfinished > 0 and not self.under_way

    @property
    def version(self) -> str:
        """The HTTP version of the last head."""
        return self._parser.get_http_version()

    def receive(self, data: bytes | memoryview) -> None:
        """Reads bytes of the client. Raises BadHead for a request that is refused; nothing is read after it."""
        was_idle, unparsed = self.theirs is IDLE, data
        while True:
            self._unfinished += len(unparsed)
            try:
                self._parser.feed_data(unparsed)
                break
            except HttpParserUpgrade as upgrade:
                if self.shut:
                    return  # these bytes follow the last request
                unparsed = self._without_offer() + bytes(unparsed[upgrade.args[0] :])
            except HttpParserError as error:
                self._break(error)
                return
        if self._unfinished > MAX_HEAD and self.under_way:
            self.fail()
            raise BadHead("the head, or what is around the body, is too large", 431, "head_too_large")
        if was_idle and self.theirs is DONE and isinstance(data, bytes):
            self._heads.learn(data, self._length)

    def take_known(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """Returns head and body of a whole request whose head is in the cache. None: nothing was read.

        The machine must be IDLE.
        """
        match = self._heads.known(data)
        if match is not None:
            self.theirs = REQUESTS[self.theirs][WHOLE]
            self.ours = RESPONSES[self.ours][ASKED]
        return match

    def _break(self, error: HttpParserError) -> None:
        self.fail()
        if self.theirs is MUST_CLOSE:
            return  # these bytes follow the last request
        cause = error.__context__
        if isinstance(cause, BadHead):
            raise BadHead(str(cause), cause.status, cause.cause) from None  # `cause` would refer to itself here
        if isinstance(error, HttpParserCallbackError):
            log.error("a request failed in the parser's callbacks", exc_info=cause)
        raise BadHead(str(error)) from None

    def _without_offer(self) -> bytes:
        """Returns the head without its `Upgrade`, to be parsed again: httptools does not continue after an upgrade.

        Raises BadHead if there is none, as in CONNECT.
        """
        method = self._parser.get_method()
        lines = [line for line in self._lines if line[0] != b"upgrade"]
        if method == b"CONNECT" or len(lines) == len(self._lines):
            self.fail()
            raise BadHead("the connection cannot become a tunnel")
        target, version = self._target, self._parser.get_http_version().encode()
        self._parser = HttpRequestParser(self)
        self._lines = []
        text = b"".join(b"%b: %b\r\n" % line for line in lines)
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version, text)

    # --- what the connection does -----------------------------------------------------------------------------------

    def responding(self) -> None:
        """Notes that the head of a response was written; its body follows."""
        self.ours = RESPONSES[self.ours][HEADED]

    def note_response(self, *, keep: bool, more: bool) -> None:
        """Notes that a response was written completely. `more`: another request waits for its response."""
        self.ours = RESPONSES[self.ours][END if keep else LAST]
        if not keep:
            self.stop()
        elif more:
            self.ours = RESPONSES[self.ours][ASKED]
        elif self.theirs is DONE:
            self.theirs, self.ours = REQUESTS[DONE][NEXT], RESPONSES[DONE][NEXT]

    def fail(self) -> None:
        """Notes that the bytes read are refused."""
        self.theirs = REQUESTS[self.theirs][BREAK]

    # --- callbacks of the parser ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begins a head. How many of the current bytes belong to the last message is unknown, so none are counted."""
        self.theirs = REQUESTS[self.theirs][BEGIN]
        self._unfinished = 0
        self._target = b""

    def on_url(self, part: bytes) -> None:
        """Adds a part of the target."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a header line. Trailers after a chunked body are ignored."""
        if self.theirs is HEAD:
            self._lines.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Passes the head of a request to the sink. Raises BadHead."""
        parser = self._parser
        if self.theirs is not HEAD or parser.should_upgrade():
            return
        self._unfinished = 0
        version = parser.get_http_version()
        if version not in VERSIONS:
            raise BadHead("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
        chunks = version == "1.1"
        keep = chunks and parser.should_keep_alive()
        self._end = END if keep else LAST
        lines, self._lines = self._lines, []
        head, self._length = self._heads.head(parser.get_method(), self._target, lines)
        if head.in_chunks and not chunks:
            raise BadHead("HTTP/1.0 has no transfer codings", cause="transfer_encoding")
        expects = chunks and b"100-continue" in [value.lower() for value in head.raw(b"expect")]
        self.theirs = REQUESTS[self.theirs][HEADED]
        self.ours = RESPONSES[self.ours][ASKED]
        self._sink.request_begun(head, self._length, keep=keep, chunks=chunks, expects=expects)


class ResponseMachine(MessageMachine):
    """The machine of the client: it reads responses."""

    __slots__ = ("_head_size", "to_the_end")
    read, written = RESPONSES, REQUESTS
    _parser: HttpResponseParser
    _sink: ResponseSink

    def __init__(self, sink: ResponseSink) -> None:
        super().__init__(sink)
        self._parser = parser = HttpResponseParser(self)
        # Some servers get these wrong, and every client accepts it.
        parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._head_size = 0
        """Bytes of the head, of every `1xx` before it, and of the trailers."""
        self.to_the_end = False
        """Whether the body ends only when the connection is closed."""

    def receive(self, data: bytes) -> None:
        """Reads bytes of the server. Raises NotHttp for an invalid or unrequested response, and then reads no more."""
        if self.theirs is not HEAD and self.theirs is not BODY:
            self._break("it sent bytes that were not requested")
            return
        self._unfinished += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._break(str(error), error.__context__)
            return
        if self._unfinished > MAX_HEAD:
            self._break("its head is too large")

    def _break(self, reason: str, cause: BaseException | None = None) -> None:
        """Raises NotHttp, unless the response is complete already."""
        self.theirs = RESPONSES[self.theirs][BREAK]
        if self.theirs is ERROR:
            raise NotHttp(str(cause) if isinstance(cause, NotHttp) else reason) from None

    # --- what the connection does -----------------------------------------------------------------------------------

    def ask(self, *, whole: bool) -> None:
        """Notes that a request is written. `whole`: with its body; otherwise `note_body_written` follows."""
        transitions = REQUESTS[self.ours]
        self.ours = transitions[WHOLE] if whole else REQUESTS[transitions[BEGIN]][HEADED]
        self.theirs = RESPONSES[self.theirs][ASKED]
        self._head_size = self._unfinished = 0
        self._lines = []

    def note_body_written(self) -> None:
        """Notes that the rest of the request's body was written."""
        self.ours = REQUESTS[self.ours][END]

    # --- callbacks of the parser ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begins a head, or ignores a response that was not requested."""
        self.theirs = RESPONSES[self.theirs][BEGIN]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a header line. Raises NotHttp if there are too many."""
        self._head_size += len(name) + len(value) + LINE
        if self._head_size > MAX_HEAD:
            raise NotHttp("its head is too large")
        if self.theirs is HEAD:
            self._lines.append((name.lower(), value))
            if len(self._lines) > MAX_FIELDS:
                raise NotHttp("it has too many headers")

    def on_headers_complete(self) -> None:
        """Passes the head of a response to the sink, but not that of a `1xx`. Raises NotHttp."""
        if self.theirs is not HEAD:
            return
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in VERSIONS:
            raise NotHttp("it speaks neither HTTP/1.1 nor HTTP/1.0")
        self._unfinished = 0
        lines, self._lines = self._lines, []
        if status < 200 and status != 101:
            self._head_size += LINE
            if self._head_size > MAX_HEAD:
                raise NotHttp("it sent too many 1xx responses")
            return
        first = dict(reversed(lines))
        coding = first.get(b"transfer-encoding")
        if coding is not None:
            count = sum(name == b"transfer-encoding" for name, _ in lines)
            if count > 1 or coding.strip(b" \t").lower() != b"chunked":
                raise NotHttp("its transfer encoding is not just chunked")
        self.to_the_end = coding is None and b"content-length" not in first and status not in _BODILESS
        self._end = SWITCH if status == 101 else END if self._parser.should_keep_alive() else LAST
        self.theirs = RESPONSES[self.theirs][HEADED]
        self._sink.response_begun(status, lines, first)
