"""The modern era over HTTP: every POST stands alone, its headers repeat what its body says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mcp_hub.downstream.answers import Answers
from mcp_hub.downstream.callers import MAX_IN_FLIGHT, Caller
from mcp_hub.downstream.http import EVENTS, Reply, Request
from mcp_hub.downstream.jsonrpc import Shape, refuse, refuse_with
from mcp_hub.errors import INVALID_REQUEST, Overloaded
from mcp_hub.protocol import era as eras
from mcp_hub.protocol import routing_headers
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import TOOLS

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.security.principals import Principal


def is_modern(message: Message) -> bool:
    """Whether a message can only be of the modern era, whatever its headers say."""
    method = message.get("method")
    return eras.is_modern(message.get("params")) or (isinstance(method, str) and method in eras.MODERN_ONLY)


class Modern:
    """Takes the POSTs of the modern era."""

    def __init__(self, dispatcher: Dispatcher, answers: Answers) -> None:
        self._dispatcher = dispatcher
        self._answers = answers
        self._running: Counter[str] = Counter()

    async def take(self, request: Request, reply: Reply, principal: Principal, message: Message, shape: Shape) -> None:
        """Answer one message."""
        if shape == "notification":
            # None means anything here: cancelling is closing the response, and an id that others can guess must not
            # cancel their requests.
            await reply.whole(202)
        elif shape == "response":
            await refuse(reply, 400, INVALID_REQUEST, "No request was sent that this could answer.")
        else:
            await self._request(request, reply, principal, message)

    async def _request(self, request: Request, reply: Reply, principal: Principal, message: Message) -> None:
        request_id = message["id"]
        streams = request.accepts(EVENTS)
        if message["method"] == eras.LISTEN and not streams:
            await refuse(reply, 406, INVALID_REQUEST, "Accept must allow text/event-stream.", request_id)
            return
        fault = routing_headers.check(request.head.text, message, self._schema(message, principal))
        if fault is not None:
            await refuse_with(reply, eras.HTTP_STATUS.get(fault.code, 400), fault, request_id)
            return
        if self._running[principal] >= MAX_IN_FLIGHT:
            error = Overloaded(f"{MAX_IN_FLIGHT} requests are running already.", retry_after=1.0)
            await refuse_with(reply, 503, error, request_id, [(b"retry-after", b"1")])
            return
        # A caller of its own: two clients of one principal may use the same id at the same time.
        caller = Caller(principal, _unreachable)
        self._running[principal] += 1
        try:
            await self._answers.deliver(
                request,
                reply,
                lambda send: self._answers.one(caller, message, send),
                message,
                self._dispatcher.backlog.of(principal),
                streams=streams,
                status=_status,
                request_id=request_id,
            )
        finally:
            self._running[principal] -= 1

    def _schema(self, message: Message, principal: Principal) -> Any:
        """The input schema of the tool called; None where there is none to check headers with."""
        params = message.get("params")
        name = params.get("name") if message["method"] == "tools/call" and isinstance(params, dict) else None
        entry = self._dispatcher.hub.entry(TOOLS, name, principal) if isinstance(name, str) else None
        return entry.get("inputSchema") if isinstance(entry, dict) else None


def _status(answer: Message) -> int:
    error = answer.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return eras.HTTP_STATUS.get(code, 200) if isinstance(code, int) else 200


def _unreachable(message: Message) -> None:
    """The modern era has no way to a client outside of its requests."""
