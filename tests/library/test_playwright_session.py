"""The PlaywrightSession of MiroFlow, and how a ToolManager ends what it has started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from mcp_hub import PlaywrightSession, ToolManager
from mcp_hub.errors import CallError, StateLost
from tests.fakes.client import PATIENCE
from tests.library.tool_managers import call, named, params


def test_playwright_has_one_session_that_starts_on_first_use() -> None:
    with ToolManager([named("playwright")]) as manager:
        assert manager.browser_session is None
        first = call(manager, "playwright", "pid")["result"]
        session = manager.browser_session
        assert isinstance(session, PlaywrightSession)
        assert asyncio.run(session.call_tool("pid")) == call(manager, "playwright", "pid")["result"] == first
        assert manager.browser_session is session


def test_a_standalone_playwright_session_connects_on_use_and_can_be_closed_twice() -> None:
    async def use() -> list[str]:
        session = PlaywrightSession(params())
        pids = [await session.call_tool("pid", {}), await session.call_tool(tool_name="pid")]
        await session.connect()
        await session.connect()
        await session.close()
        await session.close()
        return pids

    first, second = asyncio.run(use())
    assert first == second
    assert not psutil.pid_exists(int(first))


def test_a_session_recovers_from_a_failed_start_from_its_death_and_from_another_loop(tmp_path: Path) -> None:
    """Limit 5: nothing half-open is used again, and whoever closes it need not be the task that opened it."""
    missing = tmp_path / "missing"
    missing.touch()
    session = PlaywrightSession(params("--die-if", str(missing)))
    for _ in range(2):
        with pytest.raises(CallError):
            asyncio.run(session.connect())
    missing.unlink()
    first = int(asyncio.run(session.call_tool("pid")))
    process = psutil.Process(first)
    process.kill()
    process.wait(PATIENCE)
    with pytest.raises(StateLost):  # told once: the pages of before are gone
        asyncio.run(session.call_tool("pid"))
    second = int(asyncio.run(session.call_tool("pid")))
    assert second != first
    with pytest.raises(CallError) as lost:
        asyncio.run(session.call_tool("crash"))
    assert not isinstance(lost.value, StateLost)  # the call was lost, and its error is all that is told
    third = int(asyncio.run(session.call_tool("pid")))
    assert third != second
    asyncio.run(session.close())
    assert not psutil.pid_exists(third)


def test_a_call_after_closing_starts_a_new_playwright_session() -> None:
    def wait_for_exit(pid: str) -> bool:
        try:
            psutil.Process(int(pid)).wait(PATIENCE)
        except psutil.NoSuchProcess:
            return True
        return True

    async def unmanaged() -> list[str]:
        session = PlaywrightSession(params())
        pids = [await session.call_tool("pid")]
        await session.close()
        pids.append(await session.call_tool("pid"))
        await session.close()
        return pids

    async def managed() -> list[str]:
        async with ToolManager([named("playwright"), named("other")]) as manager:
            pids = [(await manager.execute_tool_call("playwright", "pid"))["result"]]
            session = manager.browser_session
            assert session is not None
            await session.close()
            await session.close()
            assert await asyncio.to_thread(wait_for_exit, pids[0])
            pids.append((await manager.execute_tool_call("playwright", "pid"))["result"])
            await session.close()
            listed = await manager.get_all_tool_definitions()
            assert [(entry["name"], entry["tools"][0]["name"]) for entry in listed] == [
                ("playwright", "echo"),
                ("other", "echo"),
            ]
            pids.append(await session.call_tool("pid"))
        await session.close()
        return pids

    for pids in (asyncio.run(unmanaged()), asyncio.run(managed())):
        assert len(set(pids)) == len(pids)
        assert [pid for pid in pids if psutil.pid_exists(int(pid))] == []


def test_concurrent_calls_after_closing_share_one_new_playwright_session() -> None:
    async def use() -> set[str]:
        async with ToolManager([named("playwright")]) as manager:
            await manager.execute_tool_call("playwright", "pid")
            assert manager.browser_session is not None
            await manager.browser_session.close()
            answers = await asyncio.gather(*(manager.execute_tool_call("playwright", "pid") for _ in range(3)))
            assert [answer for answer in answers if "error" in answer] == []
            return {answer["result"] for answer in answers}

    assert len(asyncio.run(use())) == 1


def test_check_29_closing_leaves_no_child_and_may_be_repeated() -> None:
    async def use() -> int:
        async with ToolManager([named("one")]) as manager:
            pid = int((await manager.execute_tool_call("one", "pid", {}))["result"])
            await manager.close()
            await manager.close()
        return pid

    assert not psutil.pid_exists(asyncio.run(use()))
    manager = ToolManager([named("one")])
    pid = int(call(manager, "one", "pid")["result"])
    manager.close()
    manager.close()
    assert not psutil.pid_exists(pid)
