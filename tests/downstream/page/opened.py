"""A hub in this process that serves its live page on a port, and a client of that page by raw HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

from mcp_hub.cli.reloader import ListenerSettings, Reloader
from mcp_hub.config.models import Listen
from mcp_hub.diagnosis import remedies
from mcp_hub.diagnosis.token_costs import calls_of, token_costs
from mcp_hub.downstream.app import App, serve_network
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.page_access import PageAccess, PageSources
from mcp_hub.downstream.verifier import Verifier
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.hub.hub_status import Status
from mcp_hub.policy.quotas import Quotas
from mcp_hub.policy.selection import EVERYTHING
from tests.downstream.network.visitor import Visitor, visiting
from tests.fakes.client import PATIENCE, write_config

Json = dict[str, Any]


class OpenPage:
    """A session of the page: the cookie and the token of it."""

    def __init__(self, http: httpx2.AsyncClient, base: str) -> None:
        self.http = http
        self.base = base
        self.headers: dict[str, str] = {}
        self.viewer: Json = {}

    async def begin(self, **credential: str) -> httpx2.Response:
        """Exchanges `secret` or `token` for a session."""
        answer = await self.http.post("/ui/api/session", json=credential, headers={"origin": self.base})
        if answer.status_code == 200:
            body = answer.json()
            self.http.cookies.clear()  # each request says itself which cookie it has
            cookie = answer.headers["set-cookie"].split(";")[0]
            self.headers = {"cookie": cookie, "x-mcp-hub-page": body["token"]}
            self.viewer = body["who"]
        return answer

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(f"/ui/api/{path}", headers={**self.headers, **headers})

    async def found(self, path: str) -> Json:
        """The body of a GET, which must succeed."""
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        body: Json = answer.json()
        return body

    @contextlib.asynccontextmanager
    async def events(self, last: str | None = None) -> AsyncIterator[Events]:
        headers = {**self.headers, "accept": "text/event-stream"}
        if last is not None:
            headers["last-event-id"] = last
        async with self.http.stream("GET", "/ui/api/events", headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            events = Events(answer)
            await events.opened()
            yield events


class Events:
    """The events of one stream."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.aiter_lines()
        self.id: str | None = None
        self.seen: list[str] = []

    async def opened(self) -> None:
        async with asyncio.timeout(PATIENCE):
            assert (await anext(self._lines)).startswith(": connected")

    async def next(self, *names: str) -> Any:
        """The data of the next event of one of these names; others are skipped."""
        name = ""
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                    self.seen.append(name)
                elif line.startswith("id: "):
                    self.id = line.removeprefix("id: ")
                elif line.startswith("data: ") and name in names:
                    return json.loads(line.removeprefix("data: "))
        raise AssertionError(f"the stream has ended after {self.seen}")

    async def rest(self) -> list[str]:
        """The lines until the stream ends."""
        async with asyncio.timeout(PATIENCE):
            return [line async for line in self._lines]


class ServedHub:
    """A hub with a page. `stop` ends it."""

    def __init__(
        self, dispatcher: Dispatcher, app: App, access: PageAccess, base: str, config: Path, reloader: Reloader
    ) -> None:
        self.hub = dispatcher.hub
        self.app = app
        self.access = access
        self.base = base
        self.config = config
        self.reloader = reloader
        self.stop = asyncio.Event()
        self.dispatcher = dispatcher

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    async def secret(self) -> str:
        """The secret of a new link."""
        return (await self.access.link()).partition("#s=")[2]

    @contextlib.asynccontextmanager
    async def looking(self, **credential: str) -> AsyncIterator[OpenPage]:
        """An open page; it signs in by a link unless a credential is given."""
        async with httpx2.AsyncClient(base_url=self.base, timeout=PATIENCE) as http:
            page = OpenPage(http, self.base)
            answer = await page.begin(**(credential or {"secret": await self.secret()}))
            assert answer.status_code == 200, answer.text
            yield page

    @contextlib.asynccontextmanager
    async def calling(self, token: str | None = None, era: str = "handshake") -> AsyncIterator[Visitor]:
        async with visiting(self.base, era, token) as visitor:
            yield visitor


@contextlib.asynccontextmanager
async def served_hub(
    directory: Path, servers: Json, listen: Json | None = None, **root: Any
) -> AsyncIterator[ServedHub]:
    """A hub that serves its page on a port of its own; with `sse` it has clients over SSE too."""
    sse = root.pop("sse", False)
    directory.mkdir(exist_ok=True)
    path = write_config(directory, servers, listen={"port": 0, **(listen or {})}, **root)
    loaded = read_config(path)
    settings = loaded.config.listen
    async with Engine(loaded.config) as hub:
        status = Status(hub)
        reloader = Reloader(hub, loaded, lambda _: EVERYTHING, lambda _: None, lambda _: None)
        quotas = Quotas(settings)
        dispatcher = Dispatcher(hub, quotas)
        access = PageAccess(PageSources(dispatcher, status, reloader.facts, reloader.reload_now, cure_of, costs_of))
        verifier = None if settings.verify is None else Verifier(settings.verify, tuple(loaded.config.profiles))
        app = App(dispatcher, settings, sse=sse, quotas=quotas, verifier=verifier)
        app.page = access
        reloader.listener = ListenerSettings(app, settings, listen_of)
        bases: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        serving = asyncio.create_task(serve_network(app, settings, stop=stop, grace=1.0, ready=bases.set_result))
        try:
            async with asyncio.timeout(PATIENCE):
                base = (await bases)[0]
                await hub.settled_catalog()
            status.serving = [base]
            access.base = lambda: app.page_base([base])
            served = ServedHub(dispatcher, app, access, base, path, reloader)
            served.stop = stop
            yield served
        finally:
            stop.set()
            await asyncio.wait({serving}, timeout=PATIENCE)
            serving.result()
            await access.close()
            if verifier is not None:
                await verifier.close()


def listen_of(config: Any) -> Listen:
    listen: Listen = config.listen
    return listen


def cure_of(code: str) -> str | None:
    return remedies()[code].cure


def costs_of(hub: Engine) -> Json:
    return token_costs(hub, calls_of(hub))
