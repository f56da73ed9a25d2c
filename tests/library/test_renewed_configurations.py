"""`Hub.renew`: functions answer under each configuration, and what facades have set applies to each of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_hub import Hub, Toolkit, ToolManager
from tests.fakes.client import PATIENCE, fake
from tests.library.test_hub import add, code, text
from tests.library.toolkits import plain

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


@pytest.mark.parametrize(
    "renewed",
    [
        {"defaults": {"deadlines": {"connect": "7s"}}},
        {"defaults": {"idle": "7s"}},
        {"defaults": {"max_frame": 1_000_000}},
        {"servers": {"local": fake()}},
    ],
    ids=["connect", "idle", "max_frame", "local"],
)
async def test_functions_answer_after_each_change_of_their_server(renewed: Json) -> None:
    async with Hub() as hub, asyncio.timeout(PATIENCE):
        hub.tool(add)
        for config in (renewed, {}, renewed):
            await hub.renew(config)
            assert hub.functions is not None
            assert text(await hub.call(hub.functions, "add", {"a": 1})) == "3"
        hub.tool(plain)  # announced to the hub by the conversation that is open now
        assert {card.name for card in await hub.list(hub.functions)} == {"add", "plain"}


async def test_a_call_that_runs_while_its_server_is_replaced_gets_its_own_answer() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        await release.wait()
        return "waited"

    async with Hub() as hub, asyncio.timeout(PATIENCE):
        hub.tool(wait)
        hub.tool(add)
        running = asyncio.create_task(hub.call("local", "wait"))
        await started.wait()
        await hub.renew({"defaults": {"deadlines": {"connect": "7s"}}})
        answers = [text(await hub.call("local", "add", {"a": number})) for number in range(5)]
        assert answers == ["2", "3", "4", "5", "6"]
        release.set()
        assert text(await running) == "waited"


async def test_the_id_of_the_functions_stays_while_it_is_free() -> None:
    async with Hub({"servers": {"local": fake()}}) as hub:
        hub.tool(add)
        assert hub.functions == "local_"
        await hub.renew({})
        assert hub.functions == "local_"
        assert text(await hub.call("local_", "add", {"a": 1})) == "3"


async def test_rules_of_a_manager_apply_to_each_configuration() -> None:
    config = {"servers": {"slow": fake(), "fake": fake()}}
    manager = ToolManager(
        tool_blacklist=[("fake", "echo")], timeout=0.5, on_timeout="return", config=config, check_arguments=False
    )

    async def never() -> None:
        await asyncio.Event().wait()

    def kind_of(value: int) -> str:
        return type(value).__name__

    async with manager, asyncio.timeout(PATIENCE):
        manager.tool_func(never)
        manager.tool_func(kind_of)
        for _ in range(2):
            await manager.hub.renew({**config, "defaults": {"deadlines": {"connect": "7s"}}})
            assert "error" in await manager.execute_tool_call("slow", "sleep", {"seconds": 600})
            assert code(await manager.hub.call("local", "never")) == "timeout"
            assert await manager.async_call_tool("kind_of", {"value": "text"}) == "str"
            assert "echo" not in {card.name for card in await manager.hub.list("fake")}
            assert [pair for pair in manager.hub.config.settings["blacklist"]] == [("fake", "echo")]
        manager.tool_blacklist.clear()
        await manager.get_all_tool_definitions()
        await manager.hub.renew(config)
        assert "echo" in {card.name for card in await manager.hub.list("fake")}


async def test_groups_of_a_toolkit_and_the_blacklist_of_an_attached_manager_apply_to_each_configuration() -> None:
    toolkit, manager = Toolkit(), ToolManager(tool_blacklist=[("fake", "echo")])
    toolkit.create_tool_group("sums", "Adding.")
    toolkit.register_tool_function(add, "sums")
    async with Hub() as hub:
        hub.attach(toolkit, manager)
        await hub.renew({"servers": {"local": fake(), "fake": fake()}})
        assert hub.functions is not None
        refused = await hub.call(hub.functions, "add", {"a": 1})
        assert code(refused) == "group_inactive"
        assert "echo" not in {card.name for card in await hub.list("fake")}
