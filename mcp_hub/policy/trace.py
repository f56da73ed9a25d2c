"""The trace policy: makes one record and one measurement of each call, and redacts secrets in errors."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from mcp_hub.catalog import Route
from mcp_hub.config.settings import Frozen, RootKey, model_key
from mcp_hub.errors import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    CallError,
    InternalError,
    Overloaded,
    ProtocolError,
    UnknownName,
    UpstreamAnswered,
)
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts
from mcp_hub.policy.call_record import (
    LARGE_ARGUMENTS,
    EndedCall,
    Outcome,
    RecordBuilder,
    RecordLabels,
    RecordTap,
    Shown,
    outcome,
)
from mcp_hub.policy.presentation import Preset
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from mcp_hub.security import ANONYMOUS, PEER, Principal
from mcp_hub.security.callers import SOLE, Caller, label_of
from mcp_hub.security.redaction import Redactor
from mcp_hub.transport.background import TaskSet

log = logging.getLogger("mcp_hub.policy")

MAX_TRACEBACK: Final = 16 * 1024
"""Characters of an unexpected exception that are logged, from its end."""
MAX_RECORDING: Final = 5.0
"""Seconds that `close` waits for the last records; a record of 300,000 arguments takes 0.1 s."""
Measure = Callable[[str, str, str, str, str | int | None, float], None]
"""Gets server, method, tool, verdict, code and seconds of each call."""
_AT_ONCE: Final = 64
"""Records that are made before the loop may turn to anything else."""


class CallLogSettings(Frozen):
    """The call log: one line per call."""

    OFF: ClassVar[Mapping[str, Any]] = {"enabled": False}
    SHORT: ClassVar[Mapping[type, str]] = {str: "file"}

    enabled: bool = True
    """Whether calls are recorded."""
    file: Path | None = None
    """The file that lines are written to besides stderr."""
    stderr: bool = True
    """Whether lines are written to stderr."""
    arguments: bool = True
    """Whether lines have a redacted, shortened copy of the arguments."""


CALL_LOG: Final = RootKey("call_log", model_key(CallLogSettings), CallLogSettings(), needs_restart=True)


class Trace(Policy):
    """Records and measures each call when it ends. Only `spans` is further outside.

    It also removes known secrets from errors, those of upstreams included, and from notifications during a call, and
    turns unexpected exceptions into InternalError. The record is built in the next iteration of the loop, after the
    response was handed over, so that no client waits for it; the calls that end in one iteration share a callback.

    Args:
        write: Takes the record of each call; None: no records.
        measure: Takes the metrics of each call; None: no metrics.
        tap: Gets the records too while a live page is open.
    """

    name = "trace"
    keys = (CALL_LOG,)

    def __init__(
        self,
        write: Callable[[Json], None] | None,
        redaction: Redactor,
        *,
        arguments: bool = True,
        labels: RecordLabels | None = None,
        measure: Measure | None = None,
        tap: RecordTap | None = None,
        shown: Shown = lambda call, arguments: arguments,
        has_presets: Callable[[Route], bool] = lambda route: True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._write = write
        self._redaction = redaction
        self._clock = clock
        self._records = RecordBuilder(redaction, labels or RecordLabels(), arguments=arguments, now=now)
        self._visible_arguments = shown
        """Removes preset arguments from a record."""
        self._has_presets = has_presets
        """Returns whether calls of a route may have preset arguments."""
        self._record_tasks = TaskSet()
        """The tasks that make records of calls with large arguments in threads."""
        self._ended: deque[EndedCall] = deque()
        """The calls that have no record yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Cached: `get_running_loop` costs a system call."""
        self._measure = measure or _no_metrics
        self._tap = tap or RecordTap()

    @classmethod
    def of(cls, parts: PolicyParts) -> Trace:
        """Makes the policy of a configuration."""
        presets = parts.find(Preset)
        return cls(
            parts.record,
            parts.redactor,
            arguments=CALL_LOG.of(parts.config).arguments,
            labels=parts.labels,
            measure=parts.measure,
            tap=parts.tap,
            shown=presets.without_preset,
            has_presets=presets.concerns,
        )

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call. Raises ProtocolError, CallError, TimeoutError and CancelledError, nothing else."""
        start, params = self._clock(), call.params
        if call.on_progress is not None:
            call.on_progress = partial(_pass_on_redacted, self._redaction, call.on_progress)
        if call.on_message is not None:
            call.on_message = partial(_pass_on_redacted, self._redaction, call.on_message)
        try:
            result = await call_next(call)
            if result.get("isError") is True:
                result = await self._redacted(result)
        except (UpstreamAnswered, ProtocolError, CallError, TimeoutError, asyncio.CancelledError) as error:
            failure: BaseException = error
            try:
                failure = await self._redact_error(error)
            except asyncio.CancelledError as cancelled:
                failure = cancelled
            self._schedule_record(call, params, start, failure)
            raise failure from None
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            log.error(
                "a %s request failed inside the hub\n%s", call.method, self._redaction.text(text[-MAX_TRACEBACK:])
            )
            call.notes.append(f"failed inside the hub: {type(error).__name__}")
            internal = InternalError(
                "The hub failed to carry out the request; its log says why.", server=call.route.upstream
            )
            self._schedule_record(call, params, start, internal)
            raise internal from None
        self._schedule_record(call, params, start, None, result)
        return result

    async def _redacted(self, value: Any) -> Any:
        """Returns a value without known secrets; a large one is redacted in a thread."""
        return (
            await in_thread(self._redaction.redact_known, value)
            if weighs_more(value)
            else self._redaction.redact_known(value)
        )

    def unknown(
        self,
        method: str,
        exposed: str,
        era: Era,
        caller: Caller,
        reason: str,
        envelope: Envelope | None = None,
    ) -> None:
        """Records a call under an unknown name; `reason` is the rule that hides the name, or `unknown`."""
        code = RESOURCE_NOT_FOUND if method == RESOURCES.act_method and era == "handshake" else INVALID_PARAMS
        facts = {"code": code, "policy": None if reason == "unknown" else "access", "reason": reason}
        self._record_refused(method, exposed, era, caller, envelope, facts)

    def record_over_quota(
        self, method: str, exposed: str, era: Era, caller: Caller, error: Overloaded, envelope: Envelope
    ) -> None:
        """Records a request above its principal's quota."""
        facts = {"code": error.code, "policy": "quota", "reason": error.message}
        self._record_refused(method, exposed, era, caller, envelope, facts)

    def record_refusal(self, facts: Json) -> None:
        """Records a request that a listener refused before it knew the caller."""
        if self._write is None and self._tap.sink is None:
            return
        try:
            self._emit(self._records.of_rejected_connection(facts), ANONYMOUS)
        except Exception:
            log.exception("a refusal could not be recorded")

    def record_action(self, principal: Principal | None, facts: Json) -> None:
        """Records an action on the hub (`RecordBuilder.of_action`) of an administrator; None: of the hub's program."""
        if self._write is None and self._tap.sink is None:
            return
        try:
            label = SOLE.label if principal is None else label_of(principal)
            self._emit(self._records.of_action(label, facts), principal or ANONYMOUS)
        except Exception:
            log.exception("an action could not be recorded")

    def _record_refused(
        self, method: str, exposed: str, era: Era, caller: Caller, envelope: Envelope | None, facts: Json
    ) -> None:
        self._measure("", method, "", "refused", "overloaded" if facts["policy"] == "quota" else "unknown", 0.0)
        if self._write is None and self._tap.sink is None:
            return
        try:
            self._emit(self._records.of_refusal(method, exposed, era, caller, envelope, facts), caller.principal)
        except Exception:
            log.exception("a call could not be recorded")

    async def _redact_error(self, error: BaseException) -> BaseException:
        """Returns the error without known secrets."""
        if isinstance(error, UpstreamAnswered):
            clean = await self._redacted(error.error)
            return error if clean is error.error else UpstreamAnswered(clean)
        if isinstance(error, UnknownName):
            return error  # it quotes only what its caller sent
        if isinstance(error, ProtocolError):
            error.message, error.data = await self._redacted(error.message), await self._redacted(error.data)
        elif isinstance(error, CallError):
            error.message = await self._redacted(error.message)
            error.args = (error.message,)
        return error

    # --- the record --------------------------------------------------------------------------------------------

    def _schedule_record(
        self, call: Call, params: Json, start: float, error: BaseException | None, result: Json | None = None
    ) -> None:
        duration = self._clock() - start
        if not self._ended:
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self._record_ended, self._loop)
        self._ended.append(EndedCall(call, params, duration, PEER.get(), error, result))

    def _record_ended(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(len(self._ended), _AT_ONCE)):
            self._record(self._ended.popleft())
        if self._ended:
            loop.call_soon(self._record_ended, loop)

    def _record(self, ended: EndedCall) -> None:
        call = ended.call
        try:
            call_outcome = outcome(call, ended.error, ended.result)
            tool = call.route.name if call.route.kind is TOOLS else ""
            self._measure(call.route.upstream, call.method, tool, call_outcome[0], call_outcome[2], ended.seconds)
            if self._write is None and self._tap.sink is None:
                return
            arguments = ended.params.get("arguments")
            has_presets = self._has_presets(call.route)
            if has_presets and weighs_more(arguments, LARGE_ARGUMENTS):
                self._record_tasks.start(self._record_large(ended, call_outcome, arguments))
            else:
                if has_presets:
                    arguments = self._visible_arguments(call, arguments)
                record = self._records.of_call(ended, call_outcome, arguments)
                if self._write is not None:
                    self._write(record)
                if self._tap.sink is not None:
                    self._tap.sink(record, call.caller.principal)
        except Exception:
            log.exception("a call could not be recorded")

    async def _record_large(self, ended: EndedCall, call_outcome: Outcome, arguments: Any) -> None:
        try:
            visible_arguments = await in_thread(self._visible_arguments, ended.call, arguments)
            caller = ended.call.caller
            self._emit(self._records.of_call(ended, call_outcome, visible_arguments), caller.principal)
        except Exception:
            log.exception("a call could not be recorded")

    def _emit(self, record: Json, principal: Principal) -> None:
        if self._write is not None:
            self._write(record)
        if self._tap.sink is not None:
            self._tap.sink(record, principal)

    async def close(self) -> None:
        """Waits until all calls are recorded, for a bounded time. Never raises."""
        while self._ended:
            self._record(self._ended.popleft())
        if self._record_tasks:
            await asyncio.wait(self._record_tasks, timeout=MAX_RECORDING)


def _pass_on_redacted(redaction: Redactor, notify: Callable[[Json], None], notification: Json) -> None:
    """Passes on a notification of a server without known secrets."""
    notify(redaction.notification(notification))


def _no_metrics(*_: object) -> None:
    pass
