"""Real HTTP servers on loopback, and a client of the real `web` process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.servers.builtin import VARIABLE, Settings
from tests.fakes.client import StdioClient, spawned
from tests.fakes.loopback_site import loopback_site

WEB = [sys.executable, "-m", "mcp_hub.servers", "web"]
LOOPBACK = AddressRules(allow=("127.0.0.1",))
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A web server with scripted answers, which records its requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[web.Request] = []
        self.released = asyncio.Event()
        self.port = 0

    @property
    def asked(self) -> list[str]:
        """The paths of all requests, in order."""
        return [request.path for request in self.requests]

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def put(self, path: str, body: bytes | str, content_type: str | None = None, **options: Any) -> str:
        """Serves these bytes; returns their URL. Without a content type, the header is empty."""
        data = body.encode() if isinstance(body, str) else body
        headers = {"Content-Type": content_type or "", **options.pop("headers", {})}

        async def answer(request: web.Request) -> web.Response:
            return web.Response(body=data, headers=headers, **options)

        self.answers[path] = answer
        return self.url(path)

    def redirect(self, path: str, location: str, status: int = 302) -> str:
        """Redirects a path to another location; returns its URL."""
        return self.put(path, b"", status=status, headers={"Location": location})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        answer = self.answers.get(request.path)
        return await answer(request) if answer is not None else web.Response(status=404, text="There is no such page.")


@contextlib.asynccontextmanager
async def serving(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Site]:
    """A site on a free port of 127.0.0.1, unless told otherwise."""
    site = Site()
    async with loopback_site(site._handle, host=host, port=port) as site.port:
        try:
            yield site
        finally:
            site.released.set()


SLACK = 10.0
"""Seconds beyond its own deadline within which a scraper has to answer."""


@contextlib.asynccontextmanager
async def scraper(settings: Settings | None = None, **settings_of_it: Any) -> AsyncIterator[StdioClient]:
    """A client of a new `python -m mcp_hub.servers web`; loopback is allowed unless told otherwise."""
    chosen = settings or Settings(**{"address_rules": LOOPBACK, "javascript": False, **settings_of_it})
    async with spawned(WEB, env={VARIABLE: json.dumps(chosen.to_json())}) as client:
        await client.initialize()
        client.patience = max(client.patience, chosen.timeout + SLACK)
        yield client


async def scrape(client: StdioClient, url: str) -> str:
    """The Markdown of a page; fails if there is none."""
    return await client.text("scrape_website", {"url": url, "max_length": 10_000_000})


async def refused(client: StdioClient, url: str) -> str:
    """The code with which a page is refused; fails if it is not."""
    result = await client.call("scrape_website", {"url": url})
    assert result.get("isError"), result
    assert result["content"][0]["text"]
    return str(result["_meta"]["mcp-hub/error"]["code"])


async def source(client: StdioClient, url: str) -> dict[str, Any]:
    """Where the text of a page came from."""
    result = await client.call("scrape_website", {"url": url})
    facts: dict[str, Any] = result["_meta"]["mcp-hub/source"]
    return facts
