"""The policy that makes an OpenTelemetry span for every call, around all other policies."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from mcp_hub.errors import CallCancelled
from mcp_hub.observability.stalls import in_thread
from mcp_hub.observability.tracing import TRACE_CONTEXT, Attributes
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts
from mcp_hub.policy.call_record import LARGE_ARGUMENTS, MAX_TEXT, outcome
from mcp_hub.policy.presentation import Preset
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import PROMPTS, TOOLS

log = logging.getLogger("mcp_hub.policy")

EXECUTE_TOOL: Final = "execute_tool"
MAX_DESCRIPTION: Final = 1000
BUDGET: Final = 4096
"""Bytes of JSON of arguments, and of a result, in a span."""


class Span(Protocol):
    """The span of one running call. `carrier` is its trace context for the upstream, empty if there is none."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """The trace context to send to the upstream."""
        ...

    @property
    def recording(self) -> bool:
        """Whether the span is sampled, so that attributes are worth computing."""
        ...

    def tell(self, attributes: Attributes) -> None:
        """Adds attributes."""
        ...

    def end(self, error: tuple[str, str, str] | None) -> None:
        """Ends the span: successfully, or with (code, type of the exception or "", text)."""
        ...


class Tracer(Protocol):
    """Starts spans. `meta` is that of the request, which may name the parent span."""

    def begin(self, name: str, meta: Mapping[str, Any]) -> Span:
        """Starts a span."""
        ...


class Spans(Policy):
    """Makes a span for each call. `tracer()` returns a tracer once it is ready, or None if nothing can be traced.

    The client's trace context becomes the parent, and the span's own is sent to the upstream instead. Errors of
    tracing never affect a call.
    """

    name = "spans"

    def __init__(self, parts: PolicyParts, tracer: Callable[[], Awaitable[Tracer | None]]) -> None:
        self._visible_arguments = parts.find(Preset).without_preset
        self._tracer = tracer
        self._redaction = parts.redactor
        self._labels = parts.labels
        self._listed = parts.listed
        self._arguments = parts.config.tracing.arguments

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call within a span. Raises what the call raises."""
        tracer = await self._tracer()
        span = await self._begin(tracer, call) if tracer is not None else None
        if span is None:
            return await call_next(call)
        try:
            result = await call_next(call)
        except BaseException as error:
            self._end(span, call, error, None)
            raise
        self._end(span, call, None, result)
        return result

    async def _begin(self, tracer: Tracer, call: Call) -> Span | None:
        try:
            meta = call.params.get("_meta")
            meta = meta if isinstance(meta, dict) else {}
            span = tracer.begin(self._name(call.method, call.exposed), meta)
            if span.recording:
                span.tell(await self._request_attributes(call))
            if span.carrier:
                client_meta = {key: value for key, value in meta.items() if key not in TRACE_CONTEXT}
                call.params = {**call.params, "_meta": {**client_meta, **span.carrier}}
        except Exception:
            log.exception("a span could not be begun")
            return None
        return span

    def _end(self, span: Span, call: Call, error: BaseException | None, result: Json | None) -> None:
        try:
            verdict, policy, code, text = outcome(call, error, result)
            if span.recording:
                span.tell(self._outcome_attributes(call, policy, result))
            if verdict == "ok":
                span.end(None)
            elif error is None:
                kind = type(call.raised[-1]).__name__ if call.raised else ""
                span.end(("tool_error", kind, "The result says that the tool failed."))
            else:
                error_code = CallCancelled.code if isinstance(error, asyncio.CancelledError) else str(code or verdict)
                span.end((error_code, type(error).__name__, self._text(text or str(error))))
        except Exception:
            log.exception("a span could not be ended")

    async def missed(self, method: str, exposed: str, meta: Any) -> None:
        """Makes a span for a call under an unknown name."""
        tracer = await self._tracer()
        if tracer is None:
            return
        try:
            span = tracer.begin(self._name(method, exposed), meta if isinstance(meta, dict) else {})
            if span.recording:
                span.tell(self._call_attributes(method, exposed, self._labels.next_call()))
            span.end(("unknown", "UnknownName", "There is no such name here."))
        except Exception:
            log.exception("a span could not be made")

    # --- attributes --------------------------------------------------------------------------------------------

    def _name(self, method: str, exposed: str) -> str:
        if method == TOOLS.act_method:
            return f"{EXECUTE_TOOL} {self._text(exposed)}"
        # URIs are too many to be names of spans.
        return f"{method} {self._text(exposed)}" if method == PROMPTS.act_method else method

    def _call_attributes(self, method: str, exposed: str, id: str) -> Attributes:
        attributes: Attributes = {"mcp.method.name": method}
        if method != TOOLS.act_method:
            return {**attributes, "mcp.name": self._text(exposed)}
        return {
            **attributes,
            "gen_ai.operation.name": EXECUTE_TOOL,
            "gen_ai.tool.name": self._text(exposed),
            "gen_ai.tool.call.id": id,
        }

    async def _request_attributes(self, call: Call) -> Attributes:
        id = call.label = call.label or self._labels.next_call()
        attributes = {
            **self._call_attributes(call.method, call.exposed, self._text(id)),
            "mcp.server": call.route.upstream,
            "agentscope.function.name": self._text(f"{call.route.upstream}.{call.route.name}"),
        }
        listed = self._listed(call.route, call.caller) if call.route.kind is TOOLS else None
        if listed is not None and isinstance(description := listed.get("description"), str):
            attributes["gen_ai.tool.description"] = self._text(description, MAX_DESCRIPTION)
        if self._arguments:
            raw_arguments = call.params.get("arguments", {})
            large = weighs_more(raw_arguments, LARGE_ARGUMENTS)
            arguments = (
                await in_thread(self._visible_arguments, call, raw_arguments)
                if large
                else self._visible_arguments(call, raw_arguments)
            )
            redacted = self._redaction.value(arguments, BUDGET)
            attributes["agentscope.function.input"] = _json({"name": self._text(call.exposed), "arguments": redacted})
            if call.method == TOOLS.act_method:
                attributes["gen_ai.tool.call.arguments"] = _json(redacted)
        return attributes

    def _outcome_attributes(self, call: Call, policy: str | None, result: Json | None) -> Attributes:
        attributes: Attributes = {"mcp_hub.attempts": call.attempts}
        if policy is not None:
            attributes["mcp_hub.policy"] = policy
        if call.fallback is not None:
            attributes["mcp_hub.fallback"] = self._text(call.fallback)
        if result is not None and self._arguments:
            attributes["agentscope.function.output"] = output = _json(self._redaction.value(result, BUDGET))
            if call.method == TOOLS.act_method:
                attributes["gen_ai.tool.call.result"] = output
        return attributes

    def _text(self, text: str, limit: int = MAX_TEXT) -> str:
        return _encodable(self._redaction.beginning(text, limit))


def _json(value: Any) -> str:
    return _encodable(json.dumps(value, ensure_ascii=False))


def _encodable(text: str) -> str:
    """Replaces lone surrogates, which cannot be encoded and would fail the export of a whole batch of spans."""
    return text.encode("utf-8", "replace").decode()
