"""Call attribution: finds the client that caused a server's request or log message. Uncertain ones are refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from mcp_hub.catalog import resource_uris
from mcp_hub.catalog.exposed_ids import UriMap
from mcp_hub.config.models import Server
from mcp_hub.errors import INVALID_REQUEST, METHOD_NOT_FOUND, CarrierEnded, ProtocolError, UpstreamAnswered
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.questions import (
    CAPABILITY,
    ELICITATION_COMPLETE,
    ELICITATION_ID,
    SHOWS_APPS,
    Asker,
    CallQuestions,
    Json,
    QuestionRules,
    forwarded_capabilities,
)
from mcp_hub.security.callers import SOLE, Caller, CallerSlot
from mcp_hub.security.counters import InFlight
from mcp_hub.security.lru import Lru
from mcp_hub.transport.background import set_within
from mcp_hub.transport.peer import Cause

CARRIER_WAIT: Final = 5.0
"""Seconds a question waits until its caller has no more open requests than questions, so that each carries its own."""
CLIENT_WAIT: Final = 1.0
"""Seconds a connection waits for the only client to introduce itself with its era and capabilities."""
MAX_ROOTS: Final = 10_000
"""Roots of clients that are remembered for one server."""
ROOTS_WAIT: Final = 0.1
"""Seconds that a server has to ask for the client's roots, and then to apply them, before its first call."""
ROOTS_ANSWER: Final = 10.0
"""Seconds that a client has to answer this first question; then the calls no longer wait for it."""
ROOTS_PARKED: Final = 600.0
"""The same if the question parks a call of a modern client. It is longer than any call is parked."""
MAX_ELICITATIONS: Final = 1000
"""URL elicitations remembered for one session until they complete; the oldest are forgotten."""
MAX_GIVEN_UP: Final = 1000
"""Callers of one session whose given-up calls are counted apart."""

OnLog = Callable[[Json], None]
"""Takes the params of a log message."""


class ClientRegistry:
    """The clients that servers may ask.

    `expected`: whether the hub serves a sole client, so that it makes sense to wait for it. `uris` translates URIs
    between clients and servers; `sees(caller, server)` says whether anything of a server is visible to a client.
    """

    def __init__(
        self,
        *,
        expected: bool,
        uris: UriMap | None = None,
        sees: Callable[[Caller, str], bool] = lambda caller, server: True,
    ) -> None:
        self.expected = expected
        self.uris = uris or UriMap()
        self._sees = sees
        self._askers = CallerSlot[Asker]()
        self.shown_roots: dict[str, set[str]] = {}
        """Server -> the URIs of clients' roots that it was told, at most MAX_ROOTS."""
        self._introduced = asyncio.Event()
        self._sole_era: Era | None = None

    def introduce(self, caller: Caller, asker: Asker | None, era: Era) -> None:
        """Registers a client and its Asker; None: the client is connected, but can be asked only within a call."""
        if asker is not None:
            self._askers[caller] = asker
        if caller is SOLE:
            self._sole_era = era
            self._introduced.set()

    def note_roots(self, server: str, roots: Any) -> None:
        """Notes the roots that a server was told."""
        shown = self.shown_roots.setdefault(server, set())
        for root in roots if isinstance(roots, list) else ():
            if isinstance(root, dict) and isinstance(uri := root.get("uri"), str) and len(shown) < MAX_ROOTS:
                shown.add(uri)

    def hear(self, message: Json, server: str, caller: Caller) -> None:
        """Passes a server's log message that belongs to no call on to a client, if the server is visible to it."""
        asker = self._askers.get(caller)
        if asker is not None and self._sees(caller, server):
            asker.hear(message)

    def of(self, caller: Caller) -> Asker | None:
        """Returns the Asker of a client; None if it cannot be asked."""
        return self._askers.get(caller)

    async def shared_capabilities(self, server: Server) -> Json:
        """Returns the capabilities to declare on a shared session.

        They are those of the only client, if there is one, else all that the entry allows, and apps.
        """
        rules = rules_of(server)
        if not self.expected:
            return {} if server.session == "client" else declared_for_all(server)
        await self._sole_introduced()
        return rules.filter_capabilities(self._declared(SOLE))

    async def own_capabilities(self, server: Server, caller: Caller) -> Json:
        """Returns the capabilities to declare on a session that belongs to one client alone."""
        if caller is SOLE:
            return await self.shared_capabilities(server)
        return rules_of(server).filter_capabilities(self._declared(caller))

    def _declared(self, caller: Caller) -> Json:
        asker = self._askers.get(caller)
        return forwarded_capabilities(asker.capabilities, "handshake") if asker is not None else {}

    async def sole_era(self) -> Era | None:
        """Waits for the only client and returns its era; None: it did not connect, or there may be several clients."""
        if self.expected:
            await self._sole_introduced()
        return self._sole_era

    async def _sole_introduced(self) -> None:
        await set_within(self._introduced, CLIENT_WAIT)


