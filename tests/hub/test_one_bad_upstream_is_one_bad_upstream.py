"""Slow, silent, dead, crashing, lying upstreams beside a good one: the good one never notices."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from tests.fakes.client import PATIENCE, RpcError, fake, hub, write_config

pytestmark = pytest.mark.anyio

BAD = {
    "slow": fake("--name", "slow", "--start-delay", "12"),
    "silent": fake("--silent"),
    "dead": {"command": "/nonexistent/server"},
    "missing": {"command": "no-such-command-anywhere"},
    "dying": fake("--die", "API_KEY is not set"),
    "unset": fake(env={"TOKEN": "${MCP_HUB_TEST_UNSET_VARIABLE}"}),
}


async def wait_until_dead(pid: int) -> None:
    """Wait until a process is dead, whether or not its parent has noticed."""
    async with asyncio.timeout(PATIENCE):
        while alive(pid):
            await asyncio.sleep(0)


def alive(pid: int) -> bool:
    """Whether one thread of it still is: the first may be dead while another yet holds the pipes."""
    try:
        states = [path.read_text().rsplit(")", 1)[1].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return Path(f"/proc/{pid}").exists() and alive(pid)
    return any(state not in "ZX" for state in states)


@pytest.mark.parametrize("modern", [False, True])
async def test_responses_arrive_while_other_upstreams_are_slow_silent_or_dead(tmp_path: Path, modern: bool) -> None:
    servers = {**BAD, "good": fake("--name", "good")}
    async with hub(tmp_path, servers, modern=modern, handshake=False, list_wait=1) as client:
        if modern:
            assert (await client.request("server/discover"))["supportedVersions"][0] == "2026-07-28"
        else:
            assert (await client.initialize())["serverInfo"]["name"] == "mcp-hub"
            assert await client.request("ping") == {}
        assert "good__echo" in await client.tool_names()
        assert await client.text("good__echo", {"text": "hello"}) == "hello"


async def test_an_upstream_that_connects_late_is_announced_by_list_changed(tmp_path: Path) -> None:
    servers = {"late": fake("--name", "late", "--start-delay", "2"), "good": fake()}
    async with hub(tmp_path, servers, list_wait=0.5) as client:
        assert not any(name.startswith("late__") for name in await client.tool_names())
        await client.notified("notifications/tools/list_changed")
        assert "late__echo" in await client.tool_names()


@pytest.mark.parametrize("namespace", ["late", ""])
async def test_a_call_of_a_starting_upstreams_tool_waits_for_it(tmp_path: Path, namespace: str) -> None:
    servers = {"late": fake("--start-delay", "2", namespace=namespace), "good": fake()}
    async with hub(tmp_path, servers, list_wait=0.2) as client:
        name = f"{namespace}__echo" if namespace else "echo"
        assert await client.text(name, {"text": "there"}) == "there"


@pytest.mark.parametrize("server", ["dead", "missing", "dying", "unset"])
async def test_a_tool_of_an_upstream_that_never_connected_is_unknown(tmp_path: Path, server: str) -> None:
    async with hub(tmp_path, {server: BAD[server]}) as client:
        with pytest.raises(RpcError) as caught:
            await client.call(f"{server}__echo")
    assert caught.value.error == {"code": -32602, "message": f"Unknown tool: {server}__echo"}


async def test_a_crash_fails_the_call_with_the_stderr_tail_and_the_next_call_uses_a_new_process(
    tmp_path: Path,
) -> None:
    servers = {"up": fake(env={"SECRET": "secret-value-123"}), "good": fake()}
    async with hub(tmp_path, servers) as client:
        first = await client.text("up__pid")
        sleeping = client.start("tools/call", {"name": "good__sleep", "arguments": {"seconds": 0.5}})
        crashed = await client.call("up__crash")
        assert crashed["isError"] is True
        assert crashed["_meta"]["mcp-hub/error"] == {
            "code": "server_unavailable", "server": "up", "tool": "up__crash", "retryable": True,
        }  # fmt: skip
        text = crashed["content"][0]["text"]
        assert "about to crash" in text
        assert "status 7" in text
        assert "secret-value-123" not in text
        assert "\x1b" not in text
        second = await client.text("up__pid")
        assert second != first
        assert (await sleeping)["result"]["content"][0]["text"] == "slept"


async def test_a_killed_upstream_is_replaced_before_its_next_call(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        first = await client.text("up__pid")
        os.kill(int(first), signal.SIGKILL)
        await wait_until_dead(int(first))
        second = await client.text("up__pid")
        assert second != first


async def test_an_invalid_tool_is_left_out_and_its_neighbours_stay(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake("--bad-tool")}) as client:
        names = await client.tool_names()
        await client.until(lambda: b"broken" in client.stderr)
    assert "up__broken" not in names
    assert {"up__echo", "up__add"} <= set(names)


@pytest.mark.parametrize("options", [("--cursor-loop",), ("--endless-pages",), ("--pages", "7")])
async def test_all_pages_of_a_list_are_read_and_endless_paging_is_bounded(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with hub(tmp_path, {"up": fake(*options)}) as client:
        names = await client.tool_names()
    assert len(names) == len(set(names))
    assert len(names) == (100 if "--endless-pages" in options else 15)


@pytest.mark.parametrize("option", ["--ignore-unknown", "--die-on-unknown"])
async def test_a_server_that_fails_on_the_modern_probe_is_served_in_the_handshake_era(
    tmp_path: Path, option: str
) -> None:
    async with hub(tmp_path, {"up": fake(option)}, list_wait=10) as client:
        assert "up__echo" in await client.tool_names()
        assert await client.text("up__echo", {"text": "x"}) == "x"


async def test_a_dual_era_server_that_starts_slower_than_the_probe_is_still_found_to_be_modern(tmp_path: Path) -> None:
    slow = fake("--era", "dual", "--start-delay", "4")
    async with hub(tmp_path, {"up": slow}, modern=True, list_wait=10) as client:
        result = await client.call("up__meta")
    assert "io.modelcontextprotocol/protocolVersion" in json.loads(result["content"][0]["text"])


@pytest.mark.parametrize("tool", ["garble", "null", "odd_error"])
async def test_a_malformed_response_fails_only_its_own_call(tmp_path: Path, tool: str) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        message = await client.start("tools/call", {"name": f"up__{tool}", "arguments": {}})
        if "error" in message:
            assert isinstance(message["error"]["code"], int)
            assert isinstance(message["error"]["message"], str)
        else:
            assert message["result"]["isError"] is True
        assert await client.text("up__echo", {"text": "next"}) == "next"


async def test_a_call_times_out_and_the_next_call_uses_the_same_session(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake(timeout="0.3s")}) as client:
        pid = await client.text("up__pid")
        result = await client.call("up__sleep", {"seconds": 60})
        assert result["_meta"]["mcp-hub/error"]["code"] == "timeout"
        assert "servers.up.timeout" in result["content"][0]["text"]
        assert await client.text("up__pid") == pid


async def test_a_response_above_the_limit_fails_only_its_own_call(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake(max_frame="1MiB"), "good": fake()}) as client:
        await client.tool_names()
        big = client.start("tools/call", {"name": "up__big", "arguments": {"bytes": 32 * 2**20}})
        assert await client.text("good__echo", {"text": "meanwhile"}) == "meanwhile"
        error = (await big)["result"]["_meta"]["mcp-hub/error"]
        assert error["code"] == "result_too_large"
        assert await client.text("up__echo", {"text": "next"}) == "next"


async def test_a_result_of_32_mib_on_one_line_passes(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        assert len(await client.text("up__big", {"bytes": 32 * 2**20})) == 32 * 2**20


async def test_noise_on_an_upstreams_stdout_is_dropped(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake("--noise", "500")}) as client:
        assert await client.text("up__echo", {"text": "x"}) == "x"
        await client.until(lambda: b"not a message" in client.stderr)
        assert b"\x1b" not in client.stderr
        assert client.stderr.count(b"not a message") <= 10
        assert client.noise == []


async def test_an_upstream_gets_only_base_environment_variables_and_those_of_its_entry(tmp_path: Path) -> None:
    servers = {"up": fake(env={"DECLARED": "yes"}), "other": fake(env={"OTHER_SECRET": "no"})}
    os.environ["MCP_HUB_TEST_CANARY"] = "canary"
    try:
        async with hub(tmp_path, servers) as client:
            environ = json.loads(await client.text("up__environ"))
    finally:
        del os.environ["MCP_HUB_TEST_CANARY"]
    assert environ["DECLARED"] == "yes"
    assert "PATH" in environ
    assert not {"MCP_HUB_TEST_CANARY", "OTHER_SECRET"} & set(environ)


async def test_a_thousand_tools_of_fifty_upstreams_are_listed_in_the_order_of_the_file(tmp_path: Path) -> None:
    servers = {f"s{n}": fake("--tools", "5") for n in range(50)}
    async with hub(tmp_path, servers, expose="all", list_wait=60) as client:
        names = await client.tool_names()
        second_list = await client.tool_names()
    assert len(names) == 1000
    assert names == second_list
    assert [name.split("__")[0] for name in names] == [f"s{n}" for n in range(50) for _ in range(20)]


async def test_fifty_callers_of_one_upstream_each_get_their_own_answer(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        texts = await asyncio.gather(*(client.text("up__echo", {"text": str(n)}) for n in range(500)))
    assert texts == [str(n) for n in range(500)]


async def test_a_hub_with_a_missing_required_server_reports_it_and_exits_1(tmp_path: Path) -> None:
    servers = {"needed": fake("--die", "no licence", "--start-delay", "1", required=True), "good": fake()}
    async with hub(tmp_path, servers) as client:
        assert await client.exited() == 1
        assert b"the required server 'needed' is not available" in client.stderr
        assert b"no licence" in client.stderr


async def test_the_first_server_of_the_file_keeps_an_equal_name_even_if_it_starts_last(tmp_path: Path) -> None:
    servers = {"late": fake("--name", "late", "--start-delay", "1", namespace=""), "soon": fake(namespace="")}
    async with hub(tmp_path, servers, list_wait=30) as client:
        tools = (await client.request("tools/list"))["tools"]
    assert tools[0]["name"] == "echo"
    assert {tool["description"].rsplit(" ", 1)[1] for tool in tools} == {"late"}


async def test_an_upstream_whose_names_are_all_taken_does_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {id: fake("--tools", "300", namespace="same") for id in ("first", "second")}
    config = load_config(write_config(tmp_path, servers, list_wait=PATIENCE))
    async with Engine(config) as engine, asyncio.timeout(PATIENCE):
        await engine.settled_catalog()
        left_out = [finding for finding in engine.catalog.findings if finding.upstream == "second"]
    assert len(left_out) > 300
    logged = [message for message in caplog.messages if message.startswith("second: ")]
    assert len(logged) < 50
    assert any("more of its items" in message for message in logged)
