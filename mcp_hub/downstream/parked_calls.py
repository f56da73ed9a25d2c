"""Calls of modern clients to servers of the handshake era: parked while the client answers the server's questions."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from mcp_hub.downstream import encoded
from mcp_hub.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    CallCancelled,
    CarrierEnded,
    DeadlineExceeded,
    ProtocolError,
    UpstreamAnswered,
)
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call
from mcp_hub.policy.quotas import LARGE, Backlog, QueuedAnswer
from mcp_hub.protocol.era import INPUT_REQUIRED
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.questions import (
    ELICITATION,
    ELICITATION_ID,
    MAX_INPUT_REQUESTS,
    Json,
    Suspendable,
    missing_capability,
)
from mcp_hub.security.callers import Caller

PARKED_SECONDS: Final = 300.0
"""Seconds for which a parked call waits for the client's answer."""
MAX_PARKED: Final = 100
"""Parked calls of one principal."""
MAX_DIGITS: Final = 12
"""The most digits of the time at which a parked call expires, in seconds since 1970."""
PREFIX: Final = "mcp-hub:"
"""Prefix of a `requestState` that a hub has made; all others are made by servers."""

_UNKNOWN: Final = "This call is not known any more. It may have been carried out; start it again."
_OF_ONE_TRY: Final = ("_meta", "requestState", "inputResponses")
"""Members of the params that differ between a request and its retry."""

Act = Callable[[Call], Awaitable[Json]]
Relay = Callable[[Json], None]


class _ParkedCall(msgspec.Struct, eq=False):
    """One running call and its server's questions. It is the call's `Asker`."""

    call: Call
    params: Json
    """The call's params as the client sent them; rules may have replaced those of `call` meanwhile."""
    owner: Caller
    full: Callable[[], bool]
    relay: Relay | None = None
    """Sends progress to the request that is being answered now."""
    log_relay: Relay | None = None
    """Sends log messages to that request."""
    questions: dict[str, tuple[Json, asyncio.Future[Json]]] = msgspec.field(default_factory=dict)
    news: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    suspended: list[Suspendable] = msgspec.field(default_factory=list)
    """The call's suspended deadlines."""
    token: str | None = None
    """Its key among the parked calls; None while it is not parked."""
    expiry: asyncio.TimerHandle | None = None
    capabilities: Json = msgspec.field(default_factory=dict)
    numbers: int = 0
    queue: asyncio.Lock | None = None
    """Held while the call is sent, where calls of its owner go to the server one by one."""
    sending: bool = False
    queued_result: QueuedAnswer | None = None
    """Its result, while that waits for the client to come back."""
    url_error: UpstreamAnswered | None = None
    """The server's error that the client has to visit a URL first; the server has not executed the call."""

    @property
    def parked(self) -> bool:
        """Whether it has open questions (Asker)."""
        return bool(self.questions)

    async def wait_for_turn(self) -> None:
        """Waits until each call before this one has ended or is parked (Asker)."""
        if self.queue is not None and not self.sending:
            await self.queue.acquire()
            self.sending = True

    def must_visit(self, error: UpstreamAnswered) -> bool:
        """Turns the URLs in an error that demands to visit them into questions.

        Returns False if it is another error, if the client cannot visit URLs, or if too many of its calls are parked.
        """
        data = error.error.get("data")
        raw_elicitations = data.get("elicitations") if isinstance(data, dict) else None
        elicitations = (
            [elicitation for elicitation in raw_elicitations if isinstance(elicitation, dict)]
            if isinstance(raw_elicitations, list)
            else []
        )
        can_visit = missing_capability(self.capabilities, ELICITATION, {"mode": "url"}) is None
        if error.code != URL_ELICITATION_REQUIRED or not can_visit or not 0 < len(elicitations) <= MAX_INPUT_REQUESTS:
            return False
        if self.full():
            return False
        self.url_error = error
        self.call.deadlines.clear()  # the attempt that they belong to is over
        for elicitation in elicitations:
            self._put(ELICITATION, elicitation)
        return True

    def yield_turn(self) -> None:
        """Lets the next call of the owner be sent."""
        if self.queue is not None and self.sending:
            self.sending = False
            self.queue.release()

    async def ask(self, method: str, params: Json) -> Json:
        """Asks the client and returns its answer (Asker).

        Raises ProtocolError if too many calls are parked, CarrierEnded if the call ends before the answer.
        """
        if self.full():
            raise ProtocolError(INVALID_REQUEST, f"{MAX_PARKED} calls of this client wait for its answers already.")
        key, future = self._put(method, params)
        self.news.set()
        try:
            return await future
        finally:
            self.questions.pop(key, None)

    def abandon_questions(self) -> None:
        """Gives back the questions that the client will not answer with this call, as it has ended."""
        for _, future in self.questions.values():
            if not future.done():
                future.set_exception(CarrierEnded())
        self.questions.clear()

    def _put(self, method: str, params: Json) -> tuple[str, asyncio.Future[Json]]:
        self.numbers += 1
        key = f"q{self.numbers}"
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        request: Json = {"method": method, "params": {k: v for k, v in params.items() if k != ELICITATION_ID}}
        self.questions[key] = (request, future)
        return key, future

    def hear(self, message: Json) -> None:
        """Does nothing: log messages go through `Call.on_message`."""

    def notify(self, method: str, params: Json) -> None:
        """Does nothing: the modern era has no notifications outside of a request."""

    def progress(self, params: Json) -> None:
        if self.relay is not None:
            self.relay(params)

    def message(self, params: Json) -> None:
        if self.log_relay is not None:
            self.log_relay(params)

    def stop_clocks(self) -> None:
        for scope in self.call.deadlines:
            scope.suspend()
            self.suspended.append(scope)

    def start_clocks(self) -> None:
        for scope in self.suspended:
            scope.resume()
        self.suspended.clear()


