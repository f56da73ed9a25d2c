"""What a hub on a network tells the person who started it: where it is, what it serves, what to paste."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable

from mcp_hub.hub.engine import Hub
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.text import printable
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.states import THERE, State

SHOWN_NAMES = 8


def addresses_text(bases: Iterable[str], *, sse: bool, with_token: bool) -> str:
    """The addresses and the lines to paste into a client. `bases` are such as `http://127.0.0.1:8808`."""
    urls = [base + path for base in bases for path in (("/mcp", "/sse") if sse else ("/mcp",))]
    http = _from_elsewhere(urls[0])
    entry: dict[str, object] = {"type": "http", "url": http}
    header = ""
    if with_token:
        entry["headers"] = {"Authorization": "Bearer YOUR_TOKEN"}
        header = ' --header "Authorization: Bearer YOUR_TOKEN"'
    lines = ["mcp-hub is listening on", *(f"  {url}" for url in urls), "", "Paste into a client:"]
    lines.append(f"  Claude Code:      claude mcp add --transport http hub {http}{header}")
    lines.append(f'  Cursor, VS Code:  {json.dumps({"hub": entry})}   (under "mcpServers", in VS Code "servers")')
    return "\n".join(lines)


def _from_elsewhere(url: str) -> str:
    """The URL as another machine can use it, where the hub listens on every address of this one."""
    for everywhere in ("0.0.0.0", "[::]"):
        if f"//{everywhere}:" in url:
            return url.replace(everywhere, socket.gethostname(), 1)
    return url


def catalog_text(hub: Hub) -> str:
    """What is served, a line per server."""
    lines = ["", f"Serving {_counts(hub)}:"]
    names: dict[str, list[str]] = {}
    for name in hub.catalog.names(TOOLS):
        route = hub.catalog.resolve(TOOLS, name)
        if route is not None:
            names.setdefault(route.upstream, []).append(name)
    lines.extend(_line(upstream, names.get(upstream.server.id, [])) for upstream in hub.upstreams.values())
    return "\n".join(lines)


def _counts(hub: Hub) -> str:
    numbers = {kind.name: len(hub.catalog.names(kind)) for kind in KINDS}
    words = {"tools": "tool", "resources": "resource", "templates": "resource template", "prompts": "prompt"}
    return ", ".join(f"{n} {words[name]}{'' if n == 1 else 's'}" for name, n in numbers.items())


def _line(upstream: Upstream, names: list[str]) -> str:
    more = f", … {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    shown = ", ".join(names[:SHOWN_NAMES]) + more
    if upstream.state in THERE or (names and upstream.error is None):
        return f"  {upstream.server.id}: {shown or 'no tools'}"
    if upstream.state is State.DISABLED:
        return f"  {upstream.server.id}: switched off: {printable(upstream.error or 'by the configuration', 600)}"
    reason = upstream.error or "still connecting; what it has is added when it comes"
    return f"  {upstream.server.id}: not there: {printable(reason, 600)}"
