"""A listening hub in front of a process that records its requests; and requests to it, in raw bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.downstream.raw_http import BOTH, ENVELOPE, Lines, Response, fetch

OPEN, SHUT = "up__echo", "up__meta"
MODERN_LINES = [*BOTH, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", OPEN)]
META = json.dumps(ENVELOPE)


@dataclass
class Front:
    """The port of the hub, and the record of the process behind it."""

    port: int
    record: Path

    def called(self) -> list[dict[str, Any]]:
        messages = [json.loads(line) for line in self.record.read_text().splitlines()]
        return [message["params"] for message in messages if message.get("method") == "tools/call"]

    async def post(self, lines: Lines, body: str | bytes) -> Response:
        data = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        return await fetch(self, "POST", "/mcp", lines, data)  # type: ignore[arg-type]


def call(params: str = "", meta: str = "", name: str = f'"name":"{OPEN}",') -> str:
    inner = f'{name}{params}"arguments":{{"text":"x"}}' + (f',"_meta":{meta}' if meta else "")
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{inner}}}}}'
