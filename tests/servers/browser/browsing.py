"""A client of the real `browser` process, and what its results say."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import psutil

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.servers.builtin import VARIABLE, Settings
from mcp_hub.servers.builtin.browser_session import GRACE, NAVIGATION
from mcp_hub.servers.builtin.chromium import LAUNCH_WAIT
from tests.fakes.client import StdioClient, spawned
from tests.fakes.processes import below

BROWSER = [sys.executable, "-m", "mcp_hub.servers", "browser"]
LOOPBACK = AddressRules(allow=("127.0.0.1",))
Result = dict[str, Any]


class Browsing:
    """Calls of one caller. A result that is an error fails the test unless it is asked for by `refused`."""

    def __init__(self, client: StdioClient) -> None:
        self.client = client

    async def call(self, name: str, /, **arguments: Any) -> Result:
        result = await self.client.call(f"browser_{name}", arguments)
        assert not result.get("isError"), result
        return result

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text of a result."""
        return str((await self.call(name, **arguments))["content"][0]["text"])

    async def refused(self, name: str, /, **arguments: Any) -> tuple[str, str]:
        """Code and text of a call that must fail."""
        result = await self.client.call(f"browser_{name}", arguments)
        assert result.get("isError"), result
        return result["_meta"]["mcp-hub/error"]["code"], result["content"][0]["text"]

    async def evaluate(self, function: str, **arguments: Any) -> Any:
        """The value of a function that ran in the page."""
        return json.loads(await self.text("evaluate", function=function, **arguments))


def ref_of(snapshot: str, element: str) -> str:
    """The reference of the element whose line in a snapshot begins so, such as `button "Send"`."""
    match = re.search(rf"- {re.escape(element)}[^\n]*? \[ref=(\w+)\]", snapshot)
    assert match is not None, f"{element} is not in\n{snapshot}"
    return match[1]


def chromiums(pid: int) -> list[psutil.Process]:
    """The first process of each Chromium below `pid`, which starts all others of it."""
    return below(pid, "--remote-debugging-pipe", without="--type")


@contextlib.asynccontextmanager
async def browsing(*, env: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Browsing]:
    """A freshly started `python -m mcp_hub.servers browser`; loopback is allowed unless told otherwise."""
    chosen = Settings(**{"address_rules": LOOPBACK, **settings})
    async with spawned(BROWSER, env={**(env or {}), VARIABLE: json.dumps(chosen.to_json())}) as client:
        await client.initialize()
        client.patience = LAUNCH_WAIT + NAVIGATION + GRACE  # what the first call may take
        yield Browsing(client)