class UrlElicitations:
    """The URL elicitations of one session. Only the client that was sent to a URL is notified of its completion.

    Clients see the elicitation's id with the server's id as prefix, as two servers may choose the same id.
    """

    def __init__(self, upstream: str) -> None:
        self._prefix = quote(upstream, safe="")
        self._asker_by_id: Lru[str, Asker] = Lru(MAX_ELICITATIONS)

    def register(self, params: Json, asker: Asker) -> Json:
        """Returns the params of an elicitation as its client gets them, and remembers which client that is."""
        original = params.get(ELICITATION_ID)
        if not isinstance(original, str):
            return params
        self._asker_by_id[original] = asker
        return {**params, ELICITATION_ID: self._exposed_id(original)}

    def notify_complete(self, params: dict[str, Any]) -> None:
        """Notifies the client of an elicitation that it is complete."""
        original = params.get(ELICITATION_ID)
        asker = self._asker_by_id.pop(original, None) if isinstance(original, str) else None
        if asker is not None:
            asker.notify(ELICITATION_COMPLETE, {**params, ELICITATION_ID: self._exposed_id(str(original))})

    def _exposed_id(self, original: str) -> str:
        return f"{self._prefix}/{original}"


class FirstRoots:
    """The first question for roots on a new session. Calls wait for it, as its answer may restrict what they reach."""

    def __init__(self) -> None:
        self._due = 0.0
        """`time.monotonic()` until which calls wait."""
        self._ended = asyncio.Event()
        self.is_refused = False
        """Whether the hub had to refuse it, as no call could carry it."""
        self.turn = asyncio.Lock()
        """Held by the call that waits first."""

    def expect(self) -> None:
        """Notes that the server can ask from now on, for the first time or again."""
        if self.is_refused:
            self._ended.clear()
        self._due = max(self._due, time.monotonic() + ROOTS_WAIT)

    @property
    def is_pending(self) -> bool:
        """Whether calls have to wait."""
        return time.monotonic() < self._due

    @contextlib.contextmanager
    def asked(self, seconds: float) -> Iterator[None]:
        """Notes that the server asks, and is answered at the end of the block, for which calls wait these seconds."""
        if self._ended.is_set():  # only the first time counts
            yield
            return
        self._due = time.monotonic() + seconds
        try:
            yield
            self.is_refused = False
        except ProtocolError as error:
            self.is_refused = error.code == INVALID_REQUEST
            raise
        finally:
            self._due = time.monotonic() + ROOTS_WAIT
            self._ended.set()

    async def answered(self) -> bool:
        """Waits until the server is answered, or has not asked in time; returns whether the client has answered it."""
        while self.is_pending and not self._ended.is_set():
            await set_within(self._ended, self._due - time.monotonic())
        return self._ended.is_set() and not self.is_refused


def rules_of(server: Server) -> QuestionRules:
    """Returns the rules of a configured server for its questions."""
    return QuestionRules(server.id, server.allow, server.max_questions)


_SEVERAL: Final = Caller(label="several")
"""Stands for the only caller of a session that has served several."""

_Client = tuple[Caller, str]
"""A caller, and the program that sends its calls where the anonymous principal is several programs, else ""."""


class AttributedCall(Cause):
    """A call on a session. It runs within its `with` block, and perhaps longer if it is given up there."""

    client: _Client
    """Whose call it is."""
    asker: Asker | None
    on_log: OnLog | None
    questions: CallQuestions | None
    session: CallAttribution

    def __enter__(self) -> AttributedCall:
        self.session.running.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.session.running.remove(self)
        self.session.carriers_changed.set()

    def given_up(self) -> None:
        """Notes that the server may still work on it. Nothing of its client is kept but the key."""
        self.asker = self.on_log = self.questions = None
        self.session.given_up(self.client)

    def answered_late(self) -> None:
        """Notes that the server has ended it after all."""
        self.session.answered_late(self.client)


def declared_for_all(server: Server) -> Json:
    """Returns all capabilities that a server is told before its clients are known."""
    return {**rules_of(server).everything(), **SHOWS_APPS}