def _is_same(parked: _ParkedCall, retry: Call) -> bool:
    """Returns whether a retry is the request that was parked, with the same method, name and arguments."""
    call = parked.call
    first, second = (
        {name: value for name, value in params.items() if name not in _OF_ONE_TRY and value != {}}
        for params in (parked.params, retry.params)
    )
    return (call.method, call.route, call.within, first) == (retry.method, retry.route, retry.within, second)


def _has_expired(token: str) -> bool:
    """Returns whether the time of a parked call is over, by its token."""
    end = token.rpartition(".")[2]
    return end.isascii() and end.isdecimal() and len(end) <= MAX_DIGITS and time.time() >= int(end)


class UnreachableRespondent(msgspec.Struct, frozen=True):
    """A modern client outside of its calls: its capabilities are known, but it cannot be asked (Asker)."""

    capabilities: Json

    @property
    def parked(self) -> None:
        """Always None: outside of its calls, a client has no call that could be parked."""

    async def wait_for_turn(self) -> None:
        """Returns at once: there is no call whose turn to wait for."""

    async def ask(self, method: str, params: Json) -> Json:
        """Refuses the question. Raises ProtocolError."""
        raise ProtocolError(INVALID_REQUEST, f"{method} needs exactly one running call of this client to carry it.")

    def hear(self, message: Json) -> None:
        """Does nothing: a modern client gets log messages only for its own requests."""

    def notify(self, method: str, params: Json) -> None:
        """Does nothing: the modern era has no notifications outside of a request."""


