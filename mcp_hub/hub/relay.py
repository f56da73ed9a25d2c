"""Carries one call out: to its upstream in that one's words, and the answer back in the caller's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from mcp_hub.catalog import resource_uris, tasks
from mcp_hub.catalog.known_uris import KnownUris
from mcp_hub.catalog.tasks import TaskIds
from mcp_hub.errors import INTERNAL_ERROR, UpstreamAnswered
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call, Json
from mcp_hub.policy.shape_result import content_of_error, text_in
from mcp_hub.protocol import bridge, extensions
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.watches import SUBSCRIBE, UNSUBSCRIBE

MAX_TOLD: Final = 1024
"""Clients of the handshake era of whom is remembered what servers are told of them."""

AT_ONCE: Final = 4
"""Blocks of one result that are looked through in one go: where a URI leads may take some milliseconds."""
_LISTS: Final = ("content", "contents", "messages")
"""Where results have many."""

Shaped = Callable[[Call, Json], Awaitable[Json]]
"""A result that did not come through the rules, as they would have left it."""


class Relay:
    """What is behind the last rule. `task_ids()` seals the ids of tasks."""

    def __init__(
        self, upstreams: Mapping[str, Upstream], uris: KnownUris, task_ids: Callable[[], TaskIds], shaped: Shaped
    ) -> None:
        self._upstreams = upstreams
        self._uris = uris
        self._task_ids = task_ids
        self._shaped = shaped
        self._told: dict[int, tuple[Envelope, Envelope]] = {}
        """By the number of what a client of the handshake era has said, which is kept so that the number stays its."""

    async def __call__(self, call: Call) -> Json:
        """The result of one call in its caller's era. Raises ProtocolError and CallError."""
        upstream = self._upstreams[call.route.upstream]
        call.attempts += 1
        if call.method in (SUBSCRIBE, UNSUBSCRIBE):
            return await _watch(upstream, call)
        envelope = self._offered(call.envelope) if call.era == "handshake" and call.asker else _envelope(call)

        def exposed(uri: str) -> str:
            known = uri == call.route.name and call.kind is RESOURCES
            return call.exposed if known else self._uris.exposed(call.caller, call.route.upstream, uri)

        original = partial(self._uris.original, call.caller, call.route.upstream)

        async def ask(more: Json) -> Json:
            if call.asker is not None:
                await call.asker.turn()
            try:
                answered = await upstream.request(
                    call.method,
                    resource_uris.in_request({**call.params, **more}, original),
                    caller=call.caller,
                    envelope=envelope,
                    on_progress=call.on_progress,
                    asker=call.asker,
                    hear=call.on_message,
                )
            except UpstreamAnswered as error:
                raise UpstreamAnswered(resource_uris.in_error(call.method, error.error, exposed)) from None
            spoken.append(answered.era)
            return await _exposed(call.method, answered.result, exposed)

        spoken: list[Era] = []
        result = await ask({})
        if call.era == "handshake" and bridge.wants_input(result):
            result = await bridge.driven(result, call.asker, ask)
        result = eras.result_for(call.era, spoken[-1], call.method, result)
        return await self._task_of(call, result) if call.kind is TOOLS and tasks.ID in result else result

    def _offered(self, envelope: Envelope) -> Envelope:
        """The same for all calls of a client, so it is made once."""
        known = self._told.get(id(envelope))
        if known is None or known[0] is not envelope:
            if len(self._told) >= MAX_TOLD:
                self._told.clear()
            offered = Envelope(
                capabilities=extensions.told(envelope.capabilities, "handshake"), log_level=envelope.log_level
            )
            known = self._told[id(envelope)] = (envelope, offered)
        return known[1]

    async def _task_of(self, call: Call, result: Json) -> Json:
        """A result about a task: its id as the caller knows it, what it has come to as the rules leave it."""
        if call.method == tasks.GET:
            made = replace(call, method=TOOLS.act_method)
            inner, error, said = result.get("result"), result.get("error"), result.get("statusMessage")
            if isinstance(inner, dict):
                result = {**result, "result": await self._shaped(made, inner)}
            if isinstance(error, dict):
                result = {**result, "error": await self._failed(made, error)}
            if result.get("status") == "failed" and isinstance(said, str):
                result = {**result, "statusMessage": (await self._failed(made, {"message": said}))["message"]}
        elif call.method == TOOLS.act_method and result.get("resultType") != tasks.RESULT_TYPE:
            return result
        return self._task_ids().in_result(call.caller, call.route, result)

    async def _failed(self, made: Call, error: Json) -> Json:
        """The error of a task as the rules for error results leave it: with its code, and their text."""
        content = content_of_error(error)
        changed = await self._shaped(made, {"content": content, "isError": True})
        if changed.get("content") == content:
            return error
        return {"code": error.get("code", INTERNAL_ERROR), "message": text_in(changed["content"])}


async def _exposed(method: str, result: Json, expose: resource_uris.Expose) -> Json:
    """`resource_uris.in_result`; long lists in slices, as finding out where one URI leads may take some time."""
    long = {key: value for key in _LISTS if isinstance(value := result.get(key), list) and len(value) > AT_ONCE}
    if not isinstance(result, dict) or not long:
        return resource_uris.in_result(method, result, expose)
    changed = resource_uris.in_result(method, {key: one for key, one in result.items() if key not in long}, expose)
    return {**result, **changed, **{key: await in_slices(_parts(method, key, long[key], expose)) for key in long}}


def _parts(method: str, key: str, members: list[Any], expose: resource_uris.Expose) -> Generator[None, None, list[Any]]:
    found: list[Any] = []
    for at in range(0, len(members), AT_ONCE):
        yield
        found += resource_uris.in_result(method, {key: members[at : at + AT_ONCE]}, expose)[key]
    return found


def _envelope(call: Call) -> Envelope:
    """What a modern server is told of the caller; of one that cannot be asked because of this call, nothing."""
    if call.era == "modern":
        return replace(call.envelope, capabilities=extensions.told(call.envelope.capabilities, "modern"))
    return Envelope(capabilities={}, log_level=call.envelope.log_level)


async def _watch(upstream: Upstream, call: Call) -> Json:
    if call.method == UNSUBSCRIBE:
        await upstream.watching.unwatch(call.route.name, call.caller, call.subscriber)
    elif call.on_update is not None:
        await upstream.watching.watch(call.route.name, call.caller, call.subscriber, call.on_update)
    return {}
