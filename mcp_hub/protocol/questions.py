"""Questions of servers to clients (sampling, elicitation, roots): the rules for them, and the way to the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Final, Protocol

import msgspec

from mcp_hub.errors import INVALID_REQUEST, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED, ProtocolError
from mcp_hub.protocol.era import INPUT_REQUIRED, Era
from mcp_hub.protocol.frames import PER_VALUE, FrameError, encode, weighs_more
from mcp_hub.protocol.skill_entries import SKILLS_EXTENSION
from mcp_hub.text import printable

Json = dict[str, Any]

ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
ELICITATION_ID: Final = "elicitationId"
ELICITATION: Final = "elicitation/create"
MAX_INPUT_REQUESTS: Final = 16
"""Questions that a server may ask in one round."""

CAPABILITY: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    ELICITATION: "elicitation",
    "roots/list": "roots",
}
"""The client capability that each method of a server's request needs."""


class Asker(Protocol):
    """A client that servers can ask, and what it has declared."""

    @property
    def capabilities(self) -> Json:
        """The capabilities as the client declared them."""
        ...

    @property
    def parked(self) -> bool | None:
        """Whether the call is parked: the client has a question, and no open request until it sends the answer.

        None: the client can be asked at any time, even without an open request.
        """
        ...

    async def wait_for_turn(self) -> None:
        """Waits until the call may be sent to its server."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """Asks the client and returns its result.

        Raises ProtocolError, also if the client answers with an error; CarrierEnded if the call of this Asker ends.
        """
        ...

    def hear(self, message: Json) -> None:
        """Passes on a server's log message if the client wants its level."""
        ...

    def notify(self, method: str, params: Json) -> None:
        """Notifies the client outside of any request, if its era allows that."""
        ...


def requestable_capabilities(capabilities: Mapping[str, Any]) -> Json:
    """Returns the client's capabilities that requests of servers can need."""
    return {name: capabilities[name] for name in CAPABILITY.values() if isinstance(capabilities.get(name), dict)}


