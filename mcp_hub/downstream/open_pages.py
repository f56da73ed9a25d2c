"""The pages that need no token: the welcome page and the health checks."""

from __future__ import annotations

from typing import Final

from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest

ROOT: Final = ""
"""The path `/`, without its slash like all others."""
HEALTH: Final = "/healthz"
READY: Final = "/healthz/ready"
"""The same as HEALTH, under the name that Kubernetes' probes have for it."""
LIVE: Final = "/healthz/live"
"""The path that answers 200 as long as the process works, also while it stops."""


async def write_welcome(request: HttpRequest, reply: HttpReply, paths: list[str], *, with_page: bool) -> None:
    """Writes the welcome page, which names no server and no version. `paths`: those that MCP clients connect to."""
    text = _welcome_text(paths)
    if not with_page:
        await reply.text(200, text)
    elif any("text/html" in value for value in request.values(b"accept")):
        body = _WELCOME_PAGE.replace("TEXT", text.replace("<", "&lt;"))
        await reply.send(200, body.encode(), HTML + b"; charset=utf-8", [(b"content-security-policy", _NOTHING)])
    else:
        await reply.text(200, f"{text}\n{_LEADS_TO_PAGE}")


async def write_health(reply: HttpReply, *, leaving: bool, store: str | None) -> None:
    """Answers a health check: 200 `{"status": "ok"}`, or 503 `{"status": "stopping"}` if `leaving`.

    `store`: the state of the replicas' store; None if there is none. An unreachable store does not make a replica
    unready, as it can still serve whatever needs no shared state.
    """
    shared = {} if store is None else {"store": store}
    if leaving:
        await reply.json(503, {"status": "stopping", **shared})
    else:
        await reply.json(200, {"status": "ok", **shared})


async def is_read(request: HttpRequest, reply: HttpReply) -> bool:
    """Returns whether the method is GET or HEAD; all others are refused here."""
    if request.method in ("GET", "HEAD"):
        return True
    await reply.text(405, "Method Not Allowed", [(b"allow", b"GET, HEAD")])
    return False


def _welcome_text(paths: list[str]) -> str:
    """Returns the text of the welcome page. `paths`: those that MCP clients connect to."""
    return (
        "This is mcp-hub, one MCP server in front of many. It is made for MCP clients, and it is running.\n\n"
        f"Clients connect to the path {' or '.join(paths)} of this address. A client is told of it by a line such as\n"
        f"  claude mcp add --transport http hub ADDRESS{paths[0]}\n"
        "with the address in your browser, up to host and port. `mcp-hub status` shows the servers behind it."
    )


HTML: Final = b"text/html"
_LEADS_TO_PAGE: Final = "The path /ui of this address shows it at work; `mcp-hub open` prints a link that opens it."
_WELCOME_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>mcp-hub</title><h1>mcp-hub</h1><pre>TEXT</pre>'
    '<p><a href="/ui">The live page</a> shows it at work. <code>mcp-hub open</code> prints a link that opens it.</p>'
)
_NOTHING: Final = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
