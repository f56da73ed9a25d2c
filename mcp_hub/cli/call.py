"""`mcp-hub call NAME [ARGUMENT ...]`: make one call as a client would. `--explain` shows what each policy did."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mcp_hub.catalog import Route
from mcp_hub.catalog.names import SEPARATOR, did_you_mean
from mcp_hub.cli import BAD_INPUT, FAILED, OK, json_text
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import (
    add_config_arguments,
    add_group_argument,
    add_selection_arguments,
    load,
    make_hub,
    read_selection,
    recording,
    run_loop,
)
from mcp_hub.config.models import Config
from mcp_hub.errors import METHOD_NOT_FOUND, ConfigError, HubError, ProtocolError, UnknownName, to_wire
from mcp_hub.hub import Engine
from mcp_hub.policy import Call, unknown_name
from mcp_hub.policy.access import located
from mcp_hub.policy.call_record import outcome
from mcp_hub.policy.chain import explain, how_it_ended, upstream_step
from mcp_hub.policy.selection import Selection
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.text import new_lines, printable
from mcp_hub.version import VERSION

_ENVELOPE: Final = Envelope(client_info={"name": "mcp-hub call", "version": VERSION})
PROGRESS_RATE: Final = 10
MAX_ASKED: Final = 40_000
"""Characters of a question; its arguments have at most 16 KiB."""
STDERR_WAIT: Final = 0.1
"""Seconds that `--explain` waits for the server's stderr after the response."""


EXAMPLES = """examples:
  mcp-hub call time__get_current_time timezone=Europe/Berlin
  mcp-hub call time get_current_time '{"timezone": "UTC"}'
  mcp-hub call notes__add @note.json --explain"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub call NAME [ARGUMENT ...] [--explain] [--json] [--config F]`.

    `SERVER TOOL` may stand for NAME. An ARGUMENT is `key=value`, a JSON object, `@FILE` or `-`.
    """
    add_config_arguments(parser)
    add_selection_arguments(parser)
    add_group_argument(parser, "switch this group of tools on (may be repeated)")
    parser.add_argument("name", metavar="NAME", help="the tool as `mcp-hub tools` lists it, or SERVER TOOL")
    text = "key=value, a JSON object, @FILE with a JSON object, or - for one on stdin; later values win"
    parser.add_argument("words", metavar="ARGUMENT", nargs="*", default=[], help=text)
    parser.add_argument("--args", metavar="JSON", help="the arguments as one JSON object")
    parser.add_argument(
        "--explain", action="store_true", help="print first which route the call took, and what each rule did"
    )
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns 0 for a result, 1 for an error, 2 for an unknown tool. Raises ConfigError for unusable arguments."""
    argv: list[str] = options.words
    options.tool = argv.pop(0) if argv and not _is_argument(argv[0]) else None
    arguments: list[ToolArgument] = [] if options.args is None else [_json_object(options.args, "--args")]
    arguments += [_read_argument(argument) for argument in argv]
    config = load(options, quiet=True)
    if options.tool is not None and options.name not in [server.id for server in config.servers]:
        server_ids = ", ".join(server.id for server in config.servers)
        raise ConfigError(
            f"there is no server {printable(options.name)!r}; there are: {server_ids} "
            f"(arguments of a tool are key=value, not {printable(options.tool)!r})"
        )
    return run_loop(_call(config, read_selection(options, config), options, arguments))


ToolArgument = dict[str, Any] | tuple[str, str]
"""A JSON object, or (key, text), where the tool's schema says how to read the text."""


def _is_argument(argument: str) -> bool:
    return argument == "-" or argument.startswith(("{", "[", "@")) or "=" in argument


