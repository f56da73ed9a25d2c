"""One record for every call, whatever came of it; nothing inside of it can fail in a way no client understands."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import count, islice
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcp_hub.catalog.catalog import Item
from mcp_hub.errors import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    CallCancelled,
    CallError,
    CircuitOpen,
    DeadlineExceeded,
    FlowRefused,
    GroupInactive,
    GuardBlocked,
    InternalError,
    InvalidParameters,
    Overloaded,
    ProtocolError,
    ResultTooLarge,
    ToolFailed,
    UnknownName,
    UpstreamAnswered,
)
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Next
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from mcp_hub.security.principals import PEER, Principal
from mcp_hub.security.redaction import LEARNED, Redaction

log = logging.getLogger("mcp_hub.policy")

MAX_NOTES: Final = 20
MAX_TEXT: Final = 300
"""Characters of a name, a note or an error in a record."""
MAX_TRACEBACK: Final = 16 * 1024
"""Characters of an unexpected exception that are logged, from its end."""
MAX_REMEMBERED: Final = 4096
"""Names of tools, callers and clients whose form in a record is remembered."""
_SAMPLED: Final = 100
"""Members of one list or object that are measured; the others are taken to be like them."""
MAX_SAMPLED: Final = 1000
"""Values that are measured in all."""
_MAX_DEPTH: Final = 50

_DECIDED_BY: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (UnknownName, "access"),
    (GroupInactive, "group"),
    (InvalidParameters, "validate"),
    (GuardBlocked, "guard"),
    (FlowRefused, "flow"),
    (CircuitOpen, "breaker"),
    (Overloaded, "limits"),
    (DeadlineExceeded, "deadline"),
    (ResultTooLarge, "shape-result"),
    (ToolFailed, "shape-result"),
)
"""Whose errors these are, where the call itself does not say by whom it was refused."""
_REFUSALS: Final = frozenset({"access", "group", "flow", "validate", "guard", "breaker", "limits"})


Outcome = tuple[str, str | None, str | int | None, str | None]
"""Verdict, policy, code, text."""
Shown = Callable[[Call, Any], Any]
"""The arguments of a call as records and spans may show them: without those that are preset."""
Measure = Callable[[str, str, str, str, str | int | None, float], None]
"""Told of server, method, tool, verdict, code and seconds of each call."""


class Labels:
    """How calls and callers are called in records, as long as the hub runs."""

    def __init__(self) -> None:
        self._run = f"{random.randrange(16**4):04x}"
        """Tells apart the calls of several hubs that write to one file."""
        self._calls = count(1)
        self._callers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._numbers = count(1)

    def next_call(self) -> str:
        """The id of one more call."""
        return f"{self._run}-{next(self._calls)}"

    def caller(self, caller: Hashable | None) -> str:
        """Short, the same for all calls of one caller while the hub runs (of a principal: always), without secrets."""
        if caller is None:
            return "only"
        if isinstance(caller, Principal) and caller.label:
            return f"principal-{caller.label}"
        if isinstance(caller, str):
            return f"principal-{sha256(caller.encode('utf-8', 'replace')).hexdigest()[:8]}" if caller else "anonymous"
        try:
            label = self._callers.get(caller)
            if label is None:
                label = self._callers[caller] = f"session-{next(self._numbers)}"
        except TypeError:
            return "other"
        return label


class Trace:
    """The outermost policy: `write` gets a record of each call when it ends, `measure` (of Metrics) what it
    came to. None: nothing is recorded, nothing measured.

    It also is where the known secrets are taken out of errors, an upstream's own included, and of what it tells
    during a call, and where an exception that nobody expected becomes InternalError. `bytes_in` and `bytes_out` are
    estimates from a sample of the arguments and the result: to measure them they would have to be written as JSON
    once more.

    The record is made in the loop's next round, when the answer is on its way: nobody waits for it.
    """

    def __init__(
        self,
        write: Callable[[Json], None] | None,
        redaction: Redaction,
        *,
        arguments: bool = True,
        labels: Labels | None = None,
        measure: Measure | None = None,
        shown: Shown = lambda call, arguments: arguments,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._write = write
        self._redaction = redaction
        self._arguments = arguments
        self._clock = clock
        self._now = now
        self._labels = labels or Labels()
        self._second = (-1, "")
        """The last second in which a call ended, and how it is written."""
        self._names: dict[str, str] = {}
        self._names_without = LEARNED.known
        self._measure = measure or _unmeasured
        self._shown = shown

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises ProtocolError, CallError, TimeoutError and CancelledError, nothing else."""
        started, asked = self._clock(), call.params
        if call.on_progress is not None:
            call.on_progress = partial(_cleaned, self._redaction, call.on_progress)
        if call.on_message is not None:
            call.on_message = partial(_cleaned, self._redaction, call.on_message)
        try:
            result = await call_next(call)
            if result.get("isError") is True:
                result = await self._known(result)
        except (UpstreamAnswered, ProtocolError, CallError, TimeoutError, asyncio.CancelledError) as error:
            failed: BaseException = error
            try:
                failed = await self._clean(error)
            except asyncio.CancelledError as cancelled:
                failed = cancelled
            self._ended(call, asked, started, failed)
            raise failed from None
        except Exception as error:
            said = "".join(traceback.format_exception(error))
            log.error(
                "a %s request failed inside the hub\n%s", call.method, self._redaction.text(said[-MAX_TRACEBACK:])
            )
            call.notes.append(f"failed inside the hub: {type(error).__name__}")
            internal = InternalError(
                "The hub failed to carry out the request; its log says why.", server=call.route.upstream
            )
            self._ended(call, asked, started, internal)
            raise internal from None
        self._ended(call, asked, started, None, result)
        return result

    async def _known(self, value: Any) -> Any:
        """A value without known secrets; one that takes long to look through is looked through in a thread."""
        return await in_thread(self._redaction.known, value) if weighs_more(value) else self._redaction.known(value)

    def unknown(
        self,
        method: str,
        exposed: str,
        era: Era,
        caller: Hashable | None,
        reason: str,
        envelope: Envelope | None = None,
    ) -> None:
        """Record a call under a name that leads nowhere; `reason` is the rule that hides it, or `unknown`."""
        code = RESOURCE_NOT_FOUND if method == RESOURCES.act_method and era == "handshake" else INVALID_PARAMS
        facts = {"code": code, "policy": None if reason == "unknown" else "access", "reason": reason}
        self._refused(method, exposed, era, caller, envelope, facts)

    def turned_away(
        self, method: str, exposed: str, era: Era, caller: Hashable | None, error: Overloaded, envelope: Envelope
    ) -> None:
        """Record a request that its principal may not send now."""
        facts = {"code": error.code, "policy": "quota", "reason": error.message}
        self._refused(method, exposed, era, caller, envelope, facts)

    def refused_stranger(self, facts: Json) -> None:
        """Record what a listener has refused before it knew any caller."""
        if self._write is None:
            return
        try:
            clean = {key: self._text(value) if isinstance(value, str) else value for key, value in facts.items()}
            self._write({"event": "refused", "time": self._time(), **clean})
        except Exception:
            log.exception("a refusal could not be recorded")

    def _refused(
        self, method: str, exposed: str, era: Era, caller: Hashable | None, envelope: Envelope | None, facts: Json
    ) -> None:
        self._measure("", method, "", "refused", "overloaded" if facts["policy"] == "quota" else "unknown", 0.0)
        if self._write is None:
            return
        try:
            head = self._head(self._labels.next_call(), method, exposed, era, caller, envelope)
            self._write({**head, "verdict": "refused", **facts, "reason": self._text(facts["reason"])})
        except Exception:
            log.exception("a call could not be recorded")

    async def _clean(self, error: BaseException) -> BaseException:
        """The same error without known secrets."""
        if isinstance(error, UpstreamAnswered):
            clean = await self._known(error.error)
            return error if clean is error.error else UpstreamAnswered(clean)
        if isinstance(error, UnknownName):
            return error  # it says what its caller has said, no more
        if isinstance(error, ProtocolError):
            error.message, error.data = await self._known(error.message), await self._known(error.data)
        elif isinstance(error, CallError):
            error.message = await self._known(error.message)
            error.args = (error.message,)
        return error

    # --- the record --------------------------------------------------------------------------------------------

    def _head(
        self, id: str, method: str, exposed: str, era: Era, caller: Hashable | None, envelope: Envelope | None
    ) -> Json:
        info = envelope.client_info if envelope is not None else None
        client = info.get("name") if isinstance(info, dict) else None
        head = {
            "event": "call",
            "time": self._time(),
            "id": id,
            "caller": self._name(self._labels.caller(caller)),
            "client": self._name(client) if isinstance(client, str) else None,
            "era": era,
            "method": method,
            "name": self._name(exposed),
        }
        if (peer := PEER.get()) is not None:
            head["peer"] = peer
        return head

    def _time(self) -> str:
        now = self._now()
        second = int(now)
        if second != self._second[0]:
            self._second = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second[1]}.{int((now - second) * 1000):03d}Z"

    def _ended(
        self, call: Call, asked: Json, started: float, error: BaseException | None, result: Json | None = None
    ) -> None:
        duration = self._clock() - started
        asyncio.get_running_loop().call_soon(self._record, call, asked, duration, error, result)

    def _record(
        self, call: Call, asked: Json, duration: float, error: BaseException | None, result: Json | None
    ) -> None:
        try:
            found = outcome(call, error, result)
            tool = call.route.name if call.route.kind is TOOLS else ""
            self._measure(call.route.upstream, call.method, tool, found[0], found[2], duration)
            if self._write is not None:
                self._write(self._of_call(call, asked, duration, found, result))
        except Exception:
            log.exception("a call could not be recorded")

    def _of_call(self, call: Call, asked: Json, duration: float, found: Outcome, result: Json | None) -> Json:
        verdict, policy, code, text = found
        id = self._text(call.label) if call.label is not None else self._labels.next_call()
        arguments = self._shown(call, asked.get("arguments"))
        record = {
            **self._head(id, call.method, call.exposed, call.era, call.caller, call.envelope),
            "upstream": call.route.upstream,
            "tool": self._name(call.route.name),
            "verdict": verdict,
            "code": code,
            "policy": policy,
            "attempts": call.attempts,
            "fallback": call.fallback,
            "duration_ms": round(duration * 1000, 1),
            "bytes_in": approximate_size(arguments) if arguments is not None else 0,
            "bytes_out": approximate_size(result) if result is not None else 0,
            "notes": [self._text(note) for note in islice(call.notes, MAX_NOTES)],
        }
        if text is not None:
            record["error"] = self._text(text)
        if self._arguments and arguments is not None:
            record["arguments"] = self._redaction.value(arguments)
        return record

    def _name(self, text: str) -> str:
        """What is said again and again: looked through once, until a secret is learned."""
        if self._names_without is not LEARNED.known or len(self._names) >= MAX_REMEMBERED:
            self._names, self._names_without = {}, LEARNED.known
        shown = self._names.get(text)
        if shown is None:
            shown = self._text(text)
            if len(text) <= MAX_TEXT:
                self._names[text] = shown
        return shown

    def _text(self, text: str) -> str:
        # Cut only after it was looked through; what is shown must not begin a secret that ends behind it.
        shown = self._redaction.text(text[: 16 * MAX_TEXT])
        return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}…"