class CallAttribution:
    """Attributes a server's messages on one session to the calls that run on it.

    `caller` is the session's client; None if the session serves several. A user of the live page may use the session
    of the sole client, too.
    """

    def __init__(self, server: Server, caller: Caller | None, clients: ClientRegistry) -> None:
        self._server = server
        self._caller = caller
        self._clients = clients
        self._shared = caller is None
        self._rules = rules_of(server)
        self.running: list[AttributedCall] = []
        self._given_up = InFlight[_Client]()
        """Calls that the server may still work on although nobody waits for them, by caller."""
        self._only = caller
        """The only caller that this session has ever served; None: none yet. A message may come late, so after a second
        caller, `_SEVERAL`, only messages on the stream of a call can be attributed."""
        self.elicitations = UrlElicitations(server.id)
        self.first_roots = FirstRoots() if server.origin == "mcp" else None
        """None: the hub's own server, which asks for nothing."""
        self.carriers_changed = asyncio.Event()
        """Set when a call has ended or is parked, or a question comes: then each may have one call to carry it."""
        self._waiting_count = 0
        """Questions that wait for that."""

    def call(
        self,
        caller: Caller,
        asker: Asker | None,
        on_log: OnLog | None = None,
        questions: CallQuestions | None = None,
        program: str = "",
    ) -> AttributedCall:
        """Returns the context in which a call of this client runs.

        Args:
            on_log: takes the log messages it causes.
            questions: the record of the questions it causes.
            program: tells apart anonymous clients, which share a session (`Envelope.program`).
        """
        if caller is not self._only:
            self.add_caller(caller)
        return AttributedCall((caller, program if caller.is_several else ""), asker, on_log, questions, self)

    def error_for_caller(
        self, error: UpstreamAnswered, asker: Asker | None, questions: CallQuestions | None
    ) -> UpstreamAnswered:
        """Returns a server's error in the form for its caller. It may list URLs that the user has to visit first.

        Raises:
            ProtocolError: the server may not ask for such a visit.
        """
        admitted = self._rules.admit_visits(error.error, questions or CallQuestions())
        if admitted is error.error:
            return error
        if asker is not None:
            admitted["data"]["elicitations"] = [
                self.elicitations.register(visit, asker) if isinstance(visit, dict) else visit
                for visit in admitted["data"]["elicitations"]
            ]
        return UpstreamAnswered(admitted)

    def add_caller(self, caller: Caller) -> None:
        """Notes that the session serves this client from now on."""
        if caller is not self._caller:
            self._shared = True  # a user of the live page, in addition to the only client over stdio
        if self._shared:
            self._only = caller if self._only in (None, caller) else _SEVERAL

    def given_up(self, client: _Client) -> None:
        """Notes that a call of this client has ended without an answer, so that the server may still work on it."""
        full = len(self._given_up) >= MAX_GIVEN_UP and client not in self._given_up
        self._given_up[(_SEVERAL, "") if full else client] += 1

    def answered_late(self, client: _Client) -> None:
        """Notes that the server has answered a call of this client that was given up."""
        self._given_up.leave(client)

    @property
    def _clients_at_work(self) -> set[_Client]:
        """The clients whose calls the server may be working on."""
        return {call.client for call in self.running} | self._given_up.keys()

    def pass_log(self, message: Json, cause: Cause | None) -> None:
        """Passes a log message on to the client that certainly caused it; drops it if that is uncertain.

        Args:
            cause: the call on whose stream it came; NO_CAUSE if the stream belongs to no call; None if the transport
                has only one stream.
        """
        if isinstance(cause, AttributedCall):
            if cause.on_log is not None:
                cause.on_log(message)
            return
        if self._only is None or self._only is _SEVERAL or (cause is not None and self._shared):
            return
        if len(self._clients_at_work) > 1:
            return  # several anonymous programs
        handlers = [call.on_log for call in self.running if call.on_log is not None]
        if handlers and (len(self.running) == 1 or self._only is SOLE):
            handlers[-1](message)
        else:
            self._clients.hear(message, self._server.id, self._only)

    async def answer(self, method: str, params: Json, cause: Cause | None = None) -> Json:
        """Passes a server's request on to the client that caused it and returns the client's result.

        Args:
            cause: as in `pass_log`.

        Raises:
            ProtocolError: the request is not allowed or its client is uncertain; the server gets this error.
        """
        if method == "ping":
            return {}
        if method not in CAPABILITY:
            raise ProtocolError(METHOD_NOT_FOUND, f"The hub does not offer {method!r} to this server.")
        if CAPABILITY[method] == "roots" and self.first_roots is not None:
            is_carried = any(call.asker is not None and call.asker.parked is not None for call in self.running)
            with self.first_roots.asked(ROOTS_PARKED if is_carried else ROOTS_ANSWER):
                answer = await self._put(method, params, cause)
            self._clients.note_roots(self._server.id, answer.get("roots"))
            return answer
        return await self._put(method, params, cause)

    async def _put(self, method: str, params: Json, cause: Cause | None) -> Json:
        """Passes one of the server's questions on. Raises as `answer`."""
        call = cause if isinstance(cause, AttributedCall) and cause.asker is not None else None
        questions = self._questions(call)
        self._rules.check_allowed(method, questions)
        clients = self._clients_at_work
        while True:
            if call is None and (cause is None or not self._shared):
                await self._wait_for_carriers()
            # The question was there before whoever has begun to call since then.
            caller, asker = self._asker(method, cause, clients) if call is None else (call.client[0], call.asker)
            assert asker is not None
            questions = self._questions(call)
            sent, entry = self._rules.admit(method, params, asker.capabilities, questions)
            asyncio.get_running_loop().call_soon(self.carriers_changed.set)  # by then the call is parked, if it can be
            exposed = partial(self._clients.uris.exposed, caller, self._server.id)
            sent = resource_uris.in_question(method, self.elicitations.register(sent, asker), exposed)
            try:
                answer = await questions.answer_of(asker, method, sent, entry)
            except CarrierEnded:
                if call is not None:
                    raise ProtocolError(INVALID_REQUEST, f"The call that caused this {method} has ended.") from None
                continue  # it was a question of another call
            return resource_uris.in_answer(answer, partial(self._clients.uris.original, caller, self._server.id))

    async def _wait_for_carriers(self) -> None:
        """Waits up to CARRIER_WAIT until no modern caller has more open calls than questions that wait for one."""
        self._waiting_count += 1
        try:
            async with asyncio.timeout(CARRIER_WAIT):
                if self._waiting_count > 1:
                    self.carriers_changed.set()
                    await asyncio.sleep(0)  # the older questions go first, to the older calls
                while self._too_many_carriers():
                    self.carriers_changed.clear()
                    await self.carriers_changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting_count -= 1

    def _questions(self, call: AttributedCall | None) -> CallQuestions:
        """Returns the record in which a question is counted: that of its call, if the call is known.

        Otherwise it is the record of any running call that may ask more, if all calls have the same caller. If no call
        has a record, it is a new one.
        """
        calls = [call] if call else self.running if len(self._clients_at_work) == 1 else []
        records = [call.questions for call in calls if call.questions is not None]
        default = records[0] if records else CallQuestions()
        return next((record for record in records if record.count < self._rules.limit), default)

    def _too_many_carriers(self) -> bool:
        """Returns whether a modern caller has more open requests than there are questions that wait for one."""
        open_count = sum(call.asker is not None and call.asker.parked is False for call in self.running)
        return len(self._clients_at_work) == 1 and open_count > self._waiting_count

    def _asker(self, method: str, cause: Cause | None, clients: set[_Client]) -> tuple[Caller, Asker]:
        """Returns the client to ask and its Asker. Raises ProtocolError if the client is uncertain.

        Args:
            clients: those whose calls the server may have been working on when it asked.
        """
        own = self._caller if self._only is not _SEVERAL else None
        session_asker = self._clients.of(own) if own is not None else None
        unknown = ProtocolError(INVALID_REQUEST, f"This {method} cannot be attributed to one client, so it is refused.")
        if self._shared and cause is not None:
            raise unknown
        clients = clients | self._clients_at_work
        if len(clients) == 1:
            ((caller, _),) = clients
            askers = [call.asker for call in self.running]
            open_askers = [asker for asker in askers if asker is None or not asker.parked]
            if len(open_askers) == 1 and open_askers[0] is not None:
                return caller, open_askers[0]  # on the stream of the call that caused it
            parked = next((asker for asker in reversed(askers) if asker is not None and asker.parked), None)
            if parked is not None and not open_askers:
                return caller, parked  # its next request answers the first question, and its result carries this one
            # A parked call may have been abandoned, so an open one comes first.
            carriers = [asker for asker in open_askers if asker is not None and asker.parked is False]
            any_asker = next((asker for asker in (*carriers, session_asker, *open_askers, *askers) if asker), None)
            if any_asker is not None:
                return caller, any_asker
        if not clients and own is not None and session_asker is not None:
            return own, session_asker
        raise unknown
