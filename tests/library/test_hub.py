"""`mcp_hub.Hub`: from sync code, from any loop, from a fork; nothing gets past its rules, nothing outlives it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import re
import select
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import mcp_hub
from mcp_hub import CallToolResult, Hub
from mcp_hub.errors import INVALID_PARAMS, ConfigError, UnknownName, UpstreamAnswered
from mcp_hub.servers.local.local_tool import LocalTool
from tests.fakes.client import FAKE, PATIENCE, fake, write_config
from tests.library.typed_program import texts

SETTING: contextvars.ContextVar[str] = contextvars.ContextVar("SETTING", default="none")


def text(result: CallToolResult) -> str:
    return str(result["content"][0]["text"])


def code(result: CallToolResult) -> str:
    return str(result["_meta"]["mcp-hub/error"]["code"])


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def where() -> object:
    """Where it runs."""
    return asyncio.get_running_loop()


def setting() -> str:
    """What its caller has set."""
    return SETTING.get()


async def nested(times: int) -> str:
    """Calls itself by the hub, as sync code would."""
    return "done" if times == 0 else text(HUBS[0].call_sync("local", "nested", {"times": times - 1}))


HUBS: list[Hub] = []


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with Hub(
        {
            "servers": {
                "fake": fake(),
                "other": fake(),
                "guarded": fake(tools={"echo": {"preset": {"text": "preset"}}}),
            },
            "blacklist": [["other", "add"]],
        }
    ) as hub:
        for function in (add, where, setting, nested):
            hub.put_function(LocalTool(function))
        HUBS[:] = [hub]
        yield hub
    HUBS.clear()


def test_the_tool_decorator_registers_a_function_and_returns_it_unchanged(hub: Hub) -> None:
    @hub.tool
    def twice(a: int) -> int:
        return 2 * a

    @hub.tool(name="thrice", description="Three times.", tags="sums")
    def triple(a: int) -> int:
        return 3 * a

    assert (twice(2), triple(2)) == (4, 6)
    assert text(hub.call_sync("local", "twice", {"a": 2})) == "4"
    assert text(hub.call_sync("local", "thrice", {"a": 2})) == "6"
    (card,) = [card for card in hub.list_sync("local") if card.name == "thrice"]
    assert card.description == "Three times."
    hub.remove_function("thrice")
    assert "thrice" not in [card.name for card in hub.list_sync("local")]


def test_groups_can_be_created_and_switched_without_an_event_loop(hub: Hub) -> None:
    def served() -> set[str]:
        return {card.name for card in hub.list_sync("other")}

    all_names = served()
    hub.groups.create("some", "Some.", notes="Slowly.", tools=["other/echo"])
    assert served() == all_names - {"echo"}
    assert code(hub.call_sync("other", "echo", {"text": "x"})) == "group_inactive"
    hub.groups.add("some", tools=["other/pid"])
    with pytest.raises(ValueError, match="nope"):
        hub.groups.update(["some", "nope"], active=True)
    assert served() == all_names - {"echo", "pid"}
    hub.groups.update("some", active=True)
    assert (served(), hub.groups.active()) == (all_names, ("some",))
    assert hub.groups.notes() == "## About Tool Group 'some'\nSlowly."
    assert text(hub.call_sync("other", "echo", {"text": "x"})) == "x"
    state = hub.groups.state_dict()
    hub.groups.reset({})
    assert not hub.groups["some"].active
    hub.groups.load_state_dict(state)
    assert [group.name for group in hub.groups if group.active] == ["some"]
    hub.groups.remove("some")
    assert (len(hub.groups), "some" in hub.groups) == (0, False)
    with pytest.raises(UnknownName):
        hub.call_sync("other", "echo", {"text": "x"})
    assert served() == all_names - {"echo", "pid"}
    hub.groups.create("some", active=True, tools=["other/echo", "other/pid"])
    assert served() == all_names


def test_consecutive_event_loops_share_one_session(hub: Hub) -> None:
    async def pid() -> str:
        return text(await hub.call("fake", "pid"))

    assert asyncio.run(pid()) == asyncio.run(pid()) == text(hub.call_sync("fake", "pid"))


def test_sync_calls_inside_a_running_loop_return(hub: Hub) -> None:
    async def inside() -> str:
        return text(hub.call_sync("fake", "echo", {"text": "here"}))

    assert asyncio.run(inside()) == "here"


def test_many_threads_can_call_concurrently(hub: Hub) -> None:
    answers: list[str] = []

    def ask(number: int) -> None:
        answers.append(text(hub.call_sync("fake", "echo", {"text": str(number)})))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(answers) == sorted(map(str, range(16)))


def test_a_call_returns_the_servers_result_unchanged(hub: Hub) -> None:
    result = hub.call_sync("fake", "echo", {"text": "x"})
    assert result["futureTop"] == {"n": 10**25}
    assert result["_meta"] == {"x/y": 1}


def test_rules_apply_to_calls_of_a_program(hub: Hub) -> None:
    assert text(hub.call_sync("guarded", "echo", {"text": "mine"})) == "preset"
    assert code(hub.call_sync("fake", "add", {"b": [1, 2]})) == "invalid_parameters"
    with pytest.raises(UnknownName):
        hub.call_sync("other", "add", {"a": 1, "b": 2})
    assert ("other", "add") not in [(card.server, card.name) for card in hub.list_sync()]
    with pytest.raises(UpstreamAnswered) as raised:
        hub.call_sync("fake", "fail")
    assert raised.value.code == -32050
    with pytest.raises(UnknownName):
        hub.call_sync("nobody", "echo")


def test_a_call_takes_the_exposed_name_of_a_tool(hub: Hub) -> None:
    assert text(hub.call_sync("fake__echo", {"text": "x"})) == "x"
    assert text(hub.call_sync("guarded__echo", arguments={"text": "mine"})) == "preset"
    assert hub.call_sync("add", {"a": 1}) == hub.call_sync("local", "add", {"a": 1})
    assert code(hub.call_sync("fake__add", {"b": [1, 2]})) == "invalid_parameters"
    assert code(hub.call_sync("fake__echo", ["x"])) == "invalid_parameters"  # type: ignore[arg-type]
    with pytest.raises(UpstreamAnswered):
        hub.call_sync("fake__fail")
    with pytest.raises(TypeError):
        hub.call_sync("fake__echo", {"text": "x"}, {"text": "y"})

    async def progress() -> list[Any]:
        seen: list[Any] = []
        await hub.call("fake__count", {"steps": 1}, on_progress=seen.append)
        return seen

    assert len(asyncio.run(progress())) == 1


def test_a_typed_program_runs(hub: Hub) -> None:
    assert asyncio.run(texts(hub, "typed")) == ["typed"] * 3


def test_a_call_takes_each_name_of_the_list() -> None:
    odd = {"a.b": "", "emoji-\N{SNOWMAN}": "x", "long" * 20: "long" * 10}
    with Hub({"servers": {id: fake(namespace=namespace) for id, namespace in odd.items()}}) as hub:
        names = [card.exposed for card in hub.list_sync() if card.name == "echo"]
        assert len(names) == 3
        assert [text(hub.call_sync(name, {"text": name})) for name in names] == names


@pytest.mark.parametrize("words", [("other__ad",), ("other__add",), ("other", "add"), ("nobody__add",), ("echo",)])
def test_an_unknown_name_suggests_similar_names_that_the_caller_may_use(hub: Hub, words: tuple[str, ...]) -> None:
    with pytest.raises(UnknownName) as raised:
        hub.call_sync(*words)
    assert raised.value.code == INVALID_PARAMS
    suggested = set(re.findall(r"\w+__\w+", str(raised.value).partition(";")[2]))
    assert suggested
    assert suggested <= {card.exposed for card in hub.list_sync()}


def test_a_name_of_an_unavailable_server_ends_like_a_call_of_that_server() -> None:
    with Hub({"servers": {"dead": fake("--die", "no"), "off": fake(enabled=False), "fake": fake()}}) as hub:
        assert code(hub.call_sync("dead__echo")) == code(hub.call_sync("dead", "echo")) == "server_unavailable"
        for name in ("off__echo", "hub_search", "", "__", "dead", "fake__"):
            with pytest.raises(UnknownName):
                hub.call_sync(name)


def test_a_name_in_an_inactive_group_is_refused(hub: Hub) -> None:
    hub.groups.create("named", tools=["guarded/pid"])
    assert code(hub.call_sync("guarded__pid")) == "group_inactive"
    hub.groups.remove("named")


def test_a_cancelled_call_is_cancelled_at_its_server(hub: Hub, tmp_path: Path) -> None:
    record = tmp_path / "record"

    async def cancelled() -> None:
        await hub.add_server("recorded", fake("--record", str(record)))
        going = asyncio.Event()
        loop = asyncio.get_running_loop()
        call = asyncio.ensure_future(
            hub.call(
                "recorded",
                "count",
                {"steps": 1, "pause": PATIENCE},
                on_progress=lambda _: loop.call_soon_threadsafe(going.set),
            )
        )
        await asyncio.wait_for(going.wait(), PATIENCE)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(PATIENCE):
            while "notifications/cancelled" not in record.read_text():  # the next call may overtake it
                await hub.call("recorded", "echo", {"text": "after"})

    asyncio.run(cancelled())
    hub.remove_server_sync("recorded")


def test_functions_run_in_the_callers_loop_and_their_return_value_is_passed_on(hub: Hub) -> None:
    async def check() -> None:
        assert (await hub.act("local", "where")).value is asyncio.get_running_loop()
        SETTING.set("mine")
        assert (await hub.act("local", "setting")).value == "mine"

    asyncio.run(check())
    assert hub.act_sync("local", "add", {"a": 1}).value == 3
    assert text(hub.call_sync("local", "add", {"a": 1})) == "3"
    assert code(hub.call_sync("local", "add", {"a": "1"})) == "invalid_parameters"


def test_functions_that_call_the_hub_do_not_deadlock(hub: Hub) -> None:
    async def inside() -> str:
        return text(await hub.call("local", "nested", {"times": 3}))

    assert text(hub.call_sync("local", "nested", {"times": 3})) == "done"


def test_servers_can_be_added_and_removed_while_the_hub_runs(hub: Hub) -> None:
    hub.add_server_sync("late", fake())
    assert text(hub.call_sync("late", "echo", {"text": "there"})) == "there"
    with pytest.raises(ConfigError):
        hub.add_server_sync("late", fake())
    hub.remove_server_sync("late")
    with pytest.raises(UnknownName):
        hub.call_sync("late", "echo")
    with pytest.raises(ConfigError):
        hub.remove_server_sync("late")
    with pytest.raises(ConfigError):
        hub.add_server_sync("wrong", {"command": "x", "url": "http://127.0.0.1/"})


@pytest.mark.anyio
async def test_tools_are_listed_while_one_of_their_servers_is_removed() -> None:
    async with Hub({"servers": {"gone": fake(), "slow": fake("--start-delay", "2")}}) as hub:
        assert text(await hub.call("gone", "echo", {"text": "there"})) == "there"
        listing = asyncio.create_task(hub.list())
        await asyncio.sleep(0)  # it waits for the slow server
        await hub.remove_server("gone")
        async with asyncio.timeout(PATIENCE):
            assert {card.server for card in await listing} == {"slow"}


def test_a_function_may_be_replaced_and_removed(hub: Hub) -> None:
    hub.put_function(LocalTool(lambda: "one", mcp_hub.servers.local.Mark(name="changing")))  # type: ignore[attr-defined]
    assert hub.act_sync("local", "changing").value == "one"
    hub.put_function(LocalTool(lambda: "two", mcp_hub.servers.local.Mark(name="changing")))  # type: ignore[attr-defined]
    assert hub.act_sync("local", "changing").value == "two"
    hub.remove_function("changing")
    assert isinstance(hub.act_sync("local", "changing").error, UnknownName)


def test_a_forked_process_starts_its_own_servers_and_keeps_its_parents_running(hub: Hub) -> None:
    parent = text(hub.call_sync("fake", "pid"))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(write_end, text(hub.call_sync("fake", "pid")).encode())
            hub.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read_end, 100).decode() not in ("", parent)
    os.close(read_end)
    os.close(write_end)
    assert text(hub.call_sync("fake", "pid")) == parent


def test_a_closed_hub_raises_on_use_and_can_be_closed_twice() -> None:
    hub = Hub({"servers": {"fake": fake()}})
    pid = int(text(hub.call_sync("fake", "pid")))
    hub.close()
    assert not psutil.pid_exists(pid)
    hub.close()
    asyncio.run(hub.aclose())
    with pytest.raises(RuntimeError):
        hub.call_sync("fake", "pid")


def test_check_29_no_child_is_left_in_any_order_of_closing() -> None:
    first, second = Hub({"servers": {"fake": fake()}}), Hub({"servers": {"fake": fake("--stubborn", "--grandchild")}})
    pids = [int(text(hub.call_sync("fake", "pid"))) for hub in (first, second)]
    children = [child for pid in pids for child in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]
    first.close()
    second.close()
    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []


def test_a_garbage_collected_hub_stops_its_servers() -> None:
    hub = Hub({"servers": {"fake": fake()}})
    server = os.pidfd_open(int(text(hub.call_sync("fake", "pid"))))
    del hub
    gc.collect()
    assert select.select([server], [], [], PATIENCE)[0] == [server]
    os.close(server)


@pytest.mark.parametrize("end", ["", "import os; os._exit(0)", "raise RuntimeError"])
def test_no_child_outlives_a_program_that_never_closes(end: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    program = f"""
        import sys
        from mcp_hub import Hub
        servers = {{"fake": {{"command": sys.executable, "args": [{FAKE!r}]}}}}
        hub = Hub({{"servers": servers, "call_log": {{"file": {str(calls)!r}}}}})
        print(hub.call_sync("fake", "pid")["content"][0]["text"], flush=True)
        {end}
    """
    completed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE
    )
    pid = int(completed.stdout)
    survivors = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    assert psutil.wait_procs(survivors, timeout=PATIENCE)[1] == []
    if not end:
        assert completed.stderr == ""
        assert '"pid"' in calls.read_text()


def test_a_configuration_file_means_the_same_in_a_program_as_on_the_command_line(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"fake": fake(namespace="")}, blacklist=[["fake", "add"]])
    with Hub.from_config(path) as hub:
        exposed = [card.exposed for card in hub.list_sync()]
        assert "echo" in exposed
        assert "add" not in exposed
    with pytest.raises(ConfigError):
        Hub.from_config(tmp_path / "nowhere.yaml")


def test_metrics_collectors_receive_every_call() -> None:
    recorded: list[tuple[str, str, str, bool]] = []

    class Collector:
        def record(self, *, server: str, tool: str, method: str, code: str, seconds: float, success: bool) -> None:
            recorded.append((server, tool, code, success))

    with Hub(collectors=[Collector()]) as hub:
        hub.put_function(LocalTool(add))
        hub.call_sync("local", "add", {"a": 1})
        hub.call_sync("local", "add", {"a": "one"})
    assert recorded == [("local", "add", "ok", True), ("local", "add", "invalid_parameters", False)]


def test_one_dead_server_is_one_error_among_the_lists() -> None:
    with Hub({"servers": {"dead": fake("--die", "no"), "fake": fake()}}) as hub:
        dead, alive = hub.listed_sync()
        assert (dead.server, dead.tools) == ("dead", ())
        assert dead.error is not None
        assert dead.error.code == "server_unavailable"
        assert alive.error is None
        assert alive.tools
        assert code(hub.call_sync("dead", "echo")) == "server_unavailable"


def test_importing_the_package_imports_few_modules() -> None:
    heavy = ("asyncio", "pydantic", "mcp_hub.hub")
    program = f"import mcp_hub, sys; print(*[m for m in {heavy} if m in sys.modules])"
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert completed.stdout.split() == []
    assert [name for name in mcp_hub.__all__ if getattr(mcp_hub, name, None) is None] == []
