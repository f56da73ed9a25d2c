"""Clients of both eras that call all the time, and the account of every nonce."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.chaos.world import World
from tests.fakes.client import ENVELOPE, MODERN

BREATH = 0.01
"""Seconds between two calls of one client: the run looks for faults under calls, not under load (`tests/load`)."""
ANSWER_WITHIN = 60.0
"""Seconds any call may take; the hub's own deadline is far shorter."""


@dataclass
class Account:
    """The outcome of each call: its own nonce, or one coded error."""

    outcomes: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Broken promises."""

    def answered(self, nonce: str, message: Any, target: str) -> None:
        if nonce in self.outcomes:
            self.wrong.append(f"{nonce} of {target} was answered twice")
        self.outcomes[nonce] = self._outcome(nonce, message, target)

    def _outcome(self, nonce: str, message: Any, target: str) -> str:
        if "error" in message:
            code = message["error"].get("code")
            if not isinstance(code, int) or isinstance(code, bool):
                self.wrong.append(f"{nonce} of {target}: the error has no code: {message['error']}")
            return f"error {code}"
        result = message["result"]
        if result.get("isError"):
            code = result.get("_meta", {}).get("mcp-hub/error", {}).get("code")
            if code is None:
                self.wrong.append(f"{nonce} of {target}: an error without a code: {result}")
            return str(code)
        text = result["content"][0]["text"]
        if text not in (nonce, "\N{REPLACEMENT CHARACTER}" * 3):  # a garbling server returns what it can
            self.wrong.append(f"{nonce} of {target} was answered with {text[:80]!r}")
        return "ok"

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())


class Caller:
    """One client over streamable HTTP. Request ids are the same for all callers."""

    def __init__(self, number: int, world: World, account: Account, seed: int) -> None:
        self.modern = number % 2 == 1
        self._number = number
        self._world = world
        self._account = account
        self._draw = random.Random(seed * 1000 + number)
        self._session: str | None = None

    async def run(self, over: asyncio.Event) -> None:
        """Calls until `over` is set."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            if not self.modern:
                await self._initialize(http)
            for request_id in itertools.count(2):
                if over.is_set():
                    return
                target = self._draw.choice(self._world.targets)
                nonce = f"c{self._number}n{request_id}"
                params = {"name": f"{target.id}__effect", "arguments": {"nonce": nonce}}
                self._account.answered(nonce, await self._ask(http, request_id, "tools/call", params), target.id)
                await asyncio.sleep(BREATH)

    async def _initialize(self, http: aiohttp.ClientSession) -> None:
        info = {"name": "chaos", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        await self._ask(http, 1, "initialize", params)

    async def _ask(self, http: aiohttp.ClientSession, request_id: int, method: str, params: dict[str, Any]) -> Any:
        headers = {"Accept": "application/json, text/event-stream"}
        if self.modern:
            params = {**params, "_meta": ENVELOPE}
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": params["name"]}
        elif self._session is not None:
            headers |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": "2025-11-25"}
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        async with http.post(f"{self._world.base}/mcp", json=body, headers=headers) as response:
            self._session = response.headers.get("Mcp-Session-Id", self._session)
            data = await response.read()
            if response.content_type == "text/event-stream":
                return _answer_of(data)
            return json.loads(data)


def _answer_of(data: bytes) -> Any:
    """Returns the only response on an event stream."""
    texts = [line[5:] for line in data.split(b"\n") if line.startswith(b"data:") and line[5:].strip()]
    (answer,) = [message for message in map(json.loads, texts) if "method" not in message]
    return answer
