"""A server's key reaches it with every request, and nobody else ever sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.client import hub
from tests.policy.tries.counted import counting_http, written

pytestmark = pytest.mark.anyio

KEY = "a-key-that-nobody-must-see-4711"


async def test_an_api_key_is_sent_when_listing_and_when_calling_and_stands_in_no_log(tmp_path: Path) -> None:
    """Check 47."""
    log = tmp_path / "calls.jsonl"
    async with counting_http(tmp_path, "ok", "401", token=KEY) as url:
        entry = {"url": url, "transport": "http", "era": "handshake", "api_key": KEY}
        async with hub(tmp_path, {"c": entry}, call_log={"file": str(log)}) as client:
            assert await client.text("c__effect") == "effect done"
            refused = await client.call("c__effect")
            assert refused["_meta"]["mcp-hub/error"]["code"] == "permission_denied"
            assert KEY not in str(refused)
            await client.until(lambda: b"permission_denied" in client.stderr)
        stderr = client.stderr
    assert written(tmp_path, "token tools/list") == 1
    assert written(tmp_path, "token tools/call") == 2
    assert b"effect" in log.read_bytes()
    assert KEY.encode() not in stderr + log.read_bytes()


async def test_a_wrong_api_key_is_reported_with_the_missing_server(tmp_path: Path) -> None:
    async with counting_http(tmp_path, token=KEY) as url:
        entry = {"url": url, "transport": "http", "era": "handshake", "api_key": "another-key-0815"}
        async with hub(tmp_path, {"c": entry}, list_wait=10) as client:
            assert await client.tool_names() == []
            await client.until(lambda: b"HTTP 401" in client.stderr)
        assert b"another-key-0815" not in client.stderr
