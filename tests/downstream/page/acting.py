"""Sends what a person does in the page: actions, runs of tools, and answers to their questions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from tests.downstream.page.opened import OpenPage
from tests.fakes.client import PATIENCE

Json = dict[str, Any]

ADMIN = "admin-" + "0123456789abcdef" * 2
GUEST = "guest-" + "0123456789abcdef" * 2
OTHER = "other-" + "0123456789abcdef" * 2
NETWORK: Json = {
    "ui": True,
    "principals": {
        "boss": {"token": ADMIN, "admin": True},
        "guest": {"token": GUEST, "profile": "small"},
        "other": {"token": OTHER},
    },
}
"""Settings of a listener with an admin, a guest with a small profile, and a user who sees all but is no admin."""
PROFILES: Json = {"small": {"tools": ["a/echo", "a/sleep"]}}


async def post(page: OpenPage, path: str, body: Any, **headers: str) -> httpx2.Response:
    all_headers = {**page.headers, "origin": page.base, **headers}
    return await page.http.post(f"/ui/api/{path}", json=body, headers=all_headers)


async def act(page: OpenPage, name: str, **arguments: Any) -> Json:
    """The response of an action, which must succeed."""
    answer = await post(page, f"actions/{name}", arguments)
    assert answer.status_code == 200, answer.text
    outcome: Json = answer.json()
    assert outcome["done"] is True
    return outcome


async def refusal(page: OpenPage, name: str, **arguments: Any) -> tuple[int, str]:
    """Status and code of a refused action, whose error has a cure."""
    answer = await post(page, f"actions/{name}", arguments)
    error = answer.json()["error"]
    assert error["message"]
    assert error["cure"]
    return answer.status_code, error["code"]


class Running:
    """The stream of events of a run."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.aiter_lines()
        self.seen: list[tuple[str, Any]] = []

    async def next(self) -> tuple[str, Any]:
        """The next event: its name and its data."""
        name = ""
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.seen.append((name, json.loads(line.removeprefix("data: "))))
                    return self.seen[-1]
        raise AssertionError(f"the run has ended after {self.seen}")

    async def until(self, event_name: str) -> Any:
        """The data of the next event of one name."""
        while True:
            name, data = await self.next()
            if name == event_name:
                return data

    async def end(self) -> tuple[str, Any]:
        """The last event."""
        while True:
            name, data = await self.next()
            if name in ("result", "error"):
                return name, data


@contextlib.asynccontextmanager
async def running(page: OpenPage, tool: str, arguments: Json | None = None, **fields: Any) -> AsyncIterator[Running]:
    body = {"tool": tool, "arguments": arguments or {}, **fields}
    headers = {**page.headers, "origin": page.base}
    async with page.http.stream("POST", "/ui/api/run", json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield Running(answer)


async def result(page: OpenPage, tool: str, arguments: Json | None = None, **fields: Any) -> Json:
    async with running(page, tool, arguments, **fields) as run:
        name, data = await run.end()
        assert name == "result", data
        outcome: Json = data
        return outcome


async def text(page: OpenPage, tool: str, arguments: Json | None = None, **fields: Any) -> str:
    return str((await result(page, tool, arguments, **fields))["content"][0]["text"])
