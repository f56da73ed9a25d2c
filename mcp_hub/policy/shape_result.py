"""Post-processing of results by configured steps, and the bound on their size."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mcp_hub.catalog import Item, Route
from mcp_hub.config.entry_rules import PostProcessStep, TokenLimit
from mcp_hub.config.field_types import check_of
from mcp_hub.config.models import Server
from mcp_hub.config.settings import EntryKey, parsed_key
from mcp_hub.errors import CallError, ProtocolError, ResultTooLarge, ToolFailed, UpstreamAnswered
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Listed, Next, Policy, PolicyParts, without_output_schema
from mcp_hub.policy.long_results import (
    META_KEY,
    LongResults,
    ResultPages,
    content_tokens,
    in_tokens,
    new_uri,
    pages_of,
    shortened_content,
    shortened_values,
    without_lone_surrogates,
)
from mcp_hub.policy.patterns import ToolRulesTable
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import knows_resource_links
from mcp_hub.protocol.frames import FrameError, decode, encode, weighs_more
from mcp_hub.protocol.kinds import TOOLS

MAX_CHARACTERS: Final = 20_000
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_PATH: Final = re.compile(r"(?:(?:[^.\[\]]+|\[\d{1,9}\])(?:\.[^.\[\]]+|\[\d{1,9}\])*)?")


class StepFailed(Exception):
    """A post-processing step failed; `str()` says why."""


def truncate(result: Json, options: Mapping[str, Any]) -> Json:
    """Cuts the texts of a result to `max_chars` characters in total; other blocks stay.

    Raises StepFailed for a wrong option.
    """
    _check_options(options, "max_chars")
    remaining = options.get("max_chars", MAX_CHARACTERS)
    if not isinstance(remaining, int) or isinstance(remaining, bool) or remaining < 0:
        raise StepFailed("max_chars must be a whole number")
    blocks = _content(result)
    excess = sum(len(text) for block in blocks if (text := _text(block)) is not None) - remaining
    if excess <= 0:
        return result
    content: list[Any] = []
    cut = False
    for block in blocks:
        text = _text(block)
        if text is None:
            content.append(block)
        elif len(text) <= remaining:
            remaining -= len(text)
            content.append(block)
        elif not cut:
            content.append({**block, "text": f"{text[:remaining]}… ({excess:,} more characters)"})
            remaining, cut = 0, True
    return {**result, "content": content}


def select_text(result: Json, options: Mapping[str, Any]) -> Json:
    """Keeps only the texts, including those of embedded resources: no images, links or structured content.

    Raises StepFailed for an unknown option.
    """
    _check_options(options)
    texts: list[Json] = []
    for block in _content(result):
        if isinstance(block, dict) and block.get("type") == "text":
            texts.append(block)
            continue
        inner = block.get("resource") if isinstance(block, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("text"), str):
            texts.append({"type": "text", "text": inner["text"]})
    fields = {key: member for key, member in result.items() if key != "structuredContent"}
    return {**fields, "content": texts}


def select_json(result: Json, options: Mapping[str, Any]) -> Json:
    """Keeps the value at `path` (`a.b[0]`) of `structuredContent`, or else of the first text that is JSON.

    Without `path` it keeps the whole value. The value becomes the text, and `structuredContent` if it is an object. An
    error result of the server stays as it is. Raises StepFailed if there is no such value.
    """
    _check_options(options, "path")
    path = options.get("path", "")
    if not isinstance(path, str) or _PATH.fullmatch(path) is None:
        raise StepFailed("path must be like rows[0].name")
    if result.get("isError"):
        return result
    value = result.get("structuredContent")
    if value is None:
        value = _first_json(result)
    for name, index in _STEP.findall(path):
        try:
            value = _member(value, name, index)
        except LookupError:
            raise StepFailed(f"there is nothing at {path!r}") from None
    fields = {key: member for key, member in result.items() if key != "structuredContent"}
    text = value if isinstance(value, str) else encode(value).decode()
    selected = {**fields, "content": [{"type": "text", "text": text}]}
    return {**selected, "structuredContent": value} if isinstance(value, dict) else selected


def _check_options(options: Mapping[str, Any], *names: str) -> None:
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise StepFailed(f"it has no argument {', '.join(unknown)}; it has {', '.join(names) or 'none'}")


def _member(value: Any, name: str, index: str) -> Any:
    if isinstance(value, list) and index:
        return value[int(index)]
    if isinstance(value, dict) and name:
        return value[name]
    raise LookupError


def _first_json(result: Json) -> Any:
    for block in _content(result):
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            try:
                return decode(text.encode("utf-8", "surrogatepass"))
            except FrameError:
                continue
    raise StepFailed("no text of the result is JSON")


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _content(result: Json) -> list[Any]:
    content = result.get("content")
    return content if isinstance(content, list) else []


STEPS: Final[Mapping[str, Callable[[Json, Mapping[str, Any]], Json]]] = {
    "truncate": truncate,
    "select_text": select_text,
    "json": select_json,
}


def is_result(value: Any) -> bool:
    """Returns whether a value is a complete result of a call: its content blocks all have a type."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or value.get("resultType", "complete") != "complete":
        return False
    return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content)


