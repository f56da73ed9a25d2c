"""The fallback and the deadline of MiroFlow's ToolManager: what they cover, and what they tell its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from mcp_hub import ToolManager
from tests.fakes.client import PATIENCE, fake, free_port
from tests.library.tool_managers import HF, HF_SENTENCE, Json, TaskLog, named
from tests.policy.tries.counted import counting
from tests.policy.tries.test_fallback import ALLOWED, site


def test_a_page_that_redirects_to_a_guarded_url_is_reported_as_blocked(tmp_path: Path) -> None:
    async def scraped() -> tuple[Json, list[str]]:
        log = TaskLog()
        config = {"servers": {"s": counting(tmp_path, *["die-after"] * 2)}, **ALLOWED}
        async with site() as (base, _), ToolManager(config=config) as manager:
            manager.task_log = log
            return await manager.execute_tool_call("s", "scrape", {"url": f"{base}/to-dataset"}), log.names()

    answer, steps = asyncio.run(scraped())
    assert answer["result"] == HF_SENTENCE
    assert steps == ["Tool Call Start", "Fallback Attempt", "Fallback Failed", "Tool Call Blocked"]


def test_the_task_log_contains_each_step_of_the_fallback(tmp_path: Path) -> None:
    async def scraped() -> tuple[Json, Json, list[str]]:
        log = TaskLog()
        config = {"servers": {"s": counting(tmp_path, *["die-after"] * 4)}, **ALLOWED}
        async with site() as (base, _), ToolManager(config=config) as manager:
            manager.set_task_log(log)
            page = await manager.execute_tool_call("s", "scrape", {"url": f"{base}/page"})
            none = await manager.execute_tool_call("s", "scrape", {"url": f"{base}/missing"})
        return page, none, [name for name in log.names() if name.startswith("Fallback")]

    page, none, steps = asyncio.run(scraped())
    assert page["result"].startswith("# Title")
    assert "MarkItDown" not in page["result"]
    assert "error" in none
    assert steps == ["Fallback Attempt", "Fallback Success", "Fallback Attempt", "Fallback Failed"]


def recorded(caplog: pytest.LogCaptureFixture) -> list[Json]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "mcp_hub.calls"]


def test_fallback_guard_and_call_record_apply_to_a_server_that_never_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """MiroFlow's document, 3.6: the attempt to connect is inside of what the fallback covers."""
    caplog.set_level("INFO", logger="mcp_hub.calls")
    log = TaskLog()

    async def ask() -> dict[str, Json]:
        missing_server = {"command": "/there/is/no/such/program", "retry": "off"}
        config = {
            "servers": {"gone": missing_server, "hidden": {**missing_server, "disable_tools": ["scrape"]}},
            **ALLOWED,
        }
        async with site() as (base, _), ToolManager(config=config, tool_blacklist=["gone/scrape_website"]) as manager:
            manager.set_task_log(log)
            page = {"url": f"{base}/page"}
            return {
                "page": await manager.execute_tool_call("gone", "scrape", page),
                "guarded": await manager.execute_tool_call("gone", "scrape", {"url": HF}),
                "missing": await manager.execute_tool_call("gone", "scrape", {"url": f"{base}/missing"}),
                "other": await manager.execute_tool_call("gone", "echo", page),
                "blacklisted": await manager.execute_tool_call("gone", "scrape_website", page),
                "hidden": await manager.execute_tool_call("hidden", "scrape", page),
            }

    answers = asyncio.run(ask())
    assert answers["page"]["result"].startswith("# Title")
    assert answers["guarded"]["result"] == HF_SENTENCE
    for name in ("missing", "other", "hidden"):
        assert answers[name]["error"].startswith("Tool call failed: "), name
    assert "blacklisted" in answers["blacklisted"]["error"]
    records = recorded(caplog)
    assert [(record["name"], record["verdict"], record["policy"]) for record in records] == [
        ("gone__scrape", "ok", "fallback"),
        ("gone__scrape", "refused", "guard"),
        ("gone__scrape", "error", None),
        ("gone__echo", "error", None),
        ("hidden__scrape", "error", None),
    ]
    assert [name for name in log.names() if name.startswith("Fallback")] == [
        "Fallback Attempt",
        "Fallback Success",
        "Fallback Attempt",
        "Fallback Failed",
    ]


@pytest.mark.parametrize("path", ["sse", "mcp"])
def test_the_fallback_runs_for_a_url_that_refuses_connections(path: str) -> None:
    """MiroFlow's document, limit 3: newer SDKs word this failure otherwise, and the original's fallback never runs."""

    async def ask() -> Json:
        url = f"http://127.0.0.1:{free_port()}/{path}"
        config = {"servers": {"far": {"url": url, "retry": "off"}}, **ALLOWED}
        async with site() as (base, _), ToolManager(config=config) as manager:
            return await manager.execute_tool_call("far", "scrape_website", {"url": f"{base}/page"})

    assert asyncio.run(ask())["result"].startswith("# Title")


def test_the_deadline_covers_the_start_of_a_server_retries_and_the_fallback(tmp_path: Path) -> None:
    """MiroFlow's document, 1: it wraps the whole of the call. By default it is 1200 s."""

    async def ask() -> list[str]:
        writers: set[asyncio.StreamWriter] = set()

        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            while await reader.read(65536):
                pass

        listener = await asyncio.start_server(never, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/page"
        retrying = counting(tmp_path, *["die-before"] * 9, retry={"attempts": 9, "backoff": 60, "max_backoff": 60})
        servers = {
            "silent": fake("--silent"),
            "retrying": retrying,
            "scraping": {"command": "/there/is/no/such/program", "retry": "off"},
            "recorded": fake("--record", str(tmp_path / "record")),
        }
        timed_out = []
        async with ToolManager(config={"servers": servers, **ALLOWED}, timeout=1.5) as manager:
            calls = (("silent", "echo", {}), ("retrying", "read", {}), ("scraping", "scrape", {"url": url}))
            for server, tool, arguments in (*calls, ("recorded", "sleep", {"seconds": 60})):
                with pytest.raises(asyncio.TimeoutError):
                    await manager.execute_tool_call(server, tool, arguments)
                timed_out.append(server)
            assert (await manager.execute_tool_call("recorded", "echo", {"text": "next"}))["result"] == "next"
        listener.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(writer.wait_closed(), PATIENCE)
        return timed_out

    assert asyncio.run(ask()) == ["silent", "retrying", "scraping", "recorded"]
    assert "notifications/cancelled" in (tmp_path / "record").read_text()
    with ToolManager([named("one")]) as manager:
        (server,) = manager.hub.config.servers
        assert server.deadlines.call == 1200
