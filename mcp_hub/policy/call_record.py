"""The record of one call without secrets: who called what, its outcome, its duration and its size."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any, Final

import msgspec

from mcp_hub.errors import CallCancelled, CallError, DeadlineExceeded, HubError, ProtocolError
from mcp_hub.policy import Call, Json
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.security import PEER, Principal
from mcp_hub.security.callers import Caller, label_of
from mcp_hub.security.redaction import LEARNED, Redactor

MAX_NOTES: Final = 20
MAX_TEXT: Final = 300
"""Characters of a name, a note or an error in a record."""
MAX_REMEMBERED: Final = 4096
"""Names of tools, callers and clients, and notes, whose redacted form is cached."""
_SAMPLED: Final = 100
"""Members of one list or object that are measured; the others count as their average."""
MAX_SAMPLED: Final = 1000
"""Values that are measured in total."""
_MAX_DEPTH: Final = 50

Outcome = tuple[str, str | None, str | int | None, str | None]
"""Verdict, policy, code, text."""
Shown = Callable[[Call, Any], Any]
"""The arguments of a call as records and spans may show them: without those that are preset."""
LARGE_ARGUMENTS: Final = 256 * 1024
"""Weight of arguments (`weighs_more`) from which preset ones are removed in a thread; below, it takes at most 7 ms."""


class RecordLabels:
    """Assigns the labels of calls in records, for as long as the hub runs."""

    def __init__(self) -> None:
        self._run = f"{random.randrange(16**4):04x}"
        """Distinguishes hubs that write to the same file."""
        self._calls = count(1)

    @property
    def run(self) -> str:
        """The prefix of the ids of this run of the hub."""
        return self._run

    def next_call(self) -> str:
        """Returns a new id for a call."""
        return f"{self._run}-{next(self._calls)}"


class RecordTap:
    """Passes each record to the live page while one is open. Otherwise a call only checks that `sink` is None."""

    __slots__ = ("sink",)

    def __init__(self) -> None:
        self.sink: Callable[[Json, Principal], None] | None = None
        """Takes a record and the principal of its caller; None: no page is open. It must be quick and never raise."""


class EndedCall(msgspec.Struct, frozen=True):
    """What the record of a call is made of, kept from the end of the call until the record is made."""

    call: Call
    params: Json
    """Its params as the caller sent them."""
    seconds: float
    """How long it took."""
    peer: str | None
    """The network address that its request came from (`PEER`)."""
    error: BaseException | None
    result: Json | None


class RecordBuilder:
    """Builds the records of calls as JSON objects. Every text in them is redacted and cut to `MAX_TEXT` characters.

    `arguments` says whether records have the redacted arguments.
    """

    def __init__(
        self,
        redaction: Redactor,
        labels: RecordLabels,
        *,
        arguments: bool,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._redaction = redaction
        self._labels = labels
        self._arguments = arguments
        self._now = now
        self._second = (-1, "")
        """The second of the last record, and its text."""
        self._names: dict[str, str] = {}
        self._known_secrets = LEARNED.current

    def of_call(self, ended: EndedCall, call_outcome: Outcome, arguments: Any) -> Json:
        """Returns the record of a call that has ended, with the `arguments` to be shown."""
        verdict, policy, code, text = call_outcome
        call, result = ended.call, ended.result
        id = self.text(call.label) if call.label is not None else self._labels.next_call()
        record = {
            **self._common_fields(id, call.method, call.exposed, call.era, call.caller, call.envelope, ended.peer),
            "upstream": call.route.upstream,
            "tool": self._name(call.route.name),
            "verdict": verdict,
            "code": code,
            "policy": policy,
            "attempts": call.attempts,
            "fallback": call.fallback,
            "duration_ms": int(ended.seconds * 10_000 + 0.5) / 10,  # a fraction of the time of `round`
            "bytes_in": approximate_size(arguments) if arguments is not None else 0,
            "bytes_out": approximate_size(result) if result is not None else 0,
            "notes": [self._name(note) for note in islice(call.notes, MAX_NOTES)],
        }
        if call.within is not None:
            record["within"] = call.within
        if call.questions.entries:
            record["questions"] = [
                {key: self.text(value) for key, value in entry.items()} for entry in call.questions.entries
            ]
        if text is not None:
            record["error"] = self.text(text)
        if self._arguments and arguments is not None:
            record["arguments"] = self._redaction.value(arguments)
        return record

    def of_refusal(
        self, method: str, exposed: str, era: Era, caller: Caller, envelope: Envelope | None, facts: Json
    ) -> Json:
        """Returns the record of a call that was refused before it had a route; `facts`: `code`, `policy`, `reason`."""
        head = self._common_fields(self._labels.next_call(), method, exposed, era, caller, envelope, PEER.get())
        return {**head, "verdict": "refused", **facts, "reason": self.text(facts["reason"])}

    def of_action(self, label: str, facts: Json) -> Json:
        """Returns the record of an action of an administrator; `facts` have its `name` and `verdict`."""
        clean = {key: self.text(value) if isinstance(value, str) else value for key, value in facts.items()}
        head = {"event": "action", "time": self._time(), "id": self._labels.next_call()}
        peer = {"peer": PEER.get()} if PEER.get() is not None else {}
        return {**head, "caller": self._name(label), "method": "action", **clean, **peer}

    def of_rejected_connection(self, facts: Json) -> Json:
        """Returns the record of a request that a listener rejected before it knew the caller."""
        clean = {key: self.text(value) if isinstance(value, str) else value for key, value in facts.items()}
        return {"event": "refused", "time": self._time(), **clean}

    def _common_fields(
        self,
        id: str,
        method: str,
        exposed: str,
        era: Era,
        caller: Caller,
        envelope: Envelope | None,
        peer: str | None,
    ) -> Json:
        info = envelope.client_info if envelope is not None else None
        client = info.get("name") if isinstance(info, dict) else None
        head = {
            "event": "call",
            "time": self._time(),
            "id": id,
            "caller": self._name(caller.label),
            "client": self._name(client) if isinstance(client, str) else None,
            "era": era,
            "method": method,
            "name": self._name(exposed),
        }
        if caller.principal and not caller.is_principal:  # of a session; the anonymous one has no name
            head["principal"] = self._name(label_of(caller.principal))
        if peer is not None:
            head["peer"] = peer
        return head

    def _time(self) -> str:
        now = self._now()
        second = int(now)
        if second != self._second[0]:
            self._second = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second[1]}.{str(int((now - second) * 1000)).zfill(3)}Z"

    def _name(self, text: str) -> str:
        """Returns a redacted name or note, cached until a new secret is learned."""
        if self._known_secrets is not LEARNED.current or len(self._names) >= MAX_REMEMBERED:
            self._names, self._known_secrets = {}, LEARNED.current
        redacted = self._names.get(text)
        if redacted is None:
            redacted = self.text(text)
            if len(text) <= MAX_TEXT:
                self._names[text] = redacted
        return redacted

    def text(self, text: str) -> str:
        """Returns a redacted text of at most `MAX_TEXT` characters, and `…` if it was longer."""
        return self._redaction.beginning(text, MAX_TEXT)


def outcome(call: Call, error: BaseException | None, result: Json | None) -> Outcome:
    """Returns (verdict, policy that decided, code of the error, its text or the rule that refused)."""
    if error is None:
        verdict = "tool_error" if result is not None and result.get("isError") is True else "ok"
        return verdict, call.refused_by or ("fallback" if call.fallback else None), None, None
    if isinstance(error, asyncio.CancelledError | CallCancelled):
        return "cancelled", None, CallCancelled.code, None
    if isinstance(error, TimeoutError):
        return "error", "deadline", DeadlineExceeded.code, str(error) or None
    policy, refuses = (error.policy, error.refuses) if isinstance(error, HubError) else (None, False)
    # A refusal's reason is a rule (`servers.x.disable_tools`), its policy is what applied it.
    verdict = "refused" if call.refused_by is not None or refuses else "error"
    code = error.code if isinstance(error, ProtocolError | CallError) else None
    if call.refused_by is not None:
        return verdict, policy or "access", code, call.refused_by
    return verdict, policy, code, str(error)


def approximate_size(value: Any) -> int:
    """Estimates the size of a value as JSON in bytes; for a large value, from a sample of its members."""
    size, members = 0, [value]
    for member in members:  # the list grows meanwhile
        kind = type(member)
        if kind is str:
            size += len(member) + 2
        elif kind is dict or kind is list:
            if len(member) > _SAMPLED or len(members) > MAX_SAMPLED:
                return _size(value, _Sample(), _MAX_DEPTH)
            members += member
            if kind is dict:
                members += member.values()
        else:
            size += 4
    return size + 2 * len(members)


class _Sample:
    remaining = MAX_SAMPLED


def _size(value: Any, sample: _Sample, depth: int) -> int:
    sample.remaining -= 1
    if isinstance(value, str):
        return len(value) + 2
    if not value or not depth or not isinstance(value, dict | list):
        return 4
    size = sampled = 0
    for member in value.items() if isinstance(value, dict) else value:
        if sample.remaining < 0 or sampled == _SAMPLED:
            break
        sampled += 1
        size += (
            len(member[0]) + 4 + _size(member[1], sample, depth - 1)
            if isinstance(member, tuple)
            else 1 + _size(member, sample, depth - 1)
        )
    return 2 + (size * len(value) // sampled if sampled else 4 * len(value))