class ParkedCalls:
    """Runs calls whose servers may ask the client, and parks them while the client answers.

    `act(call)` executes a call. `one_by_one(call)` returns whether calls of one owner go to its server one by one. A
    `requestState` is valid for its owner and for this run of the hub only.
    """

    def __init__(self, act: Act, one_by_one: Callable[[Call], bool], backlog: Backlog) -> None:
        self._act = act
        self._backlog = backlog
        self._one_by_one = one_by_one
        self._queues: WeakValueDictionary[tuple[str, Caller], asyncio.Lock] = WeakValueDictionary()
        self.run = secrets.token_urlsafe(9)
        """Names this run of the hub in a `requestState`; among several replicas, the replica."""
        self._parked: dict[str, tuple[_ParkedCall, asyncio.Future[Json]]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    @staticmethod
    def owns(state: str) -> bool:
        """Returns whether a `requestState` was made by a hub, this one or another."""
        return state.startswith(PREFIX)

    async def begin(self, call: Call, relay: Relay | None) -> Json:
        """Executes a call; returns its result, or the questions of its server as an `input_required` result."""
        owner = call.caller
        parked = _ParkedCall(call, call.params, owner, lambda: self._count(owner) >= MAX_PARKED, relay)
        parked.capabilities = call.envelope.capabilities
        parked.log_relay = call.on_message
        call.on_message = parked.message
        call.asker = parked
        if self._one_by_one(call):
            parked.queue = self._queues.setdefault((call.route.upstream, owner), asyncio.Lock())
        call.on_progress = parked.progress if relay is not None else None
        return await self._next(parked, self._start(parked))

    async def resume(self, state: str, retry: Call, answers: Any) -> Json:
        """Resumes a parked call by its client's retry; `answers` are the client's results by key.

        The retry must be the same request. Nobody on the way may see another call than the one that is executed.

        Raises CallCancelled for a state of another run of the hub, DeadlineExceeded for one that has expired,
        ProtocolError for another request; then the call stays parked.
        """
        owner = retry.caller
        run, _, token = state.removeprefix(PREFIX).partition(":")
        entry = self._parked.get(token) if run == self.run else None
        if entry is None or entry[0].owner is not owner:
            if run == self.run and _has_expired(token):
                raise DeadlineExceeded(f"The answer came more than {PARKED_SECONDS:.0f} s after the question.")
            raise CallCancelled(_UNKNOWN)
        if not isinstance(answers, dict):
            raise ProtocolError(INVALID_PARAMS, "params.inputResponses must be an object.")
        parked, task = entry
        large = weighs_more(retry.params)
        if not (await in_thread(_is_same, parked, retry) if large else _is_same(parked, retry)):
            raise ProtocolError(INVALID_PARAMS, "params.requestState belongs to a request with other params.")
        if self._parked.pop(token, None) is None:  # it has expired, or another retry was first
            raise CallCancelled(_UNKNOWN)
        owner.active -= 1
        parked.queued_result = parked.token = None
        if parked.expiry is not None:
            parked.expiry.cancel()
        parked.relay, parked.log_relay = retry.on_progress, retry.on_message
        parked.start_clocks()
        if parked.url_error is not None:
            parked, task = self._retry_after_visit(parked, answers)
        for key, (_, future) in list(parked.questions.items()):
            answer = answers.get(key)
            if isinstance(answer, dict) and not future.done():
                future.set_result(answer)
                del parked.questions[key]
        return await self._next(parked, task)

    async def _next(self, parked: _ParkedCall, task: asyncio.Future[Json]) -> Json:
        """Waits for the end of the call or a question, whichever comes first."""
        try:
            while not task.done() and not parked.questions:
                parked.news.clear()
                news_task = asyncio.ensure_future(parked.news.wait())
                futures: set[asyncio.Future[Any]] = {task, news_task}
                try:
                    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news_task.cancel()
        except asyncio.CancelledError:
            task.cancel()
            parked.abandon_questions()
            raise
        if not task.done():
            return self._park(parked, task)
        parked.abandon_questions()
        try:
            return task.result()
        except UpstreamAnswered as error:
            if not parked.must_visit(error):
                raise
            return self._park(parked, task)

    def _retry_after_visit(self, parked: _ParkedCall, answers: Json) -> tuple[_ParkedCall, asyncio.Future[Json]]:
        """Sends the call again, which was not executed, after the client has visited every URL.

        Raises the server's error, UpstreamAnswered, if the client has not.
        """
        error, parked.url_error = parked.url_error, None
        visits = [answers.get(key) for key in parked.questions]
        parked.questions.clear()
        if error is not None and not all(
            isinstance(visit, dict) and visit.get("action") == "accept" for visit in visits
        ):
            raise error
        return parked, self._start(parked)

    def _start(self, parked: _ParkedCall) -> asyncio.Task[Json]:
        task = asyncio.ensure_future(self._act(parked.call))
        task.add_done_callback(partial(self._on_end, parked))
        return task

    def _park(self, parked: _ParkedCall, task: asyncio.Future[Json]) -> Json:
        # The token names its end, so that no expired call has to be remembered: a client deceives only itself with it.
        parked.token = token = f"{secrets.token_urlsafe(18)}.{int(time.time() + PARKED_SECONDS)}"
        self._parked[token] = (parked, task)
        parked.owner.active += 1
        parked.relay = parked.log_relay = None
        parked.yield_turn()
        parked.stop_clocks()
        parked.expiry = asyncio.get_running_loop().call_later(PARKED_SECONDS, self._expire, token)
        requests = {key: request for key, (request, _) in parked.questions.items()}
        return {"resultType": INPUT_REQUIRED, "inputRequests": requests, "requestState": f"{PREFIX}{self.run}:{token}"}

    def _on_end(self, parked: _ParkedCall, task: asyncio.Future[Json]) -> None:
        """Counts the result of a call that has ended while it is parked among the bytes that wait for its client."""
        parked.yield_turn()
        token = parked.token
        if token is None or task.cancelled() or task.exception() is not None:  # also marks it as retrieved
            return
        if (size := len(encoded(task.result()))) < LARGE:
            return
        share = self._backlog.of(parked.owner)
        if (refusal := share.refusal(size)) is None:
            parked.queued_result = QueuedAnswer(size)
            share.watch(parked.queued_result)
            return
        failure: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        failure.set_exception(refusal)
        failure.exception()  # marks it as retrieved
        self._parked[token] = parked, failure

    def _expire(self, token: str) -> None:
        parked, task = self._parked.pop(token)
        parked.owner.active -= 1
        parked.token = None
        task.cancel()
        parked.abandon_questions()

    def _count(self, owner: Caller) -> int:
        return sum(parked.owner is owner for parked, _ in self._parked.values())

    def close(self) -> None:
        """Cancels all parked calls; their servers are told."""
        for token in list(self._parked):
            parked, _ = self._parked[token]
            if parked.expiry is not None:
                parked.expiry.cancel()
            self._expire(token)