def missing_capability(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> str | None:
    """Returns the capability that a request needs but the client has not declared; None if there is none."""
    name = CAPABILITY[method]
    declared = capabilities.get(name)
    if not isinstance(declared, dict):
        return name
    if name == "elicitation":
        mode = params.get("mode", "form")
        # A client from before the modes declares none of them and supports the form.
        if mode != "form" and mode not in declared:
            return f"elicitation.{mode}"
        if mode == "form" and declared and "form" not in declared and "url" in declared:
            return "elicitation.form"
    if name == "sampling" and "tools" in params and "tools" not in declared:
        return "sampling.tools"
    return None


UI_EXTENSION: Final = "io.modelcontextprotocol/ui"
"""The extension for apps: `ui://` resources that show the results of tools."""
SHOWS_APPS: Final[Json] = {"extensions": {UI_EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
"""Declared to servers whose clients are not known yet, as some list tools of apps only to clients that show apps."""
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension for tasks: calls that continue after their request was answered."""

TASK_CHANGED: Final = "notifications/tasks"
WATCHED_TASK: Final = "\0task:"
"""Put before the id of a task, where tasks are watched as resources are by their URIs; it begins no URI."""

FORWARDED_EXTENSIONS: Final[Mapping[Era, tuple[str, ...]]] = {
    "handshake": (UI_EXTENSION,),
    "modern": (UI_EXTENSION, TASKS_EXTENSION, SKILLS_EXTENSION),
}
"""The extensions that the hub passes between two peers of an era. It declares no others to them."""
_ALWAYS: Final[Mapping[Era, Mapping[str, Json]]] = {"handshake": {}, "modern": {SKILLS_EXTENSION: {}}}
"""The extensions that the hub always declares, with its settings, even if none of its servers has them."""


def extension_settings(capabilities: Mapping[str, Any], name: str) -> Json | None:
    """Returns a peer's settings of an extension; None if the peer has not declared it."""
    declared = capabilities.get("extensions")
    settings = declared.get(name) if isinstance(declared, dict) else None
    return settings if isinstance(settings, dict) else None


def with_extension(capabilities: Json, name: str) -> Json:
    """Returns the capabilities of a client with an extension added if it is not declared yet."""
    if extension_settings(capabilities, name) is not None:
        return capabilities
    declared = capabilities.get("extensions")
    return {**capabilities, "extensions": {**(declared if isinstance(declared, dict) else {}), name: {}}}


def forwarded_capabilities(capabilities: Mapping[str, Any], era: Era) -> Json:
    """Returns the capabilities of a client to declare to a server if both use `era`."""
    if not capabilities:
        return {}
    extensions = {
        name: settings
        for name in FORWARDED_EXTENSIONS[era]
        if (settings := extension_settings(capabilities, name)) is not None
    }
    return {**requestable_capabilities(capabilities), **({"extensions": extensions} if extensions else {})}


def forwarded_extensions(servers: Iterable[tuple[Era, Mapping[str, Any]]], era: Era) -> Json:
    """Returns the servers' extensions that a client of `era` can use. `servers` are (era, capabilities) pairs."""
    extensions: Json = dict(_ALWAYS[era])
    for server_era, capabilities in servers:
        for name in FORWARDED_EXTENSIONS[era]:
            settings = extension_settings(capabilities, name) if name in FORWARDED_EXTENSIONS[server_era] else None
            if settings is not None:
                extensions[name] = {**settings, **extensions.get(name, {})}
    return extensions


MAX_QUESTIONS: Final = 3
"""Questions of one call, unless the entry of the server says otherwise (`max_questions`)."""
MAX_QUESTION: Final = 64 * 1024
"""Bytes of the params of one question as JSON."""
MAX_ENTRIES: Final = 20
"""Questions of one call that its record names; the others are only counted."""
ALLOWED: Final = tuple(CAPABILITY.values())
"""What a server may ask for, unless its entry says otherwise (`allow`)."""
SERVER_KEY: Final = "mcp-hub/server"
"""The member of a question's `_meta` that names the server which asks."""
ASKED_PREFIX: Final = "mcp-hub-asked:"
"""Prefix of a server's `requestState` on its way through the hub.

The number of questions so far follows and, after an @, the replica that runs the server's process.
"""

_EVERYTHING: Final[Mapping[str, Json]] = {
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
}
"""The capabilities as they are declared to a server whose clients are not known yet."""


class Suspendable(Protocol):
    """A running time limit. It continues when it was resumed as often as it was suspended."""

    def suspend(self) -> None:
        """Stops its clock."""
        ...

    def resume(self) -> None:
        """Ends one suspension."""
        ...


@contextmanager
def suspended(limits: Iterable[Suspendable]) -> Iterator[None]:
    """Suspends time limits within the `with` block."""
    running = tuple(limits)
    for limit in running:
        limit.suspend()
    try:
        yield
    finally:
        for limit in running:
            limit.resume()


class CallQuestions(msgspec.Struct, eq=False):
    """The questions that were asked because of one call."""

    limits: Sequence[Suspendable] = ()
    """Time limits that are suspended while the client is asked."""
    count: int = 0
    """Questions that were sent to the client."""
    entries: list[dict[str, str]] = msgspec.field(default_factory=list)
    """`{"method", "outcome"}` of each, for the record of the call; `reason` too where the hub refused it."""

    def note(self, method: str, outcome: str, **extra: str) -> dict[str, str]:
        """Adds a question to the record of its call and returns its entry, whose outcome may change later."""
        entry = {"method": method, "outcome": outcome, **extra}
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append(entry)
        return entry

    async def answer_of(self, asker: Asker, method: str, params: Json, entry: dict[str, str]) -> Json:
        """Sends an admitted question to a client and returns its result. Raises as `Asker.ask` does."""
        try:
            with suspended(self.limits):
                result = await asker.ask(method, params)
        except ProtocolError:
            entry["outcome"] = "error"
            raise
        action = result.get("action")
        entry["outcome"] = action if action in ("accept", "decline", "cancel") else "answered"
        return result


class QuestionRules(msgspec.Struct, frozen=True):
    """The questions that one server may ask, in all of its sessions and in both eras."""

    server: str
    allow: tuple[str, ...] = ALLOWED
    limit: int = MAX_QUESTIONS

    def everything(self) -> Json:
        """Returns all allowed capabilities, which are declared to a server before its clients are known."""
        return {name: _EVERYTHING[name] for name in ALLOWED if name in self.allow}

    def filter_capabilities(self, capabilities: Mapping[str, Any]) -> Json:
        """Returns the capabilities of a client without those that the server may not use."""
        return {name: value for name, value in capabilities.items() if name not in ALLOWED or name in self.allow}

    def admit(
        self, method: str, params: Json, capabilities: Mapping[str, Any], questions: CallQuestions
    ) -> tuple[Json, dict[str, str]]:
        """Admits one question, counts it, and adds it to the record of its call.

        Args:
            method: a key of `CAPABILITY`.
            capabilities: the capabilities that the client has declared.

        Returns:
            the params for the client, which name the server, and the question's entry in the record.

        Raises:
            ProtocolError: the question is refused; the server gets this error.
        """
        refusal = self._refusal(method, params, capabilities, questions)
        if refusal is not None:
            questions.note(method, "refused", reason=refusal.message)
            raise refusal
        questions.count += 1
        return self.named(method, params), questions.note(method, "unanswered")

    def check_allowed(self, method: str, questions: CallQuestions) -> None:
        """Raises ProtocolError, and adds it to the record of the call, if the server may never ask by this method."""
        refusal = self._forbidden(method)
        if refusal is not None:
            questions.note(method, "refused", reason=refusal.message)
            raise refusal

    def admit_visits(self, error: Json, questions: CallQuestions) -> Json:
        """Returns a server's error; the URLs that it asks the client to open first are admitted like `admit` does.

        Raises:
            ProtocolError: a URL is refused; the call ends with this error.
        """
        data = error["data"] if isinstance(error.get("data"), dict) else {}
        listed = data.get("elicitations")
        if error.get("code") != URL_ELICITATION_REQUIRED or not isinstance(listed, list):
            return error
        elicitations = [self._admit_visit(visit, questions) if isinstance(visit, dict) else visit for visit in listed]
        return {**error, "data": {**data, "elicitations": elicitations}}

    def _admit_visit(self, params: Json, questions: CallQuestions) -> Json:
        admitted, entry = _admit(self, ELICITATION, params, _EVERYTHING, questions)
        entry["outcome"] = "passed on"
        return admitted

    def _forbidden(self, method: str) -> ProtocolError | None:
        name = CAPABILITY[method]
        if name in self.allow:
            return None
        text = f"The server {self.server!r} may not ask for {name} (setting: servers.{self.server}.allow)."
        return ProtocolError(METHOD_NOT_FOUND, text)

    def _refusal(
        self, method: str, params: Json, capabilities: Mapping[str, Any], questions: CallQuestions
    ) -> ProtocolError | None:
        if (forbidden := self._forbidden(method)) is not None:
            return forbidden
        missing = missing_capability(capabilities, method, params)
        if missing is not None:
            return ProtocolError(METHOD_NOT_FOUND, f"The client has not declared {missing}: it cannot be asked.")
        if questions.count >= self.limit:
            setting = f"setting: servers.{self.server}.max_questions"
            return ProtocolError(INVALID_REQUEST, f"A call may ask at most {self.limit} questions ({setting}).")
        if "url" in params and not str(params["url"]).lower().startswith(("https://", "http://")):
            return ProtocolError(INVALID_REQUEST, "A question may name URLs of http and https only.")
        if is_too_large(params):
            return ProtocolError(INVALID_REQUEST, f"A question may have at most {MAX_QUESTION:,} bytes.")
        return None

    def named(self, method: str, params: Json) -> Json:
        """Returns the params with the server's name, in `_meta` and in the message of an elicitation; not for roots."""
        if CAPABILITY[method] == "roots":
            return params
        meta = params.get("_meta")
        named_params = {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), SERVER_KEY: self.server}}
        if method == ELICITATION:
            named_params["message"] = f"{printable(self.server)} asks: {params.get('message', '')}"
        return named_params


def is_too_large(params: Json) -> bool:
    """Returns whether the params of a question have more than `MAX_QUESTION` bytes. Takes bounded time."""
    # A value above this weight certainly has too many bytes, because each value in it takes at least one.
    try:
        return weighs_more(params, MAX_QUESTION * PER_VALUE) or len(encode(params)) > MAX_QUESTION
    except FrameError:
        return True


def with_count(state: Any, asked: int, replica: str = "") -> Any:
    """Returns a server's `requestState` with the number of questions so far, which comes back with the client's retry.

    `replica`: the replica that must get the retry; "" for any. The state needs no signature: a client that changes the
    number is only asked more questions itself, and with another replica its retry reaches a process without its call.
    """
    count = f"{ASKED_PREFIX}{asked}@{replica}" if replica else f"{ASKED_PREFIX}{asked}"
    if state is None:
        return count
    return f"{count}:{state}" if isinstance(state, str) else state


def place_in(state: str) -> str:
    """Returns the replica that must get the retry with this `requestState`; "" for any."""
    if not state.startswith(ASKED_PREFIX):
        return ""
    return state.removeprefix(ASKED_PREFIX).partition(":")[0].partition("@")[2]


def without_count(params: Json) -> tuple[Json, int]:
    """Returns the params of a retry with the server's own `requestState`, and the number of questions before it."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(ASKED_PREFIX):
        return params, 0
    count, colon, server_state = state.removeprefix(ASKED_PREFIX).partition(":")
    params = {key: value for key, value in params.items() if key != "requestState"}
    if colon:
        params["requestState"] = server_state
    count = count.partition("@")[0]
    return params, int(count) if count.isdecimal() and count.isascii() and len(count) < 4 else 0


# --- rounds of a modern server -----------------------------------------------------------------------------------

MAX_ROUNDS: Final = 20
"""Rounds of one call in which a server asks. It may say as often that it needs more time as the deadline allows."""
_POLL: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds between attempts while a server only says that it needs more time; the last one repeats."""

Again = Callable[[Json], Awaitable[Json]]
"""Sends the same request again with these params added."""


def wants_input(result: Json) -> bool:
    """Returns whether a modern result asks the client for input instead of ending its request."""
    return result.get("resultType") == INPUT_REQUIRED


def pass_on(
    result: Json, rules: QuestionRules, capabilities: Mapping[str, Any], questions: CallQuestions, replica: str
) -> Json:
    """Returns a modern server's result with questions for a modern client, which retries with the answers.

    `replica`: the replica that must get the retry; "" for any.

    Raises:
        ProtocolError: a question is refused.
    """
    forwarded = pass_on_in_task(result, rules, questions, capabilities)
    return {**forwarded, "requestState": with_count(result.get("requestState"), questions.count, replica)}


def pass_on_in_task(
    result: Json, rules: QuestionRules, questions: CallQuestions, capabilities: Mapping[str, Any] = _EVERYTHING
) -> Json:
    """Does the same as `pass_on` for a task that waits or has failed; every request about the task repeats it.

    By default all capabilities count as declared, because the client declared its own in the call that began the task.
    """
    requests, error = result.get("inputRequests"), result.get("error")
    if isinstance(error, dict):
        result = {**result, "error": rules.admit_visits(error, questions)}
    if not isinstance(requests, dict) or not requests:
        return result
    admitted: Json = {}
    for key, request in requests.items():
        method, params = _read(request)
        params, entry = _admit(rules, method, params, capabilities, questions)
        entry["outcome"] = "passed on"
        admitted[key] = {**request, "params": params} if params else request
    return {**result, "inputRequests": admitted}


async def resolve_input_requests(
    result: Json, rules: QuestionRules, asker: Asker | None, questions: CallQuestions, resend: Again
) -> Json:
    """Sends a server's questions to the client, repeats the request with the answers, and returns its final result.

    Raises:
        ProtocolError: the client answered with an error, or the server asked in a way that is not allowed.
    """
    rounds = polls = 0
    sent_ids: list[str] = []
    while wants_input(result):
        requests, state = result.get("inputRequests"), result.get("requestState")
        retry_params: Json = {} if state is None else {"requestState": state}
        if isinstance(requests, dict) and requests:
            polls = 0
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise ProtocolError(INVALID_REQUEST, f"The server asked for input more than {MAX_ROUNDS} times.")
            retry_params["inputResponses"] = await _answers(requests, rules, asker, questions, sent_ids)
        elif state is not None:
            await asyncio.sleep(_POLL[min(polls, len(_POLL) - 1)])
            polls += 1
        else:
            raise ProtocolError(INVALID_REQUEST, "The server asks for input and does not say which.")
        result = await resend(retry_params)
        while sent_ids and asker is not None:
            asker.notify(ELICITATION_COMPLETE, {ELICITATION_ID: sent_ids.pop()})  # the server has got the answer
    return result


async def _answers(
    requests: Json, rules: QuestionRules, asker: Asker | None, questions: CallQuestions, sent_ids: list[str]
) -> Json:
    """Asks all questions at the same time, if all are admitted, and returns the results by the questions' keys.

    Appends the ids that it makes for elicitations by URL to `sent_ids`.
    """
    capabilities = asker.capabilities if asker is not None else {}
    coroutines: dict[str, Coroutine[Any, Any, Json]] = {}
    try:
        for key, request in requests.items():
            method, params = _read(request)
            params, entry = _admit(rules, method, params, capabilities, questions)
            if params.get("mode") == "url" and ELICITATION_ID not in params:
                sent_ids.append(token_hex(16))  # handshake revisions require one
                params = {**params, ELICITATION_ID: sent_ids[-1]}
            assert asker is not None
            coroutines[key] = questions.answer_of(asker, method, params, entry)
    except ProtocolError:
        for coroutine in coroutines.values():
            coroutine.close()
        raise
    tasks = {key: asyncio.ensure_future(coroutine) for key, coroutine in coroutines.items()}
    try:
        await asyncio.gather(*tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
    return {key: task.result() for key, task in tasks.items()}


def _read(request: Any) -> tuple[str, Json]:
    """Returns method and params of one of a server's `inputRequests`. Raises ProtocolError for an unknown method."""
    method = request.get("method") if isinstance(request, dict) else None
    params = request.get("params") if isinstance(request, dict) else None
    if not isinstance(method, str) or method not in CAPABILITY:
        raise ProtocolError(INVALID_REQUEST, f"The server asks for {method!r}, which no client answers.")
    return method, params if isinstance(params, dict) else {}


def _admit(
    rules: QuestionRules, method: str, params: Json, capabilities: Mapping[str, Any], questions: CallQuestions
) -> tuple[Json, dict[str, str]]:
    """Admits a question. A refusal ends the call, so its error is not `Method not found`, which would mislead."""
    try:
        return rules.admit(method, params, capabilities, questions)
    except ProtocolError as refusal:
        raise ProtocolError(INVALID_REQUEST, f"The call ends, as its server asks: {refusal.message}") from None
