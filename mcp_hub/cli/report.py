"""Texts that commands print about a hub: progress of connecting, addresses, the catalog."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import socket
import sys
from collections.abc import Sequence

from mcp_hub.catalog import Catalog
from mcp_hub.config.listen import UNIX, Listen
from mcp_hub.config.models import Config
from mcp_hub.hub import Engine
from mcp_hub.protocol.kinds import KINDS, TEMPLATES, TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.lifecycle import CONNECTED_STATES, UpstreamState


async def connect_all(hub: Engine) -> None:
    """Connects to every upstream, and returns when all have succeeded or failed. A terminal shows the progress.

    Lazy upstreams and those with a cached catalog are included, as the user is shown their current state.
    """
    connecting = asyncio.ensure_future(_all_tried(hub))
    if not sys.stderr.isatty():
        await connecting
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status("connecting") as status, LastLine() as last_line:
        while not connecting.done():
            missing = [u.server.id for u in hub.upstreams.values() if not u.attempted.is_set()]
            text = f"connecting to {len(missing)} of {len(hub.upstreams)}: {printable(', '.join(missing), 80)}"
            text += f" ({last_line.server}: {last_line.text})" if last_line.text and last_line.server in missing else ""
            status.update(Text(text[: max(console.width - 4, 20)]))
            await asyncio.wait({connecting}, timeout=0.2)
        connecting.result()


class LastLine(logging.Handler):
    """Keeps the last line that a server wrote to stderr while the block runs, such as the progress of a download."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.server = self.text = ""
        self._log = logging.getLogger("mcp_hub.upstream")
        self._saved_settings = self._log.level, self._log.propagate

    def __enter__(self) -> LastLine:
        if not self._log.isEnabledFor(logging.DEBUG):  # else all lines are shown anyway
            self._log.setLevel(logging.DEBUG)
            self._log.propagate = False
            self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._saved_settings[0])
        self._log.propagate = self._saved_settings[1]

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line of a server, and passes on records that would have been logged without this handler."""
        if record.levelno == logging.DEBUG:
            if record.msg == "%s: %s" and isinstance(record.args, tuple) and len(record.args) == 2:
                self.server, self.text = (printable(str(argument), 80).strip() for argument in record.args)
        elif self._log.parent is not None and self._log.parent.isEnabledFor(record.levelno):
            self._log.parent.handle(record)


async def _all_tried(hub: Engine) -> None:
    await asyncio.gather(*(upstream.tried() for upstream in hub.upstreams.values()))
    await hub.catalogs.wait_until_built()


SHOWN_NAMES = 8


def addresses_text(bases: Sequence[str], listen: Listen, *, sse: bool) -> str:
    """Returns the URLs of the hub and the lines to paste into a client, which have its public name if there is one.

    `bases` are URLs such as `http://127.0.0.1:8808` and `unix:/run/hub.sock`.
    """
    sockets = [base for base in bases if base.startswith(f"{UNIX}:")]
    port = next((int(base.rpartition(":")[2]) for base in bases if base not in sockets), 443)
    public = listen.public_bases(port)
    paths = ("/mcp", "/sse") if sse else ("/mcp",)
    urls = [base + path for base in (*bases, *public) if base not in sockets for path in paths]
    addresses = [*(f"{base} with the path {' and '.join(paths)}" for base in map(printable, sockets)), *urls]
    if not urls:
        return "\n".join(
            ["mcp-hub is listening on", *(f"  {address}" for address in addresses), "", *_socket_lines(sockets[0])]
        )
    http = f"{public[0]}/mcp" if public else _url_for_other_machines(urls[0], listen)
    entry: dict[str, object] = {"type": "http", "url": http}
    header = ""
    if listen.authenticates:
        entry["headers"] = {"Authorization": "Bearer YOUR_TOKEN"}
        header = ' --header "Authorization: Bearer YOUR_TOKEN"'
    lines = ["mcp-hub is listening on", *(f"  {address}" for address in addresses), "", "Paste into a client:"]
    lines.append(f"  Claude Code:      claude mcp add --transport http hub {http}{header}")
    lines.append(f'  Cursor, VS Code:  {json.dumps({"hub": entry})}   (under "mcpServers", in VS Code "servers")')
    return "\n".join(lines)


def _socket_lines(base: str) -> list[str]:
    """Returns advice on a Unix socket, for which clients have no URL."""
    path = shlex.quote(base.partition(":")[2])
    return [
        "Clients have no URL for a Unix socket: name it in a reverse proxy of yours, and that by --public-host.",
        f"  To try it:         curl --unix-socket {path} http://localhost/healthz",
        "  On this machine:   `mcp-hub install` lets clients start the hub over stdio; `mcp-hub open` shows the page.",
    ]


def terminal_text(config: Config) -> str:
    """Returns the text for a person who starts the hub over stdio at a terminal."""
    argv = ["serve", *(argument for path in config.files for argument in ("--config", str(path)))]
    entry = {"hub": {"command": "mcp-hub", "args": argv}}
    return "\n".join(
        [
            "mcp-hub waits for the messages of a client on stdin; a client starts this command itself.",
            "",
            "Paste into a client:",
            f"  Claude Code:             claude mcp add hub -- {shlex.join(['mcp-hub', *argv])}",
            f'  Claude Desktop, Cursor:  {json.dumps(entry)}   (under "mcpServers")',
            "",
            "Over a network: mcp-hub serve --http. To call a tool: mcp-hub call NAME. To see it at work: mcp-hub open.",
            "Ctrl-C ends this.",
        ]
    )


def _url_for_other_machines(url: str, listen: Listen) -> str:
    """Returns the URL for other machines: a wildcard address is replaced by an allowed host, else by this machine's."""
    hosts = (host.removesuffix(":*") for host in listen.allowed_hosts)
    host = next((host for host in hosts if ":" not in host), None) or socket.gethostname()
    return re.sub(r"//(?:0\.0\.0\.0|\[::\]):", f"//{host}:", url, count=1)


def catalog_text(hub: Engine) -> str:
    """Returns the served items as text, with a line for each server."""
    catalog = hub.catalogs.of(SOLE)
    lines = ["", f"Serving {_count_items(catalog)}:"]
    names: dict[str, list[str]] = {}
    for entry in catalog.entries(TOOLS):
        names.setdefault(entry.route.upstream, []).append(entry.exposed)
    lines.extend(_server_line(upstream, names.get(upstream.server.id, [])) for upstream in hub.upstreams.values())
    return "\n".join(lines)


def _count_items(catalog: Catalog) -> str:
    numbers = {kind: len(catalog.entries(kind)) for kind in KINDS} | {TOOLS: catalog.server_tools}
    kind_names = {kind: "resource template" if kind is TEMPLATES else kind.unknown for kind in KINDS}
    return ", ".join(
        f"{n} {kind_names[kind]}{'' if n == 1 else 's'}" for kind, n in numbers.items() if n or not kind.extension
    )


def _server_line(upstream: Upstream, names: list[str]) -> str:
    suffix = f", … {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    tool_names = ", ".join(names[:SHOWN_NAMES]) + suffix
    if upstream.state in CONNECTED_STATES or (names and upstream.error is None):
        return f"  {upstream.server.id}: {tool_names or 'no tools'}"
    if upstream.state is UpstreamState.DISABLED:
        return f"  {upstream.server.id}: switched off: {printable(upstream.error or 'by the configuration', 600)}"
    if upstream.error is not None:
        return f"  {upstream.server.id}: unavailable; the reason is above"  # in the log, with its time
    return f"  {upstream.server.id}: still connecting; its tools are added when it is connected"
