"""A running hub loads its configuration again: nothing that runs fails, and what did not change notices nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.hub.generations import MAX_RETIRING
from tests.fakes.client import HUB, PATIENCE, RpcError, StdioClient, fake, hub, spawned, write_config
from tests.fakes.network import network_hub, sdk, text
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio

LOADED = b"loaded servers.json again"
REFUSED = b"servers.json was not loaded again"


async def heard(client: StdioClient, log_text: bytes, count: int = 1) -> None:
    """Waits until the hub has logged this text `count` times."""
    await client.until(lambda: client.stderr.count(log_text) >= count)


async def changed(client: StdioClient, directory: Path, servers: dict[str, Any], **root: Any) -> None:
    """Write the file anew and have the hub load it."""
    count = client.stderr.count(LOADED)
    write_config(directory, servers, **root)
    client.process.send_signal(signal.SIGHUP)
    await heard(client, LOADED, count + 1)


async def test_unchanged_servers_keep_their_process_and_others_start_or_stop(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake(), "b": fake(), "c": fake()}, watch=False) as client:
        names = await client.tool_names()
        assert {"a__pid", "b__pid", "c__pid"} <= set(names)
        before = {id: await client.text(f"{id}__pid") for id in "abc"}
        await changed(client, tmp_path, {"a": fake(), "b": fake("--tools", "1"), "d": fake()}, watch=False)
        await client.notified("notifications/tools/list_changed")
        names = await client.tool_names()
        assert {"a__pid", "b__t0", "d__pid"} <= set(names)
        assert not any(name.startswith("c__") for name in names)
        assert await client.text("a__pid") == before["a"]
        assert await client.text("b__pid") != before["b"]
        with pytest.raises(RpcError) as caught:
            await client.call("c__pid")
        assert caught.value.error == {"code": -32602, "message": "Unknown tool: c__pid"}
        assert b"started d; started anew b; stopped c" in client.stderr


async def test_a_changed_file_is_reloaded_automatically(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake()}) as client:
        pid = await client.text("a__pid")
        write_config(tmp_path, {"a": fake(), "b": fake()})
        await heard(client, LOADED)
        assert await client.text("b__echo", {"text": "there"}) == "there"
        replacement = tmp_path / "next.json"
        replacement.write_text((tmp_path / "servers.json").read_text().replace('"b"', '"z"'))
        replacement.chmod(0o600)
        replacement.replace(tmp_path / "servers.json")  # as editors save
        await heard(client, LOADED, 2)
        assert await client.text("z__echo", {"text": "there"}) == "there"
        assert await client.text("a__pid") == pid


async def test_a_change_in_any_of_several_configuration_files_is_reloaded(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    first = write_config(tmp_path, {"a": fake()})
    second = write_config(tmp_path / "mine", {"b": fake()})
    argv = [*HUB, "serve", "--config", str(first), "--config", str(second)]
    async with spawned(argv) as client:
        await client.initialize()
        pid = await client.text("b__pid")
        write_config(tmp_path / "mine", {"b": fake(), "c": fake()})
        await heard(client, b"loaded servers.json, servers.json again: started c")
        write_config(tmp_path, {"d": fake()})
        await heard(client, b"started d; stopped a")
        assert await client.text("b__pid") == pid
        assert await client.text("d__echo", {"text": "there"}) == "there"
        write_config(tmp_path / "mine", {"b": fake(disable_tools=5)})
        await heard(client, b"servers.b.disable_tools")
        assert str(second).encode() in client.stderr
        assert await client.text("b__pid") == pid


async def test_an_invalid_file_changes_nothing_and_is_reported_with_its_lines(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake()}, watch=False) as client:
        pid = await client.text("a__pid")
        write_config(tmp_path, {"a": fake(disable_tools=5), "b": fake()}, watch=False)
        client.process.send_signal(signal.SIGHUP)
        await heard(client, b"servers.a.disable_tools")
        assert REFUSED in client.stderr
        (tmp_path / "servers.json").write_text("{")
        client.process.send_signal(signal.SIGHUP)
        await heard(client, REFUSED, 2)
        assert await client.text("a__pid") == pid
        await changed(client, tmp_path, {"a": fake(), "b": fake()}, watch=False)
        assert await client.text("a__pid") == pid
        assert await client.text("b__echo", {"text": "there"}) == "there"


async def test_a_bad_entry_takes_only_its_own_server_out_of_a_running_hub(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake(), "b": fake()}, watch=False) as client:
        pid = await client.text("b__pid")
        await changed(client, tmp_path, {"a": {"command": 5}, "b": fake()}, watch=False)
        assert b"servers.a: is switched off: command: must be a text" in client.stderr
        assert await client.text("b__pid") == pid
        with pytest.raises(RpcError):
            await client.call("a__pid")


async def test_changed_rules_apply_at_once_without_a_new_process(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake()}, watch=False) as client:
        pid = await client.text("a__pid")
        await changed(client, tmp_path, {"a": fake(disable_tools=["echo"])}, watch=False)
        assert "a__echo" not in await client.tool_names()
        with pytest.raises(RpcError) as caught:
            await client.call("a__echo", {"text": "x"})
        assert caught.value.error == {"code": -32602, "message": "Unknown tool: a__echo"}
        assert await client.text("a__pid") == pid
        await changed(client, tmp_path, {"a": fake(namespace="other")}, watch=False)
        assert await client.text("other__pid") == pid


async def test_no_call_fails_over_twenty_reloads(tmp_path: Path) -> None:
    """Calls to a server that stays and to one that is another process after every reload."""

    def servers(number: int) -> dict[str, Any]:
        return {"same": fake(), "other": fake(env={"GENERATION": str(number)})}

    async with hub(tmp_path, servers(0), watch=False) as client:
        pid = await client.text("same__pid")
        await client.text("other__pid")
        echoes: list[tuple[str, str]] = []
        stopped = asyncio.Event()

        async def call(number: int) -> None:
            server = ("same", "other")[number % 2]
            seconds = 0.5 if number % 20 < 4 else 0.05
            assert await client.text(f"{server}__sleep", {"seconds": seconds}) == "slept"
            echoes.append((f"{number}", await client.text(f"{server}__echo", {"text": f"{number}"})))

        async def calls(number: int) -> None:
            while not stopped.is_set():
                await call(number)
                number += 20

        call_tasks = asyncio.gather(*(calls(number) for number in range(20)))
        for number in range(1, 21):
            await changed(client, tmp_path, servers(number), watch=False)
            await client.until(lambda number=number: len(echoes) >= 50 * number)
        stopped.set()
        await call_tasks
        assert len(echoes) >= 1000
        assert all(sent == received for sent, received in echoes)
        assert await client.text("same__pid") == pid
        assert json.loads(await client.text("other__environ"))["GENERATION"] == "20"


async def test_a_running_call_finishes_on_the_process_that_a_reload_replaced(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": fake(), "b": fake()}, watch=False) as client:
        pid = int(await client.text("a__pid"))
        slow = client.start("tools/call", {"name": "a__sleep", "arguments": {"seconds": 2}})
        await client.text("a__echo", {"text": "it has read both"})
        await changed(client, tmp_path, {"b": fake()}, watch=False)
        assert not any(name.startswith("a__") for name in await client.tool_names())
        async with asyncio.timeout(PATIENCE):
            answer = await slow
        assert answer["result"]["content"][0]["text"] == "slept"
        async with asyncio.timeout(PATIENCE):
            while Path(f"/proc/{pid}").exists():
                await client.text("b__pid")


async def test_a_changed_secret_file_restarts_only_its_own_server(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first-secret-value")
    servers = {"a": fake(env={"TOKEN": "${file:secret}"}), "b": fake()}
    async with hub(tmp_path, servers) as client:
        assert json.loads(await client.text("a__environ"))["TOKEN"] == "first-secret-value"
        pid = await client.text("b__pid")
        secret.write_text("second-secret-value")
        await heard(client, LOADED)
        assert json.loads(await client.text("a__environ"))["TOKEN"] == "second-secret-value"
        assert await client.text("b__pid") == pid
        assert b"secret-value" not in client.stderr


async def test_a_reload_loads_added_files_of_local_tools(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    source = "import mcp_hub\n\n@mcp_hub.tool\ndef {name}() -> str:\n    return '{name}'\n"
    (tools / "one.py").write_text(source.format(name="one"))
    async with hub(tmp_path, {"a": fake()}, tools_dir="tools") as client:
        assert await client.text("local__one") == "one"
        pid = await client.text("a__pid")
        (tools / "two.py").write_text(source.format(name="two"))
        await heard(client, LOADED)
        assert await client.text("local__two") == "two"
        assert await client.text("local__one") == "one"
        assert await client.text("a__pid") == pid


async def test_a_syntax_error_in_a_file_of_local_tools_keeps_its_previous_tools(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    source = "import mcp_hub\n\n@mcp_hub.tool\ndef {name}() -> str:\n    return '{said}'\n"
    (tools / "one.py").write_text(source.format(name="one", said="first"))
    async with hub(tmp_path, {"a": fake()}, tools_dir="tools") as client:
        assert await client.text("local__one") == "first"
        (tools / "one.py").write_text("def one(:\n")
        await client.until(lambda: b"error: local keeps the tools that it had: " in client.stderr)
        assert f"{tools / 'one.py'}:1: invalid syntax" in client.stderr.decode()
        assert await client.text("local__one") == "first"
        (tools / "one.py").write_text(source.format(name="one", said="second"))
        await heard(client, LOADED, 2)
        assert await client.text("local__one") == "second"


async def test_subscriptions_move_to_the_new_process_unless_now_refused(tmp_path: Path) -> None:
    def servers(**options: Any) -> dict[str, Any]:
        return {"a": {**asking(), **options}}

    def updates() -> list[str]:
        return [n["params"]["uri"] for n in client.notifications if n["method"] == "notifications/resources/updated"]

    async with hub(tmp_path, servers(), watch=False) as client:
        await client.request("resources/subscribe", {"uri": "x:one"})
        await client.text("a__touch", {"uri": "x:one"})
        assert updates() == ["x:one"]
        await changed(client, tmp_path, servers(env={"NEW": "1"}), watch=False)
        await client.text("a__touch", {"uri": "x:one"})
        assert updates() == ["x:one", "x:one"]
        await changed(client, tmp_path, servers(env={"NEW": "1"}, disable_resources=["x:one"]), watch=False)
        await client.text("a__touch", {"uri": "x:one"})
        assert updates() == ["x:one", "x:one"]


async def test_subscriptions_to_a_removed_server_come_back_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = {"a": asking("--log", str(log)), "b": fake()}
    async with hub(tmp_path, servers, watch=False) as client:
        await client.request("resources/subscribe", {"uri": "x:one"})
        await changed(client, tmp_path, {"b": fake()}, watch=False)
        await changed(client, tmp_path, {"b": fake(env={"NEW": "1"})}, watch=False)
        await changed(client, tmp_path, servers, watch=False)
        async with asyncio.timeout(PATIENCE):
            while log.read_text().count("resources/subscribe x:one") < 2:
                await client.text("a__echo", {"text": "x"})
        await client.text("a__touch", {"uri": "x:one"})
        assert [n["params"]["uri"] for n in client.notifications if n["method"].endswith("updated")] == ["x:one"]


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(("before", "after"), [("shared", "client"), ("client", "shared"), ("client", "client")])
async def test_a_client_that_only_listens_stays_subscribed_whoever_shares_the_new_sessions(
    tmp_path: Path, era: str, before: str, after: str
) -> None:
    log, updated = tmp_path / "log", asyncio.Event()

    def servers(session: str, **options: Any) -> dict[str, Any]:
        return {"a": {**asking("--log", str(log)), "session": session, **options}}

    def subscribed() -> int:
        return log.read_text().count("resources/subscribe x:one")

    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            updated.set()

    async with (
        network_hub(tmp_path / "hub", servers(before), watch=False) as (process, base),
        sdk(f"{base}/mcp", era, message_handler=on_message) as client,
        contextlib.AsyncExitStack() as listening,
    ):
        if era == "handshake":
            await client.session.subscribe_resource("x:one")
        else:
            await listening.enter_async_context(client.listen(resource_subscriptions=["x:one"]))
        await text(client, "a__echo", {"text": "x"})
        count = subscribed()
        await changed(process, tmp_path / "hub", servers(after, env={"NEW": "1"}), watch=False)
        async with asyncio.timeout(PATIENCE):
            while subscribed() == count:
                await asyncio.sleep(0.01)
            await text(client, "a__touch", {"uri": "x:one"})
            await updated.wait()


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_network_clients_keep_their_sessions_over_a_reload(tmp_path: Path, era: str) -> None:
    servers = {"a": fake(), "b": fake(session="client")}
    async with (
        network_hub(tmp_path / "hub", servers, watch=False) as (process, base),
        sdk(f"{base}/mcp", era) as client,
    ):
        before = [await text(client, "a__pid"), await text(client, "b__pid")]
        await changed(process, tmp_path / "hub", {**servers, "c": fake()}, watch=False)
        assert [await text(client, "a__pid"), await text(client, "b__pid")] == before
        assert await text(client, "c__echo", {"text": "there"}) == "there"


async def test_settings_that_need_a_restart_are_reported(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"a": fake()}, watch=False) as (process, _):
        await changed(process, tmp_path / "hub", {"a": fake()}, watch=False, listen={"port": 9999})
        assert b"a change of listen.port takes effect when the hub is started again" in process.stderr
        assert b"every server keeps its process" in process.stderr


async def test_a_hub_ends_when_its_terminal_closes(tmp_path: Path) -> None:
    import pty

    config = write_config(tmp_path, {"a": fake()})
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(
            sys.executable, [sys.executable, "-m", "mcp_hub", "serve", "--http", "--port", "0", "--config", str(config)]
        )
    output = b""
    async with asyncio.timeout(PATIENCE):
        while b"Serving" not in output:
            output += await asyncio.to_thread(os.read, terminal, 65536)
    os.close(terminal)
    async with asyncio.timeout(PATIENCE):
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def test_forty_reloads_under_pending_calls_stop_only_the_oldest_servers(tmp_path: Path) -> None:
    """More former configurations wait for calls than are kept: the oldest are stopped, and the hub goes on."""
    async with hub(tmp_path, {"up": fake()}, watch=False) as client:
        await client.tool_names()
        calls = []
        for number in range(MAX_RETIRING + 8):
            calls.append(asyncio.create_task(client.call("up__sleep", {"seconds": 600})))
            await asyncio.sleep(0)
            await client.request("ping")  # the hub has read the call before it
            await changed(client, tmp_path, {"up": fake(env={"NUMBER": str(number)})}, watch=False)
        async with asyncio.timeout(PATIENCE):
            failed = await calls[0]
        assert failed["isError"] is True
        assert not calls[-1].done()
        assert await client.text("up__echo", {"text": "still here"}) == "still here"
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
