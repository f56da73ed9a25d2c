"""What a type checker sees of a call: `scripts/check` reads this with mypy, and a test runs it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, assert_type

from mcp_hub import CallToolResult, Hub


async def texts(hub: Hub, text: str) -> list[str]:
    """Returns what `echo` of the server `fake` answers to each way of calling it."""
    results = [
        await hub.call("fake__echo", {"text": text}),
        await hub.call("fake", "echo", {"text": text}),
        hub.call_sync("fake__echo", arguments={"text": text}),
    ]
    assert_type(results, list[CallToolResult])
    for result in results:
        assert_type(result["content"], list[dict[str, Any]])
        assert_type(result.get("isError", False), bool)
        assert_type(result.get("_meta"), dict[str, Any] | None)
        with suppress(KeyError):
            result["contents"]  # type: ignore[typeddict-item]
    return [result["content"][0]["text"] for result in results]
