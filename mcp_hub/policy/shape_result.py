"""What becomes of a result before the client gets it: post-processing, and a bound on its size."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from mcp_hub.catalog import Item, Route
from mcp_hub.config.models import Server
from mcp_hub.config.rules import PostProcess
from mcp_hub.errors import CallError, ResultTooLarge, ToolFailed
from mcp_hub.kinds import TOOLS
from mcp_hub.long_results import META_KEY, LongResults, head
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import RulesOfTools
from mcp_hub.policy.steps import STEPS, StepFailed, is_result
from mcp_hub.wire.frames import encode

log = logging.getLogger("mcp_hub.policy")

Function = Callable[[str, Json, Json, Json], Awaitable[Json | None]]
"""`run_function(name, call, result, options)`: what a function of the user's makes of a result, None for the same."""

NOTE: Final = 1024
"""Bytes at most of what is added to a shortened result: where the rest is."""
WHOLE: Final = 4
"""Times the limit that structured content may be long where a shorter one would break its tool's schema."""
_LEAST_TEXT: Final = 64


class ShapeResult:
    """Runs the steps of the configuration, then shortens what is above `max_result_bytes`; the rest can be read."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        store: LongResults,
        run_function: Function,
        listed: Callable[[Route], Json | None],
    ) -> None:
        self._servers = servers
        self._rules = RulesOfTools(servers)
        self._store = store
        self._run_function = run_function
        self._listed = listed

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises ToolFailed for a step that failed, ResultTooLarge for what cannot be shortened."""
        result = await call_next(call)
        if call.method != TOOLS.act_method:
            return result
        server, rules = self._servers[call.route.upstream], self._rules(call.route)
        for step in (*server.postprocess, *rules.postprocess):
            result = await self._processed(step, call, result)
        limit = rules.max_result_bytes or server.max_result_bytes
        return result if limit is None else self._bounded(call, result, limit)

    async def _processed(self, step: PostProcess, call: Call, result: Json) -> Json:
        try:
            changed = await self._run(step, call, result)
            if changed is not None and not is_result(changed):
                raise StepFailed("it returned something that is no result of a call")
        except (StepFailed, CallError) as error:
            if step.on_error == "keep":
                log.warning("%s: post-processing by %s failed, the result stays: %s", call.exposed, step.step, error)
                call.notes.append(f"postprocess: {step.step} failed, the result stays")
                return result
            text = f"The result of {call.exposed!r} is withheld: its post-processing by {step.step!r} failed: {error}"
            raise ToolFailed(text, server=call.route.upstream) from None
        if changed is None:
            return result
        call.notes.append(f"postprocess: {step.step}")
        return changed

    async def _run(self, step: PostProcess, call: Call, result: Json) -> Json | None:
        if step.step in STEPS:
            return STEPS[step.step](result, step.arguments)
        facts = {
            "name": call.route.name,
            "server": call.route.upstream,
            "arguments": call.params.get("arguments") or {},
        }
        return await self._run_function(step.step, facts, result, step.arguments)

    def _bounded(self, call: Call, result: Json, limit: int) -> Json:
        size = len(encode(result))
        if size <= limit:
            return result
        uri, pages = self._store.keep(result, call.caller, limit)
        left = limit
        kept = {key: one for key, one in result.items() if key not in ("content", "structuredContent")}
        if "structuredContent" in result:
            structured = self._structured(call.route, result["structuredContent"], limit, uri)
            if structured is not None:
                kept["structuredContent"] = structured
                left = max(limit - len(encode(structured)), 0)
        content, shown = _cut(result.get("content"), left)
        text = f"(shortened: {shown:,} of {size:,} bytes; all of it: read the resource {uri}/1, page 1 of {pages})"
        content.append({"type": "text", "text": text})
        content.append(
            {"type": "resource_link", "uri": f"{uri}/1", "name": "the whole result", "mimeType": "text/plain"}
        )
        facts = {"uri": uri, "bytes": size, "pages": pages, "next": f"{uri}/1"}
        call.notes.append(f"max_result_bytes: {size:,} bytes shortened to {limit:,}")
        meta = result.get("_meta")
        return {**kept, "content": content, "_meta": {**(meta if isinstance(meta, dict) else {}), META_KEY: facts}}

    def _structured(self, route: Route, value: Any, limit: int, uri: str) -> Any:
        """The structured content that is passed on: whole, shortened within the tool's schema, or None.

        Raises ResultTooLarge where the schema wants one and there is none short enough.
        """
        size = len(encode(value))
        if size <= limit // 2:
            return value
        tool = self._listed(route)
        schema = tool.get("outputSchema") if tool is not None else None
        if not isinstance(schema, dict):
            return None
        shorter = _trimmed(value, max(limit // 8, _LEAST_TEXT))
        if len(encode(shorter)) <= limit and _fits(schema, shorter):
            return shorter
        if size <= limit * WHOLE:
            return value
        text = (
            f"The structured result of {route.name!r} has {size:,} bytes, more than {limit:,} "
            f"(setting: servers.{route.upstream}.max_result_bytes); it can be read in pages: {uri}/1"
        )
        raise ResultTooLarge(text, server=route.upstream)


def _fits(schema: Json, value: Any) -> bool:
    from mcp_hub.policy.schemas import accepts

    return accepts(schema, value)


def _trimmed(value: Any, longest: int, depth: int = 0) -> Any:
    """The value with shorter texts and lists; objects keep all their members, everything its type."""
    if isinstance(value, str):
        return value if len(value) <= longest else head(value, longest)
    if isinstance(value, list) and depth < 50:
        kept: list[Any] = []
        left = longest
        for member in value:
            shorter = _trimmed(member, longest, depth + 1)
            left -= len(encode(shorter))
            if left < 0:
                break
            kept.append(shorter)
        return kept
    if isinstance(value, dict) and depth < 50:
        return {name: _trimmed(member, longest, depth + 1) for name, member in value.items()}
    return value


def _cut(content: Any, left: int) -> tuple[list[Any], int]:
    """(what of the blocks is at most `left` bytes, how many bytes that is). Only texts are ever cut."""
    kept: list[Any] = []
    shown = 0
    for block in content if isinstance(content, list) else []:
        size = len(encode(block))
        text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if size <= left - shown:
            kept.append(block)
            shown += size
        elif isinstance(text, str):
            room = left - shown - (size - len(encode(text)))
            if room >= _LEAST_TEXT:
                part = _at_a_border(head(text, room), text)
                kept.append({**block, "text": part})
                shown = left
        elif isinstance(block, dict):
            what = f"{block.get('type', 'a block')} {block.get('mimeType', '')}".strip()[:100]
            note = {"type": "text", "text": f"({what} of {size:,} bytes left out)"}
            if len(encode(note)) <= left - shown:
                kept.append(note)
                shown += len(encode(note))
    return kept, shown


def _at_a_border(part: str, text: str) -> str:
    """The part up to the last line or word, where that is not far back."""
    if len(part) == len(text):
        return part
    for border in ("\n", " "):
        at = part.rfind(border)
        if at > len(part) * 0.9:
            return part[:at]
    return part
