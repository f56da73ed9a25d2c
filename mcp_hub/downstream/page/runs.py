"""Runs tools from the page: the page is a client of its own, whose user answers the questions of servers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.downstream import Connection, Respondent, not_delivered
from mcp_hub.downstream.page.endpoints import NO_STORE, Endpoint, Json, PageError, PageRequest, not_found, page_event
from mcp_hub.downstream.page.safe_json import bounded
from mcp_hub.downstream.page.static_files import CONFINED
from mcp_hub.observability.stalls import in_thread
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.protocol.questions import SERVER_KEY
from mcp_hub.security import Principal
from mcp_hub.security.callers import Caller
from mcp_hub.transport.background import set_within
from mcp_hub.transport.http1.exchange import ClientGone
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page.sessions import PageSession
    from mcp_hub.downstream.page.tool_list import ToolsPart
    from mcp_hub.policy import Call

CLIENT: Final = {"name": "mcp-hub page", "version": VERSION}
"""The client info of the page, for servers and records."""
CAPABILITIES: Final[Json] = {"elicitation": {"form": {}, "url": {}}}
MAX_RUNS: Final = 4
"""Runs of one session at the same time. Browsers have six connections, of which events and answers need two."""
HEARTBEAT: Final = 15.0
"""Seconds after which a silent stream gets a comment, and the session of any stream is verified again."""
PAUSE: Final = 0.1
"""Seconds between two events of progress; only the newest progress of that time is sent."""
MAX_ANSWER: Final = 1024 * 1024
"""Bytes of the answer to a question."""
ACTIONS: Final = ("accept", "decline", "cancel")


class Question(msgspec.Struct, eq=False):
    """A question of a server that waits for its answer in the page."""

    id: str
    """Its id in the page, which nobody can guess."""
    run: ToolRun
    request: Message
    answered: bool = False

    @property
    def event(self) -> Json:
        """The data of the event that shows it on the page."""
        raw_params = self.request.get("params")
        params: Json = raw_params if isinstance(raw_params, dict) else {}
        meta = params.get("_meta")
        server = meta.get(SERVER_KEY) if isinstance(meta, dict) else None
        facts = {"id": self.id, "server": server, "message": params.get("message", "")}
        if params.get("mode") == "url":
            return {**facts, "mode": "url", "url": params.get("url")}
        return {**facts, "mode": "form", "schema": params.get("requestedSchema", {})}

    def give(self, action: str, content: Any) -> None:
        """Answers the question."""
        self.answered = True
        has_content = action == "accept" and isinstance(content, dict)
        result = {"action": action, **({"content": content} if has_content else {})}
        connection = self.run.connection
        connection.take_answer({"jsonrpc": "2.0", "id": self.request["id"], "result": result})


class RunsPart:
    """Serves `POST /run` and `POST /answer`. A run is an ordinary call: the same rules, records, limits and deadlines.

    It is cancelled when its HTTP request or the session of its page ends.
    """

    def __init__(self, dispatcher: Dispatcher, tools: ToolsPart) -> None:
        self._dispatcher = dispatcher
        self._tools = tools
        self._connections: dict[tuple[PageSession, tuple[str, str | None]], Connection] = {}
        self._questions: dict[str, Question] = {}
        self._last_id = 0

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns both endpoints."""
        return {("POST", "/run"): self.run, ("POST", "/answer"): self.answer}

    async def run(self, page_request: PageRequest) -> None:
        """Runs a tool and streams its progress, questions and result. Raises PageError, ClientGone."""
        session, hub = page_request.session, self._dispatcher.hub
        body = await page_request.body(hub.config.listen.max_body)
        tool, arguments, name = body.get("tool"), body.get("arguments", {}), body.get("as")
        if not isinstance(tool, str) or not isinstance(arguments, dict) or not isinstance(name, str | None):
            text = "A run needs `tool`, a text, and `arguments`, an object."
            raise PageError(400, "invalid", text, "Mend the request.")
        principal = self._tools.seen_as(session.viewer, name) if name else session.viewer.principal
        if hub.waits:
            raise PageError(
                409, "waiting", "The hub has not been greeted by its client yet.", "Start the client first."
            )
        if session.runs >= MAX_RUNS:
            text = f"{MAX_RUNS} tools are running already in this page."
            raise PageError(429, "runs", text, "Wait for one of them, or cancel it.")
        connection = self._connection(session, principal)
        if principal != session.viewer.principal:  # the record of the call names only `principal`
            facts = {"client": CLIENT["name"], "name": "run_as", "target": str(principal), "verdict": "ok"}
            rules = hub.rules
            rules.trace.record_action(session.viewer.principal, facts)
        self._last_id += 1
        params = {"name": tool, "arguments": arguments, "_meta": {eras.PROGRESS_TOKEN: self._last_id}}
        request: Message = {"jsonrpc": "2.0", "id": self._last_id, "method": TOOLS.act_method, "params": params}
        run = ToolRun(self, connection, session)
        session.runs += 1
        page_request.reply.charge_to(self._dispatcher.backlog.of(connection.caller))
        try:
            await run.stream(page_request, self._dispatcher, request)
        finally:
            session.runs -= 1
            for question in [pending for pending in self._questions.values() if pending.run is run]:
                del self._questions[question.id]
            if session.ended:
                self._forget(session)

    async def answer(self, page_request: PageRequest) -> Json:
        """Answers a question of a run of the same session. Raises PageError; the first answer counts."""
        body = await page_request.body(MAX_ANSWER)
        action, id, content = body.get("action"), body.get("id"), body.get("content")
        question = self._questions.get(id) if isinstance(id, str) else None
        if question is None or question.run.session is not page_request.session:
            raise not_found("such question, or it is not open any more")
        if action not in ACTIONS or not isinstance(content, dict | None):
            text = f"`action` is one of {', '.join(ACTIONS)}, and `content` an object."
            raise PageError(400, "invalid", text, "Mend the request.")
        if question.answered:
            raise PageError(409, "answered", "This question was answered already.", "Wait for the result.")
        question.give(str(action), content)
        return {"done": True}

    def put(self, run: ToolRun, request: Message) -> Question:
        """Registers a question and returns it."""
        question = Question(secrets.token_urlsafe(16), run, request)
        self._questions[question.id] = question
        return question

    def has_made(self, call: Call) -> bool:
        """Returns whether a call was made from a page, or by a program that was run there."""
        return any(connection.caller is call.caller for connection in self._connections.values())

    def _connection(self, session: PageSession, principal: Principal) -> Connection:
        """Returns the client that runs of a session as `principal` have; it is the same one for all of them."""
        key = (session, principal.key)
        connection = self._connections.get(key)
        if connection is None:
            if not any(owner is session for owner, _ in self._connections):
                session.on_end.append(lambda: self._forget(session))
            connection = self._connections[key] = Connection(Caller(principal), not_delivered)
            connection.declare(eras.LATEST_HANDSHAKE, CAPABILITIES, CLIENT)
            clients = self._dispatcher.hub.clients
            clients.introduce(connection.caller, Respondent(connection), "handshake")
        return connection

    def _forget(self, session: PageSession) -> None:
        """Removes the clients of a session that has ended."""
        for key in [key for key in self._connections if key[0] is session]:
            self._dispatcher.leave(self._connections.pop(key))


