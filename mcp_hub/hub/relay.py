"""Relays one call: translates it to its upstream's names and era, and the result back to those of the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from mcp_hub.catalog import names, resource_uris
from mcp_hub.catalog.exposed_ids import TASK_GET, TASK_ID, TASK_RESULT_TYPE, TaskIds, UriMap
from mcp_hub.errors import INTERNAL_ERROR, UpstreamAnswered
from mcp_hub.hub.exposure import client_of
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call, Json
from mcp_hub.policy.shape_result import content_of_error, text_in
from mcp_hub.policy.sharing import Sharing
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import SUBSCRIBE, UNSUBSCRIBE, Envelope
from mcp_hub.protocol.kinds import RESOURCES, SKILLS, TOOLS
from mcp_hub.protocol.questions import (
    ALLOWED,
    QuestionRules,
    forwarded_capabilities,
    pass_on,
    pass_on_in_task,
    resolve_input_requests,
    wants_input,
    with_extension,
    without_count,
)
from mcp_hub.protocol.skill_entries import files_of, with_uris
from mcp_hub.security.callers import CallerSlot
from mcp_hub.upstream import Upstream

BLOCKS_PER_STEP: Final = 4
"""The most blocks of one result that are translated in one step, as resolving one URI may take some milliseconds."""
_LISTS: Final = ("content", "contents", "messages", "resources")
"""The members of results that are lists of blocks."""

Shaped = Callable[[Call, Json], Awaitable[Json]]
"""Applies the result-shaping policies to a result that did not come through the chain."""


class Relay:
    """The innermost step of the chain: sends a call to its upstream. `task_ids()` seals the ids of tasks."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        uris: UriMap,
        task_ids: Callable[[], TaskIds],
        shaped: Shaped,
        sharing: Sharing,
    ) -> None:
        self._upstreams = upstreams
        self._uris = uris
        self._task_ids = task_ids
        self._shaped = shaped
        self._sharing = sharing
        self._forwarded_envelopes = CallerSlot[tuple[Envelope, Envelope]]()
        """The envelope of each session, and its form for servers."""

    async def __call__(self, call: Call) -> Json:
        """Returns the result of one call in its caller's era. Raises ProtocolError and CallError."""
        upstream = self._upstreams[call.route.upstream]
        call.attempts += 1
        if call.method in (SUBSCRIBE, UNSUBSCRIBE):
            return await _watch(upstream, call)
        rules, questions, given = upstream.questions, call.questions, call.params
        era = call.era if call.asker is not None or call.era == "modern" else None  # any era if nobody can be asked
        envelope = self._envelope(call, rules)
        if "requestState" in given:
            given, questions.count = without_count(given)
        upstream_era, exposed = call.era, partial(self._exposed_uri, call)
        original = partial(self._uris.original, call.caller, call.route.upstream)

        async def send(responses: Json) -> Json:
            nonlocal upstream_era
            if call.asker is not None:
                await call.asker.wait_for_turn()
            params = {**given, **responses}
            if "inputResponses" in params:
                params = resource_uris.in_request(params, original)
            try:
                answer = await upstream.request(
                    call.method,
                    params,
                    caller=call.caller,
                    era=era,
                    envelope=envelope,
                    on_progress=call.on_progress,
                    asker=call.asker,
                    on_log=call.on_message,
                    questions=questions,
                )
            except UpstreamAnswered as error:
                raise UpstreamAnswered(resource_uris.in_error(call.method, error.error, exposed)) from None
            upstream_era = answer.era
            if resource_uris.names_no_uri(call.method, answer.result):
                return answer.result
            return await _exposed(call.method, answer.result, exposed)

        result = await send({})
        if "resultType" in result and wants_input(result):
            result = await self._after_input(call, upstream, result, send)
        if "structuredContent" in result and not result.get("content"):
            result = _readable(call.envelope, result)
        if upstream_era != call.era:
            result = eras.result_for(call.era, upstream_era, call.method, result)
        if call.route.kind is SKILLS:
            return await in_slices(self._skill(call, result))
        if TASK_ID in result and call.kind is TOOLS:
            return await self._task_of(call, pass_on_in_task(result, rules, questions))
        return result

    async def _after_input(
        self, call: Call, upstream: Upstream, result: Json, send: Callable[[Json], Awaitable[Json]]
    ) -> Json:
        """Asks the client what the upstream wants to know and repeats the call, or lets the client repeat it."""
        rules, questions = upstream.questions, call.questions
        if call.in_one_go:
            return await resolve_input_requests(result, rules, call.asker, questions, send)
        # A server that is a process belongs to this replica; a server with a URL is the same for all replicas.
        place = self._sharing.replica_name if upstream.server.url is None else ""
        return pass_on(result, rules, call.envelope.capabilities, questions, place)

    def _exposed_uri(self, call: Call, uri: str) -> str:
        is_name = uri == call.route.name and call.kind is RESOURCES
        return call.exposed if is_name else self._uris.exposed(call.caller, call.route.upstream, uri)

    def _skill(self, call: Call, result: Json) -> Generator[None, None, Json]:
        """Returns a skill's entry with the URIs for its caller: prefixed if it asked for a prefixed one."""
        entry: Json = result.get("skill") or {}
        files, upstream = files_of(entry), call.route.upstream
        is_unprefixed = call.exposed == call.route.name
        for uri in files:
            yield
            self._uris.give(call.caller, upstream, uri, uri if is_unprefixed else names.expose_uri(upstream, uri))
        if is_unprefixed or not files:
            return result
        return {**result, "skill": with_uris(entry, partial(names.expose_uri, upstream))}

    def _envelope(self, call: Call, rules: QuestionRules) -> Envelope:
        """Returns the envelope that a server gets of the caller.

        It contains no capabilities if the caller cannot be asked during the call. For a client of the handshake era
        that can be asked it is made once for all its calls.
        """
        envelope = call.envelope
        if call.era == "modern":
            declared, kind = forwarded_capabilities(envelope.capabilities, "modern"), call.route.kind
            if kind.extension is not None:
                declared = with_extension(declared, kind.extension)  # who asks for a skill supports the extension
            if declared != envelope.capabilities:
                envelope = replace(envelope, capabilities=declared)
        elif call.asker is None:
            envelope = Envelope(capabilities={}, log_level=envelope.log_level)
        else:
            entry = self._forwarded_envelopes.get(call.caller)
            if entry is None or entry[0] is not envelope:
                declared = forwarded_capabilities(envelope.capabilities, "handshake")
                forwarded = Envelope(capabilities=declared, log_level=envelope.log_level)
                entry = self._forwarded_envelopes[call.caller] = (envelope, forwarded)
            envelope = entry[1]
        if rules.allow != ALLOWED:
            envelope = replace(envelope, capabilities=rules.filter_capabilities(envelope.capabilities))
        return envelope

    async def _task_of(self, call: Call, result: Json) -> Json:
        """Returns a result about a task, with its id sealed for the caller and its own result shaped by policies."""
        if call.method == TASK_GET:
            tool_call = replace(call, method=TOOLS.act_method)
            inner, error, status = result.get("result"), result.get("error"), result.get("statusMessage")
            if isinstance(inner, dict):
                result = {**result, "result": await self._shaped(tool_call, inner)}
            if isinstance(error, dict):
                result = {**result, "error": await self._shaped_error(tool_call, error)}
            if result.get("status") == "failed" and isinstance(status, str):
                shaped = await self._shaped_error(tool_call, {"message": status})
                result = {**result, "statusMessage": shaped["message"]}
        elif call.method == TOOLS.act_method and result.get("resultType") != TASK_RESULT_TYPE:
            return result
        return self._task_ids().in_result(call.caller, call.route, result)

    async def _shaped_error(self, tool_call: Call, error: Json) -> Json:
        """Returns the error of a task as the policies for error results leave it: with its code and their text."""
        content = content_of_error(error)
        changed = await self._shaped(tool_call, {"content": content, "isError": True})
        if changed.get("content") == content:
            return error
        return {"code": error.get("code", INTERNAL_ERROR), "message": text_in(changed["content"])}


