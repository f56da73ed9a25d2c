"""Call attribution: finds the client that caused a server's request or log message. Uncertain ones are refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from mcp_hub.catalog import resource_uris
from mcp_hub.catalog.exposed_ids import UnchangedUris, UriTranslator
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
from mcp_hub.security import ANONYMOUS
from mcp_hub.security.counters import InFlight
from mcp_hub.security.lru import Lru
from mcp_hub.transport.background import set_within
from mcp_hub.transport.peer import Cause

CARRIER_WAIT: Final = 5.0
"""Seconds a question waits until its caller has no more open requests than questions, so that each carries its own."""
CLIENT_WAIT: Final = 1.0
"""Seconds a connection waits for the only client to introduce itself with its era and capabilities."""
MAX_CLIENTS: Final = 10_000
"""Clients that are registered before the oldest principal, which never leaves, is forgotten."""
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
    """The clients that servers may ask, by the key of their calls. None is the key of the only client, on stdio.

    `expected`: whether the hub serves such an only client, so that it makes sense to wait for it. `uris` translates
    URIs between clients and servers; `sees(key, server)` says whether anything of a server is visible to a client.
    """

    def __init__(
        self,
        *,
        expected: bool,
        uris: UriTranslator | None = None,
        sees: Callable[[Hashable | None, str], bool] = lambda key, server: True,
    ) -> None:
        self.expected = expected
        self.uris: UriTranslator = uris or UnchangedUris()
        self._sees = sees
        self._askers: dict[Hashable | None, Asker] = {}
        self.shown_roots: dict[str, set[str]] = {}
        """Server -> the URIs of clients' roots that it was told, at most MAX_CLIENTS."""
        self._introduced = asyncio.Event()
        self._sole_era: Era | None = None

    def introduce(self, key: Hashable | None, asker: Asker | None, era: Era) -> None:
        """Registers a client and its Asker; None: the client is connected, but can be asked only within a call."""
        if asker is not None:
            self._askers.pop(key, None)
            self._askers[key] = asker  # the newest is the last
            if len(self._askers) > MAX_CLIENTS:
                self._askers.pop(next((key for key in self._askers if isinstance(key, str)), key))
        if key is None:
            self._sole_era = era
            self._introduced.set()

    def forget(self, key: Hashable | None) -> None:
        """Removes a client that is gone."""
        self._askers.pop(key, None)

    def note_roots(self, server: str, roots: Any) -> None:
        """Notes the roots that a server was told."""
        shown = self.shown_roots.setdefault(server, set())
        for root in roots if isinstance(roots, list) else ():
            if isinstance(root, dict) and isinstance(uri := root.get("uri"), str) and len(shown) < MAX_CLIENTS:
                shown.add(uri)

    def hear(self, message: Json, server: str, key: Hashable | None) -> None:
        """Passes a server's log message that belongs to no call on to a client, if the server is visible to it."""
        asker = self._askers.get(key)
        if asker is not None and self._sees(key, server):
            asker.hear(message)

    def of(self, key: Hashable | None) -> Asker | None:
        """Returns the Asker of a client; None if it cannot be asked."""
        return self._askers.get(key)

    async def shared_capabilities(self, server: Server) -> Json:
        """Returns the capabilities to declare on a shared session.

        They are those of the only client, if there is one, else all that the entry allows, and apps.
        """
        rules = rules_of(server)
        if not self.expected:
            return {} if server.session == "client" else declared_for_all(server)
        await self._sole_introduced()
        return rules.filter_capabilities(self._declared(None))

    async def own_capabilities(self, server: Server, key: Hashable | None) -> Json:
        """Returns the capabilities to declare on a session that belongs to one client alone."""
        return (
            await self.shared_capabilities(server)
            if key is None
            else rules_of(server).filter_capabilities(self._declared(key))
        )

    def _declared(self, key: Hashable | None) -> Json:
        asker = self._askers.get(key)
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


_NO_CALLER: Final = object()
_SEVERAL_CALLERS: Final = object()


class _AnonymousProgram(NamedTuple):
    """One of the programs that share the anonymous key."""

    key: Hashable | None
    program: str