def _read_argument(argument: str) -> ToolArgument:
    """Reads one argument of the command line. Raises ConfigError."""
    if argument == "-":
        return _json_object(sys.stdin.read(), "what came on stdin")
    if argument.startswith("@"):
        try:
            return _json_object(Path(argument[1:]).read_text(encoding="utf-8"), argument[1:])
        except OSError as error:
            raise ConfigError(f"cannot read {printable(argument[1:])}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{printable(argument[1:])} is not UTF-8") from None
    if argument.startswith(("{", "[")):
        return _json_object(argument, "the argument")
    key, equals, text = argument.partition("=")
    if not key or not equals:
        raise ConfigError(f"{printable(argument)!r} is not an argument; write key=value, a JSON object, @FILE or -")
    return key, text


def _json_object(text: str, source: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise ConfigError(f"{printable(source)} is not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{printable(source)} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ConfigError(f'{printable(source)} must be a JSON object, such as \'{{"text": "hello"}}\'')
    return value


def _no_number(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def _merge_arguments(parts: Sequence[ToolArgument], schema: Any) -> dict[str, Any]:
    """Returns all arguments as one object. The text of `key=text` gets the type of its property in the schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    arguments: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, dict):
            arguments |= part
        else:
            property_schema = properties.get(part[0]) if isinstance(properties, dict) else None
            arguments[part[0]] = _typed_value(part[1], property_schema)
    return arguments


def _typed_value(text: str, schema: Any) -> Any:
    """Returns `text` if the schema takes a string or the text is not JSON; else its JSON value."""
    if isinstance(schema, dict) and _takes_text(schema):
        return text
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _takes_text(schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    alternatives = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    return (
        types == "string"
        or (isinstance(types, list) and "string" in types)
        or any(isinstance(alternative, dict) and alternative.get("type") == "string" for alternative in alternatives)
    )


async def _call(
    config: Config, selection: Selection, options: argparse.Namespace, arguments: Sequence[ToolArgument]
) -> int:
    with recording(config, on_stderr=False) as records:
        async with make_hub(config, selection, records, groups=options.group) as hub:
            try:
                name, route = await _route(hub, options.name, options.tool)
            except UnknownName as error:
                return _print_unknown(hub, options, error)
            definition = hub.catalog.entry(TOOLS, name) or {}
            params = {"name": route.name, "arguments": _merge_arguments(arguments, definition.get("inputSchema"))}
            call = Call(TOOLS.act_method, name, route, params, "handshake", _ENVELOPE, on_progress=ProgressLines())
            if sys.stdin.isatty() and sys.stderr.isatty():
                call.asker = TerminalAsker()
            failure: BaseException | None = None
            upstream = hub.upstreams.get(route.upstream)
            earlier_lines = upstream.last_words if upstream is not None else ()
            started_at = time.monotonic()
            try:
                answer: dict[str, Any] = {"result": await hub.act(call)}
            except (HubError, TimeoutError) as error:
                failure, answer = error, to_wire(error, TOOLS.act_method, name)
            facts = _call_facts(hub, call, failure, answer.get("result"), time.monotonic() - started_at)
            if options.explain and upstream is not None:
                await asyncio.sleep(STDERR_WAIT)  # stderr is another pipe than the response
                facts["stderr"] = [printable(line) for line in new_lines(earlier_lines, upstream.last_words)]
    failed = "error" in answer or answer["result"].get("isError") is True
    if options.json:
        print(json_text({**facts, **answer} if options.explain else answer.get("result", answer)))
        return FAILED if failed else OK
    if options.explain:
        print(_explanation_text(facts) + "\n")
    print(_result_text(answer), file=sys.stderr if failed else sys.stdout)
    return FAILED if failed else OK


class TerminalAsker:
    """Asks the person at the terminal whether a call that the configuration confirms may be made (Asker)."""

    parked: bool | None = None

    @property
    def capabilities(self) -> dict[str, Any]:
        """What it can be asked (Asker)."""
        return {"elicitation": {}}

    async def wait_for_turn(self) -> None:
        """Returns at once (Asker)."""

    def hear(self, message: dict[str, Any]) -> None:
        """Leaves out a log message of the server (Asker)."""

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Leaves out a notification (Asker)."""

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the choice of the person. Raises ProtocolError for questions that are no choice, such as servers'."""
        choices = _choices(params.get("requestedSchema"))
        if not choices:
            raise ProtocolError(METHOD_NOT_FOUND, "mcp-hub call cannot answer this question")
        print(printable(str(params.get("message")), MAX_ASKED), file=sys.stderr)
        print(f"Type {', '.join(choices[:-1])} or {choices[-1]}: ", end="", file=sys.stderr, flush=True)
        loop, line = asyncio.get_running_loop(), asyncio.Future[str]()

        def answered(text: str) -> None:
            if not line.cancelled():
                line.set_result(text)

        def read() -> None:
            text = sys.stdin.readline()
            with contextlib.suppress(RuntimeError):  # the call has ended
                loop.call_soon_threadsafe(answered, text)

        threading.Thread(target=read, daemon=True).start()  # so that Ctrl-C need not wait for a line
        answer = (await line).strip().lower()
        return {"action": "accept", "content": {"allow": answer if answer in choices else choices[-1]}}


def _choices(schema: Any) -> list[str]:
    """Returns the texts that the hub lets a person choose from; none for the schema of another question."""
    match schema:
        case {"properties": {"allow": {"enum": [*choices]}, **others}} if not others:
            return [choice for choice in choices if isinstance(choice, str)]
    return []


class ProgressLines:
    """Prints the progress of a call to stderr, at most `PROGRESS_RATE` lines a second."""

    def __init__(self) -> None:
        self._next_time = 0.0

    def __call__(self, params: dict[str, Any]) -> None:
        """Prints one notification's params as `progress 3 of 10: text`."""
        now = time.monotonic()
        if now < self._next_time:
            return
        self._next_time = now + 1 / PROGRESS_RATE
        progress, total, message = params.get("progress"), params.get("total"), params.get("message")
        number = printable(str(progress), 40) + (f" of {printable(str(total), 40)}" if total is not None else "")
        suffix = f": {printable(message, 500)}" if isinstance(message, str) and message else ""
        print(f"progress {number}{suffix}", file=sys.stderr, flush=True)


async def _route(hub: Engine, name: str, tool: str | None) -> tuple[str, Route]:
    """Returns the exposed name and the route of a tool. With `tool`, `name` is its server."""
    try:
        return await _find_route(hub, name, tool)
    except UnknownName:
        # The tool may be newer than the catalog cache.
        await connect_all(hub)
        return await _find_route(hub, name, tool)


async def _find_route(hub: Engine, name: str, tool: str | None) -> tuple[str, Route]:
    if tool is None:
        return name, await hub.route(TOOLS, name, "handshake")
    route = Route(name, TOOLS, tool)
    exposed = hub.catalog.exposed(route)
    if exposed is None:
        raise unknown_name(TOOLS, f"{name}/{tool}", "handshake")
    return exposed, route


def _print_unknown(hub: Engine, options: argparse.Namespace, error: UnknownName) -> int:
    """Says why there is no such tool. Returns 1 if the reason is a server that is not available, else 2."""
    exposed = options.name if options.tool is None else f"{options.name}/{options.tool}"
    hub.record_unknown(TOOLS, exposed, "handshake", SOLE, _ENVELOPE)
    rule = hub.generation.why(TOOLS, exposed) if options.explain else None
    if options.json and options.explain:
        print(json_text({"route": None, "hidden_by": rule, **to_wire(error)}))
    if rule is not None:
        text = printable(located(rule, hub.config))
        print(f"the tool {printable(exposed)!r} is there, but hidden: {text}", file=sys.stderr)
        return BAD_INPUT
    reasons, is_certain = _absent_servers(hub, options.name, options.tool)
    lines = reasons if is_certain else [_unknown_text(hub, exposed), *reasons]
    print("\n".join(lines), file=sys.stderr)
    return FAILED if is_certain else BAD_INPUT


def _unknown_text(hub: Engine, name: str) -> str:
    """Returns the message for an unknown tool, with similar names."""
    hint = did_you_mean(name, hub.catalog.names(TOOLS)) or "; `mcp-hub tools` lists them all"
    return f"there is no tool {printable(name)!r}{hint}"


def _absent_servers(hub: Engine, name: str, tool: str | None) -> tuple[list[str], bool]:
    """Returns why servers that may have the tool are not available, and whether the tool must be of one of them."""
    reasons, is_certain = [], False
    for upstream in hub.upstreams.values():
        server = upstream.server
        prefix = f"{server.namespace}{SEPARATOR}" if server.namespace else ""
        is_candidate = server.id == name if tool is not None else name.startswith(prefix)
        if is_candidate and (upstream.error is not None or not server.enabled):
            reason = upstream.error or "it is switched off in the configuration"
            reasons.append(f"{server.id} is not available: {printable(reason, 2000)}")
            is_certain = is_certain or tool is not None or prefix != ""
    return reasons, is_certain


def _result_text(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"error {answer['error'].get('code')}: {printable(str(answer['error'].get('message')), 4000)}"
    content, structured = answer["result"].get("content"), answer["result"].get("structuredContent")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if not blocks and structured is not None:
        return json_text(structured)
    return "\n".join(map(_block, blocks))


def _block(block: dict[str, Any]) -> str:
    text, data, uri = block.get("text"), block.get("data"), block.get("uri")
    if block.get("type") == "text" and isinstance(text, str):
        return "\n".join(printable(line, len(line)) for line in text.splitlines())
    size = f", {len(data)} base64 characters" if isinstance(data, str) else ""
    location = f" {printable(uri)}" if isinstance(uri, str) else ""
    return f"[{printable(str(block.get('type')))}{location}{size}]"


def _call_facts(hub: Engine, call: Call, error: BaseException | None, result: Any, seconds: float) -> dict[str, Any]:
    """Returns the facts about one call for `--explain`. It ended with `result` or `error`, after `seconds`."""
    upstream = hub.upstreams.get(call.route.upstream)
    agreement = upstream.agreement if upstream is not None else None
    verdict, decided, code, reason = outcome(call, error, result)
    chain = hub.rules.chain
    names, end = [policy.name for policy in chain.policies], None
    if error is not None:
        end = how_it_ended(verdict, reason or type(error).__name__)
    facts: dict[str, Any] = {
        "route": {
            "name": call.exposed,
            "server": call.route.upstream,
            "transport": upstream.transport if upstream is not None else None,
            "era": agreement.era if agreement is not None else None,
            "revision": agreement.version if agreement is not None else None,
            "tool": call.route.name,
        },
        "policies": explain(names, call.notes, decided, end) if upstream is not None else [],
        "attempts": call.attempts,
        "fallback": call.fallback,
        "duration_ms": round(seconds * 1000, 1),
        "verdict": verdict,
    }
    return facts if code is None else {**facts, "code": code}


def _explanation_text(facts: dict[str, Any]) -> str:
    """Returns the facts as text, a line each."""
    route = facts["route"]
    era = f"{route['era']} {route['revision']}" if route["era"] else "era not known yet"
    code = f" ({facts['code']})" if "code" in facts else ""
    lines = [
        ("name", route["name"]),
        ("server", f"{route['server']} ({route['transport']}, {era})" if route["transport"] else "the hub itself"),
        ("tool", route["tool"]),
        *((policy["policy"], "; ".join(policy["did"])) for policy in facts["policies"]),
        ("upstream", upstream_step(facts["attempts"], facts["fallback"])),
        ("outcome", f"{facts['verdict']}{code} after {facts['duration_ms']:,} ms"),
        *(("stderr", line) for line in facts.get("stderr", ())),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {printable(str(text), 1000)}" for name, text in lines)
