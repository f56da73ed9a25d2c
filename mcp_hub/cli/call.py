"""`mcp-hub call NAME --args JSON`: one call, as a client would make it."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from typing import Any

from mcp_hub.catalog import Route
from mcp_hub.cli import BAD_INPUT, FAILED, OK
from mcp_hub.cli.output import json_text
from mcp_hub.cli.progress import outcomes
from mcp_hub.cli.startup import add_config_arguments, load, make_hub, run_loop
from mcp_hub.config.models import Config
from mcp_hub.era import Envelope
from mcp_hub.errors import ConfigError, HubError, UnknownName, to_wire
from mcp_hub.hub import Hub
from mcp_hub.kinds import TOOLS
from mcp_hub.names import SEPARATOR
from mcp_hub.policy import Call
from mcp_hub.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`mcp-hub call NAME [--args JSON] [--json] [--config F]`."""
    add_config_arguments(parser)
    parser.add_argument("name", metavar="NAME", help="the tool as `mcp-hub tools` lists it")
    parser.add_argument("--args", default="{}", metavar="JSON", help="its arguments, a JSON object")
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")


def run(options: argparse.Namespace) -> int:
    """Exit 0 for a result, 1 for an error result, 2 for an unknown tool or arguments that are no JSON object."""
    try:
        arguments = json.loads(options.args, parse_constant=_no_number)
    except ValueError as error:
        raise ConfigError(f"--args is not JSON: {error}") from None
    except RecursionError:
        raise ConfigError("--args is nested too deeply") from None
    if not isinstance(arguments, dict):
        raise ConfigError('--args must be a JSON object, such as \'{"text": "hello"}\'')
    return run_loop(_call(load(options, quiet=True), options.name, arguments, as_json=options.json))


async def _call(config: Config, name: str, arguments: dict[str, Any], *, as_json: bool) -> int:
    async with make_hub(config) as hub:
        try:
            route = await _route(hub, name)
        except UnknownName:
            print(_unknown(hub, name), file=sys.stderr)
            return BAD_INPUT
        params = {"name": route.name, "arguments": arguments}
        call = Call(TOOLS.act_method, name, route, params, "handshake", Envelope())
        try:
            answer: dict[str, Any] = {"result": await hub.act(call)}
        except (HubError, TimeoutError) as error:
            answer = to_wire(error, TOOLS.act_method, name)
    failed = "error" in answer or answer["result"].get("isError") is True
    if as_json:
        print(json_text(answer.get("result", answer)))
    else:
        text = _readable(answer)
        print(text, file=sys.stderr if failed else sys.stdout)
    return FAILED if failed else OK


def _no_number(word: str) -> None:
    raise ValueError(f"it has no {word}")


async def _route(hub: Hub, name: str) -> Route:
    try:
        return await hub.route(TOOLS, name, "handshake")
    except UnknownName:
        # It may be newer than what was kept.
        await outcomes(hub)
        return await hub.route(TOOLS, name, "handshake")


def _unknown(hub: Hub, name: str) -> str:
    """That there is no such tool, which ones may be meant, and whose it may be that is not there."""
    known = hub.catalog.names(TOOLS)
    near = [exposed for exposed in known if exposed.endswith(f"{SEPARATOR}{name}")][:3]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `mcp-hub tools` lists them all"
    lines = [f"there is no tool {printable(name)!r}{hint}"]
    for upstream in hub.upstreams.values():
        server = upstream.server
        absent = upstream.error is not None or not server.enabled
        if absent and name.startswith(f"{server.namespace}{SEPARATOR}" if server.namespace else ""):
            reason = upstream.error or "it is switched off in the configuration"
            lines.append(f"{server.id}: not there: {printable(reason, 2000)}")
    return "\n".join(lines)


def _readable(answer: dict[str, Any]) -> str:
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
    where = f" {printable(uri)}" if isinstance(uri, str) else ""
    return f"[{printable(str(block.get('type')))}{where}{size}]"