def outcome(call: Call, error: BaseException | None, result: Json | None) -> Outcome:
    """Verdict, the policy that decided, the error's code and its text or the rule that refused."""
    if error is None:
        failed = result is not None and result.get("isError") is True
        return "tool_error" if failed else "ok", call.refused_by or ("fallback" if call.fallback else None), None, None
    if isinstance(error, asyncio.CancelledError | CallCancelled):
        return "cancelled", None, CallCancelled.code, None
    if isinstance(error, TimeoutError):
        return "error", "deadline", DeadlineExceeded.code, str(error) or None
    by = next((name for kind, name in _DECIDED_BY if isinstance(error, kind)), None)
    # A refusal's reason is a rule (`servers.x.disable_tools`), its policy is what applied it.
    verdict = "refused" if call.refused_by is not None or by in _REFUSALS else "error"
    code = error.code if isinstance(error, ProtocolError | CallError) else None
    if call.refused_by is not None:
        return verdict, by or "access", code, call.refused_by
    return verdict, by, code, str(error)


def approximate_size(value: Any) -> int:
    """About how many bytes of JSON a value takes; of a large one from a sample of its members."""
    size, left, waiting = 0, MAX_SAMPLED, [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        left -= 1
        if kind is str:
            size += len(one) + 2
        elif kind is dict or kind is list:
            if len(one) > _SAMPLED or left < 0:
                return _size(value, _Sample(), _MAX_DEPTH)
            size += 2 if one else 4
            if kind is list:
                size += len(one)
                waiting += one
            else:
                for key in one:
                    size += len(key) + 4
                waiting += one.values()
        else:
            size += 4
    return size


def _cleaned(redaction: Redaction, tell: Callable[[Json], None], told: Json) -> None:
    """Passes on what a server tells meanwhile, without known secrets."""
    tell(redaction.told(told))


def _unmeasured(*_: object) -> None:
    pass


class _Sample:
    left = MAX_SAMPLED


def _size(value: Any, sample: _Sample, depth: int) -> int:
    sample.left -= 1
    if isinstance(value, str):
        return len(value) + 2
    if not value or not depth or not isinstance(value, dict | list):
        return 4
    size = seen = 0
    for member in value.items() if isinstance(value, dict) else value:
        if sample.left < 0 or seen == _SAMPLED:
            break
        seen += 1
        size += (
            len(member[0]) + 4 + _size(member[1], sample, depth - 1)
            if isinstance(member, tuple)
            else 1 + _size(member, sample, depth - 1)
        )
    return 2 + (size * len(value) // seen if seen else 4 * len(value))