log = logging.getLogger("mcp_hub.policy")

Function = Callable[[str, Json, Json, Json], Awaitable[Json | None]]
"""`run_function(name, call, result, options)` returns the changed result, None for no change."""

WHOLE: Final = 4
"""Structured content may have this many times the limit if a shorter one would not fit the tool's schema."""
_KEY: Final = len('"structuredContent":,')


_BYTES_OF_TOKEN: Final = 4
"""Bytes of a token in most texts. A page of a result has as many for each token of the limit."""
MAX_RESULT_TOKENS: Final[EntryKey[int | None]] = EntryKey(
    "max_result_tokens", parsed_key(check_of(TokenLimit)), None, in_defaults=True
)
"""The tokens that the texts of a result are shortened to; None: they are not shortened."""


class InProgram(Protocol):
    """The functions that a Python program has registered for a tool that its hub serves to clients."""

    def check(self, arguments: Json) -> None:
        """Raises InvalidParameters if the program refuses the arguments."""
        ...

    async def process(self, call: Json, result: Json) -> Json:
        """Returns the processed result. Raises ToolFailed, whose message does not quote the result."""
        ...


class _Limits(NamedTuple):
    """The size limits of a result; None: no limit."""

    bytes: int | None
    tokens: int | None

    def __bool__(self) -> bool:
        return self.bytes is not None or self.tokens is not None


class _Size(NamedTuple):
    """The size of a result. Tokens of content and structured content count apart, as a model reads only one."""

    bytes: int
    content: int = 0
    structured: int = 0


class _Bounded(NamedTuple):
    """A shortened result, or the error if there is none, and the pages of the whole result."""

    result: Json | ResultTooLarge
    pages: ResultPages


def content_of_error(error: Json) -> list[Json]:
    """Returns a JSON-RPC error as the content of an error result: its message, and its data as JSON."""
    content = [{"type": "text", "text": str(error.get("message", ""))}]
    if details := {key: value for key, value in error.items() if key not in ("code", "message")}:
        content.append({"type": "text", "text": encode(details).decode("utf-8", "replace")})
    return content


def text_in(content: Sequence[Json]) -> str:
    """Returns the texts in the content of a result."""
    return "\n".join(block["text"] for block in content if isinstance(block.get("text"), str))