class ToolRun:
    """One tool that runs, and the stream to its page."""

    def __init__(self, part: RunsPart, connection: Connection, session: PageSession) -> None:
        self._part = part
        self.connection = connection
        self.session = session
        self._news = asyncio.Event()
        self._progress: Json | None = None
        """The newest progress that was not written yet."""
        self._new_questions: list[Question] = []
        """Questions that were not written yet."""

    async def stream(self, page_request: PageRequest, dispatcher: Dispatcher, request: Message) -> None:
        """Makes the call and writes its events until it has ended. Raises ClientGone.

        The call is cancelled when the page is closed.
        """
        reply, session = page_request.reply, self.session
        if page_request.request.disconnected:  # while its session was verified
            raise ClientGone
        call = asyncio.get_running_loop().create_task(
            dispatcher.answer(self.connection, request, self._receive, "handshake")
        )
        call.add_done_callback(lambda _: self._news.set())
        session.on_end.append(self._news.set)
        page_request.request.watch(self._news.set)
        try:
            await reply.start([*CONFINED, *NO_STORE])
            verified_at = time.monotonic()
            while not call.done() and not session.ended and not page_request.request.disconnected:
                is_silent = not await set_within(self._news, HEARTBEAT)
                if is_silent or time.monotonic() - verified_at > HEARTBEAT:
                    if not await page_request.still_valid():
                        break
                    verified_at = time.monotonic()
                if is_silent:
                    await reply.write(b": alive\n\n")
                self._news.clear()
                data = self._pending_events()
                if data:
                    await reply.write(data)
                    await asyncio.wait({call}, timeout=PAUSE)
            if not page_request.request.disconnected:
                last_event = await self._last_event(call, request) if call.done() else _ENDED
                await reply.write(self._pending_events() + last_event)
                await reply.end()
        finally:
            page_request.request.unwatch()
            if self._news.set in session.on_end:
                session.on_end.remove(self._news.set)
            call.cancel()  # also before it has begun, when its client does not know it yet
            await asyncio.wait({call})

    def _pending_events(self) -> bytes:
        """Returns the events that wait to be written."""
        progress, self._progress = self._progress, None
        questions, self._new_questions = self._new_questions, []
        events = [page_event("progress", progress)] if progress is not None else []
        return b"".join([*events, *(page_event("question", bounded(question.event)) for question in questions)])

    def _receive(self, message: Message) -> None:
        """Takes a message that the call sends to its client."""
        params, method = message.get("params"), message.get("method")
        if method == eras.PROGRESS and isinstance(params, dict):
            progress = {key: params.get(key) for key in ("progress", "total", "message")}
            self._progress = bounded(progress)
        elif "id" in message:
            self._new_questions.append(self._part.put(self, message))
        else:
            return
        self._news.set()

    @staticmethod
    async def _last_event(call: asyncio.Task[Message], request: Message) -> bytes:
        if call.cancelled():
            return _ENDED
        answer = call.result()
        if "result" in answer:
            return page_event("result", await in_thread(bounded, answer["result"]))
        error = answer.get("error")
        details: Json = error if isinstance(error, dict) else {}
        data = details.get("data")
        code = data.get("code") if isinstance(data, dict) else None
        facts = {
            "code": str(code or details.get("code")),
            "message": str(details.get("message")),
            "cure": _cure(details),
        }
        return page_event("error", bounded(facts))


_RELOAD_TOOLS: Final = "Reload the list of tools: it may have changed, or this principal may not see the tool."
_OPEN_CALL: Final = "Open the call in the list of calls: it says what every rule did."


def _cure(error: Json) -> str:
    is_unknown = str(error.get("message")).startswith("Unknown tool")
    return _RELOAD_TOOLS if is_unknown else _OPEN_CALL


_ENDED: Final = page_event(
    "error", {"code": "cancelled", "message": "The run was cancelled.", "cure": "Run it again if it is still needed."}
)