class AttributedCall(Cause):
    """A call on a session. It runs within its `with` block, and perhaps longer if it is given up there."""

    key: Hashable | None
    client: Hashable | None
    """Whose call it is: its key, or an `_AnonymousProgram`."""
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

    `key` is the session's client; None if the hub has only one client, or the session serves several. `shared` says
    whether other clients may cause messages on this session, too.
    """

    def __init__(self, server: Server, key: Hashable | None, clients: ClientRegistry, *, shared: bool) -> None:
        self._server = server
        self._key = key
        self._clients = clients
        self._shared = shared
        self._rules = rules_of(server)
        self.running: list[AttributedCall] = []
        self._given_up = InFlight[Hashable | None]()
        """Calls that the server may still work on although nobody waits for them, by caller."""
        self._sole_caller: Hashable | None = _NO_CALLER if shared else key
        """The only caller that this session has ever served. A message may come late, so after a second caller only
        messages on the stream of a call can be attributed."""
        self.elicitations = UrlElicitations(server.id)
        self.first_roots = FirstRoots() if server.origin == "mcp" else None
        """None: the hub's own server, which asks for nothing."""
        self.carriers_changed = asyncio.Event()
        """Set when a call has ended or is parked, or a question comes: then each may have one call to carry it."""
        self._waiting_count = 0
        """Questions that wait for that."""

    def call(
        self,
        key: Hashable | None,
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
        if key != self._sole_caller:
            self.add_caller(key)
        client = _AnonymousProgram(key, program) if program and key == ANONYMOUS else key
        return AttributedCall(key, client, asker, on_log, questions, self)

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

    def add_caller(self, key: Hashable | None) -> None:
        """Notes that the session serves this client from now on."""
        if key != self._key:
            self._shared = True  # a user of the live page, in addition to the only client over stdio
        if self._shared:
            self._sole_caller = key if self._sole_caller in (_NO_CALLER, key) else _SEVERAL_CALLERS

    def given_up(self, key: Hashable | None) -> None:
        """Notes that a call of this client has ended without an answer, so that the server may still work on it."""
        full = len(self._given_up) >= MAX_GIVEN_UP and key not in self._given_up
        self._given_up[_SEVERAL_CALLERS if full else key] += 1

    def answered_late(self, key: Hashable | None) -> None:
        """Notes that the server has answered a call of this client that was given up."""
        self._given_up.leave(key)

    @property
    def _callers(self) -> set[Hashable | None]:
        """The callers whose calls the server may be working on."""
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
        if self._sole_caller in (_NO_CALLER, _SEVERAL_CALLERS) or (cause is not None and self._shared):
            return
        if len(self._callers) > 1:
            return  # several anonymous programs
        handlers = [call.on_log for call in self.running if call.on_log is not None]
        if handlers and (len(self.running) == 1 or self._sole_caller is None):
            handlers[-1](message)
        else:
            self._clients.hear(message, self._server.id, self._sole_caller)

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
        caller = cause if isinstance(cause, AttributedCall) and cause.asker is not None else None
        questions = self._questions(caller)
        self._rules.check_allowed(method, questions)
        callers = self._callers
        while True:
            if caller is None and (cause is None or not self._shared):
                await self._wait_for_carriers()
            # The question was there before whoever has begun to call since then.
            key, asker = self._asker(method, cause, callers) if caller is None else (caller.key, caller.asker)
            assert asker is not None
            questions = self._questions(caller)
            sent, entry = self._rules.admit(method, params, asker.capabilities, questions)
            asyncio.get_running_loop().call_soon(self.carriers_changed.set)  # by then the call is parked, if it can be
            exposed = partial(self._clients.uris.exposed, key, self._server.id)
            sent = resource_uris.in_question(method, self.elicitations.register(sent, asker), exposed)
            try:
                answer = await questions.answer_of(asker, method, sent, entry)
            except CarrierEnded:
                if caller is not None:
                    raise ProtocolError(INVALID_REQUEST, f"The call that caused this {method} has ended.") from None
                continue  # it was a question of another call
            return resource_uris.in_answer(answer, partial(self._clients.uris.original, key, self._server.id))

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

    def _questions(self, caller: AttributedCall | None) -> CallQuestions:
        """Returns the record in which a question is counted: that of its call, if the call is known.

        Otherwise it is the record of any running call that may ask more, if all calls have the same caller. If no call
        has a record, it is a new one.
        """
        calls = [caller] if caller else self.running if len(self._callers) == 1 else []
        records = [call.questions for call in calls if call.questions is not None]
        default = records[0] if records else CallQuestions()
        return next((record for record in records if record.count < self._rules.limit), default)

    def _too_many_carriers(self) -> bool:
        """Returns whether a modern caller has more open requests than there are questions that wait for one."""
        open_count = sum(call.asker is not None and call.asker.parked is False for call in self.running)
        return len(self._callers) == 1 and open_count > self._waiting_count

    def _asker(self, method: str, cause: Cause | None, callers: set[Hashable | None]) -> tuple[Hashable | None, Asker]:
        """Returns the key and the Asker of the client to ask. Raises ProtocolError if the client is uncertain.

        Args:
            callers: those whose calls the server may have been working on when it asked.
        """
        session_asker = self._clients.of(self._key) if self._sole_caller is not _SEVERAL_CALLERS else None
        unknown = ProtocolError(INVALID_REQUEST, f"This {method} cannot be attributed to one client, so it is refused.")
        if self._shared and cause is not None:
            raise unknown
        keys = callers | self._callers
        if len(keys) == 1:
            (client,) = keys
            key = client.key if isinstance(client, _AnonymousProgram) else client
            askers = [call.asker for call in self.running]
            open_askers = [asker for asker in askers if asker is None or not asker.parked]
            if len(open_askers) == 1 and open_askers[0] is not None:
                return key, open_askers[0]  # on the stream of the call that caused it
            parked = next((asker for asker in reversed(askers) if asker is not None and asker.parked), None)
            if parked is not None and not open_askers:
                return key, parked  # its next request answers the first question, and its result carries this one
            # A parked call may have been abandoned, so an open one comes first.
            carriers = [asker for asker in open_askers if asker is not None and asker.parked is False]
            any_asker = next((asker for asker in (*carriers, session_asker, *open_askers, *askers) if asker), None)
            if any_asker is not None:
                return key, any_asker
        if not keys and session_asker is not None:
            return self._key, session_asker
        raise unknown
