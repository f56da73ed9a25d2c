"""`mcp-hub call NAME --args JSON`: one call, as a client would make it."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from typing import Any

from mcp_hub.cli import BAD_INPUT, FAILED, OK
from mcp_hub.cli.startup import add_config_arguments, load, make_hub, run_loop
from mcp_hub.config.models import Config
from mcp_hub.era import Envelope
from mcp_hub.errors import ConfigError, HubError, UnknownName, to_wire
from mcp_hub.kinds import TOOLS
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
        arguments = json.loads(options.args)
    except ValueError as error:
        raise ConfigError(f"--args is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ConfigError('--args must be a JSON object, such as \'{"text": "hello"}\'')
    return run_loop(_call(load(options, quiet=True), options.name, arguments, as_json=options.json))


async def _call(config: Config, name: str, arguments: dict[str, Any], *, as_json: bool) -> int:
    async with make_hub(config) as hub:
        try:
            route = await hub.route(TOOLS, name, "handshake")
        except UnknownName:
            near = difflib.get_close_matches(name, hub.catalog.names(TOOLS), n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; `mcp-hub tools` lists them all"
            print(f"there is no tool {printable(name)!r}{hint}", file=sys.stderr)
            return BAD_INPUT
        params = {"name": route.name, "arguments": arguments}
        call = Call(TOOLS.act_method, name, route, params, "handshake", Envelope())
        try:
            answer: dict[str, Any] = {"result": await hub.act(call)}
        except (HubError, TimeoutError) as error:
            answer = to_wire(error, TOOLS.act_method, name)
    failed = "error" in answer or answer["result"].get("isError") is True
    if as_json:
        print(json.dumps(answer.get("result", answer), indent=2, ensure_ascii=False))
    else:
        text = _readable(answer)
        print(text, file=sys.stderr if failed else sys.stdout)
    return FAILED if failed else OK


def _readable(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"error {answer['error'].get('code')}: {printable(str(answer['error'].get('message')), 4000)}"
    content = answer["result"].get("content")
    blocks = content if isinstance(content, list) else []
    return "\n".join(_block(block) for block in blocks if isinstance(block, dict))


def _block(block: dict[str, Any]) -> str:
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        return "\n".join(printable(line, len(line)) for line in text.splitlines())
    size = len(block.get("data") or "")
    return f"[{printable(str(block.get('type')))}{f', {size} base64 characters' if size else ''}]"