async def _exposed(method: str, result: Json, expose: resource_uris.Expose) -> Json:
    """Translates the URIs of a result as `resource_uris.in_result` does, those of long lists in slices."""
    long = {key: value for key in _LISTS if isinstance(value := result.get(key), list) and len(value) > BLOCKS_PER_STEP}
    if not isinstance(result, dict) or not long:
        return resource_uris.in_result(method, result, expose)
    short = {key: member for key, member in result.items() if key not in long}
    changed = resource_uris.in_result(method, short, expose)
    return {**result, **changed, **{key: await in_slices(_parts(method, key, long[key], expose)) for key in long}}


def _parts(method: str, key: str, members: list[Any], expose: resource_uris.Expose) -> Generator[None, None, list[Any]]:
    parts: list[Any] = []
    for start in range(0, len(members), BLOCKS_PER_STEP):
        yield
        parts += resource_uris.in_result(method, {key: members[start : start + BLOCKS_PER_STEP]}, expose)[key]
    return parts


def _readable(envelope: Envelope, result: Json) -> Json:
    """Returns a result without content as the model of this client sees it: some see no structured content."""
    client = client_of(envelope)
    return eras.with_text(result) if client is not None and client.reads_content_alone else result


async def _watch(upstream: Upstream, call: Call) -> Json:
    if call.method == UNSUBSCRIBE:
        await upstream.subscriptions.unwatch(call.params["uri"], call.caller, call.subscriber)
    elif call.on_update is not None:
        await upstream.subscriptions.watch(call.params["uri"], call.caller, call.subscriber, call.on_update)
    return {}