class ShapeResult(Policy):
    """Runs the configured steps on results, then shortens those above their limits and stores them whole in pages.

    `max_result_bytes` counts all of a result, `max_result_tokens` what a model reads of it.

    Errors go through the steps as error results, and keep their code.
    """

    name = "shape-result"
    keys = (MAX_RESULT_TOKENS,)

    def __init__(
        self,
        servers: Mapping[str, Server],
        store: LongResults,
        run_function: Function,
        listed: Listed,
    ) -> None:
        self._servers = servers
        self._rules = ToolRulesTable(servers)
        self._store = store
        self._run_function = run_function
        self._listed = listed

    @classmethod
    def of(cls, parts: PolicyParts) -> ShapeResult:
        """Makes the policy of a configuration."""
        return cls(parts.servers, parts.long_results, parts.run_function, parts.listed)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Removes the output schema of tools whose steps may change `structuredContent`, which would violate it."""
        return [without_output_schema(item) if self._changes(item.route) else item for item in items]

    def _steps(self, route: Route) -> tuple[PostProcessStep, ...]:
        return (*self._servers[route.upstream].postprocess, *self._rules[route].postprocess)

    def _limits(self, route: Route) -> _Limits:
        rules, server = self._rules[route], self._servers[route.upstream]
        return _Limits(
            rules.max_result_bytes or server.max_result_bytes, rules.max_result_tokens or MAX_RESULT_TOKENS.of(server)
        )

    def _changes(self, route: Route) -> bool:
        program = self._rules[route].in_program is not None
        return program or any(step.step != "truncate" for step in self._steps(route))

    def concerns(self, route: Route) -> bool:
        """Returns whether the route is a tool with steps or a size limit."""
        if route.kind is not TOOLS:
            return False
        return bool(self._steps(route) or self._limits(route)) or self._rules[route].in_program is not None

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call and processes its result.

        Raises ToolFailed for a failed step, and ResultTooLarge for a result that cannot be shortened.
        """
        if call.method != TOOLS.act_method:
            return await call_next(call)
        program: InProgram | None = self._rules[call.route].in_program if call.preset is None else None
        try:
            if program is not None:
                program.check(call.params.get("arguments") or {})
            result = await call_next(call)
        except (CallError, UpstreamAnswered) as error:
            raise await self._error(call, program, error) from None
        if result.get("resultType", "complete") != "complete":
            return result  # a request of the server to the caller passes unchanged
        result = await self._run_steps(call, program, result)
        limits = self._limits(call.route)
        if not limits:
            return result
        large, uri = weighs_more(result), new_uri()
        if large:
            bounded = await in_thread(self._bounded, call, result, limits, uri)
        else:
            bounded = self._bounded(call, result, limits, uri)
        if bounded is None:
            return result
        self._store.put(uri, bounded.pages, call.caller)
        if isinstance(bounded.result, ResultTooLarge):
            raise bounded.result
        return bounded.result

    async def _run_steps(self, call: Call, program: InProgram | None, result: Json) -> Json:
        """Runs the steps on a result, one after the other. Raises ToolFailed."""
        for step in self._steps(call.route):
            result = await self._apply_step(step, call, result)
        if program is not None:
            result = await program.process(_facts(call), result)
        return result

    async def _error(
        self, call: Call, program: InProgram | None, error: CallError | UpstreamAnswered
    ) -> CallError | UpstreamAnswered:
        """Returns the error with its text changed by the steps, or the error of a step that failed."""
        content = content_of_error(error.error if isinstance(error, UpstreamAnswered) else {"message": error.message})
        result: Json = {"content": content, "isError": True}
        if isinstance(error, CallError):
            result["_meta"] = {"mcp-hub/error": error.data(call.exposed)}
        try:
            changed = await self._run_steps(call, program, result)
        except ToolFailed as failed:
            return failed
        if changed.get("content") == content:
            return error
        message = text_in(changed["content"])
        if isinstance(error, UpstreamAnswered):
            return UpstreamAnswered({"code": error.code, "message": message})
        error.message, error.args = message, (message,)
        return error

    async def _apply_step(self, step: PostProcessStep, call: Call, result: Json) -> Json:
        try:
            changed = await self._run(step, call, result)
            if changed is not None and not is_result(changed):
                raise StepFailed("it returned something that is not the result of a call")
        except (StepFailed, CallError, ProtocolError) as error:
            # Other errors, such as a process that died, may quote the result: only their code is shown.
            reason = str(error) if isinstance(error, StepFailed | ToolFailed) else getattr(error, "code", "")
            if step.on_error == "keep":
                log.warning("%s: post-processing by %s failed, the result stays: %s", call.exposed, step.step, reason)
                call.notes.append(f"postprocess: {step.step} failed, the result stays")
                return result
            text = f"The result of {call.exposed!r} is withheld: its post-processing by {step.step!r} failed: {reason}"
            raise ToolFailed(text, server=call.route.upstream) from None
        if changed is None:
            return result
        call.notes.append(f"postprocess: {step.step}")
        return eras.result_for(call.era, "modern", call.method, changed)

    async def _run(self, step: PostProcessStep, call: Call, result: Json) -> Json | None:
        if step.step in STEPS:
            work = STEPS[step.step]
            large = weighs_more(result)
            return await in_thread(work, result, step.arguments) if large else work(result, step.arguments)
        return await self._run_function(step.step, _facts(call), result, step.arguments)

    def _bounded(self, call: Call, result: Json, limits: _Limits, uri: str) -> _Bounded | None:
        """Returns the replacement of a result that is too long, None if it is short enough. It may run in a thread."""
        size = _measured_size(result, limits)
        tokens = limits.tokens if limits.tokens is not None and max(size[1:]) > limits.tokens else None
        if tokens is None and size.bytes <= (limits.bytes or size.bytes):
            return None
        limit = limits.bytes or size.bytes
        flags = {
            key: value for key, value in result.items() if key == "resultType" or (key == "isError" and value is True)
        }
        parts: Json = {key: result[key] for key in ("content", "structuredContent") if key in result}
        extra = {key: value for key, value in result.items() if key not in flags and key not in parts}
        room = limit - len(encode(extra))
        if room < limit // 2:
            parts, extra, room = parts | extra, {}, limit
        pages = pages_of(parts, min(limit, tokens * _BYTES_OF_TOKEN if tokens is not None else limit))
        try:
            structured = self._structured(call, result, room, _Limits(limit, tokens), size, uri)
        except ResultTooLarge as error:
            return _Bounded(error, pages)
        structured_size = 0
        if structured is not None:
            extra["structuredContent"] = structured
            structured_size = len(encode(structured)) + _KEY
        blocks, scope = result.get("content"), ""
        if tokens is not None:
            blocks, shown_tokens, scope = shortened_content(blocks, tokens, in_tokens())
        content, shown_bytes, byte_scope = shortened_content(blocks, max(room - structured_size, 0))
        facts: Json = {"uri": uri, "bytes": size.bytes, "pages": len(pages.all), "next": f"{uri}/1"}
        if tokens is None:
            amount = f"{structured_size + shown_bytes:,} of {size.bytes:,} bytes"
            call.notes.append(f"max_result_bytes: {size.bytes:,} bytes shortened to {limit:,}")
        else:
            facts["tokens"] = max(size[1:])
            amount = f"about {shown_tokens:,} of {max(size[1:]):,} tokens"
            call.notes.append(f"max_result_tokens: about {max(size[1:]):,} tokens shortened to {tokens:,}")
        scope = f", {byte_scope or scope}" if byte_scope or scope else ""
        text = f"({amount}{scope} shown; the rest: {uri}/1, page 1 of {len(pages.all)}, by resources/read)"
        content.append({"type": "text", "text": text})
        if knows_resource_links(call.envelope.version):
            content.append({"type": "resource_link", "uri": f"{uri}/1", "name": "the whole result"})
        meta = extra.get("_meta")
        extra["_meta"] = {**(meta if isinstance(meta, dict) else {}), META_KEY: facts}
        return _Bounded(without_lone_surrogates({**flags, "content": content, **extra}), pages)

    def _structured(self, call: Call, result: Json, room: int, limits: _Limits, size_of_all: _Size, uri: str) -> Any:
        """Returns the structured content to pass on: whole, shortened within the tool's schema, or None.

        Raises ResultTooLarge if the schema requires some and none is short enough.
        """
        value, route = result.get("structuredContent"), call.route
        size = len(encode(value)) + _KEY
        limit, key = limits.bytes or size, "max_result_bytes"
        if limits.tokens is not None and size_of_all.structured > limits.tokens:
            in_bytes = size * limits.tokens // size_of_all.structured
            if in_bytes < limit:
                room, limit, key = min(room, in_bytes), in_bytes, "max_result_tokens"
        if value is None or size <= room:
            return value
        tool = None if self._changes(route) or result.get("isError") else self._listed(route, call.caller)
        schema = tool.get("outputSchema") if tool is not None else None
        if not isinstance(schema, dict):
            return None
        for shorter in shortened_values(value, room - _KEY):
            if _fits(schema, shorter):
                return shorter
        if size <= limit * WHOLE:
            return value
        text = (
            f"The structured result of {route.name!r} has {size:,} bytes and cannot be shortened to {limit:,} "
            f"(setting: servers.{route.upstream}.{key}); all of it: {uri}/1, by resources/read"
        )
        raise ResultTooLarge(text, server=route.upstream)


def _measured_size(result: Json, limits: _Limits) -> _Size:
    """Returns the size of a result. Tokens are counted only if they could exceed the limit."""
    data = encode(result)
    if limits.tokens is None or len(data) <= limits.tokens:  # no token is shorter than a byte
        return _Size(len(data))
    from mcp_hub.catalog.token_estimate import estimate_tokens

    structured = result.get("structuredContent")
    text = encode(structured).decode("utf-8", "replace") if structured is not None else ""
    return _Size(len(data), content_tokens(result.get("content")), estimate_tokens(text))


def _facts(call: Call) -> Json:
    """Returns the facts about a call for the user's functions."""
    return {
        "name": call.route.name,
        "server": call.route.upstream,
        "arguments": call.params.get("arguments") or {},
    }


def _fits(schema: Json, value: Any) -> bool:
    from mcp_hub.schema.compiled_schemas import schema_accepts

    return schema_accepts(schema, value)
