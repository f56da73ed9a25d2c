"""What `serve` writes of the calls it carries out, over a real hub."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, PATIENCE, RpcError, StdioClient, fake, hub, spawned, write_config

pytestmark = pytest.mark.anyio


def records_in(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines() if line.startswith(b"{")]


async def recorded(client: StdioClient, count: int) -> list[dict[str, Any]]:
    """The records on stderr, once there are so many."""
    await client.until(lambda: len(records_in(client.stderr[: client.stderr.rfind(b"\n") + 1])) >= count)
    return records_in(client.stderr)


@pytest.mark.parametrize("modern", [False, True])
async def test_every_call_is_recorded_whatever_its_outcome(tmp_path: Path, modern: bool) -> None:
    servers = {
        "up": fake("--era", "dual", timeout="1s", disable_tools=["pid"]),
        "dead": {"command": "no-such-command", "namespace": "dead"},
    }
    async with hub(tmp_path, servers, modern=modern) as client:
        await client.text("up__echo", {"text": "hello", "token": "abc"})
        for name in ("up__pid", "up__nothing"):
            with pytest.raises(RpcError):
                await client.call(name)
        await client.call("up__sleep", {"seconds": 60})
        with pytest.raises(RpcError):
            await client.call("up__fail")
        await client.call("up__crash")
        await client.request("resources/read", {"uri": "fake://fake/one"})
        await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "me"}})
        records = await recorded(client, 8)
    ok, hidden, unknown, timed_out, failed, crashed, resource, prompt = records
    assert {record["era"] for record in records} == {"modern" if modern else "handshake"}
    assert {record["client"] for record in records} == {"raw"}
    assert len({record["id"] for record in records}) == 8
    assert len({record["caller"] for record in records}) == 1
    assert (ok["verdict"], ok["upstream"], ok["tool"], ok["name"], ok["attempts"]) == (
        "ok",
        "up",
        "echo",
        "up__echo",
        1,
    )
    assert ok["arguments"] == {"text": "hello", "token": "***"}
    assert (hidden["verdict"], hidden["code"], hidden["policy"]) == ("refused", -32602, "access")
    assert "filter of tools" in hidden["reason"]
    assert (unknown["verdict"], unknown["reason"], unknown["policy"]) == ("refused", "unknown", None)
    assert (timed_out["verdict"], timed_out["code"], timed_out["policy"]) == ("error", "timeout", "deadline")
    assert (failed["verdict"], failed["code"]) == ("error", -32050)
    assert (crashed["verdict"], crashed["code"]) == ("error", "server_unavailable")
    assert (resource["method"], resource["verdict"], resource["tool"]) == ("resources/read", "ok", "fake://fake/one")
    assert (prompt["method"], prompt["verdict"], prompt["arguments"]) == ("prompts/get", "ok", {"who": "me"})


async def test_a_cancelled_call_is_recorded_as_such(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        await client.text("up__echo", {"text": "x"})
        client.start("tools/call", {"name": "up__sleep", "arguments": {"seconds": 60}}, request_id="it")
        await client.text("up__echo", {"text": "it is under way"})
        client.notify("notifications/cancelled", {"requestId": "it"})
        records = await recorded(client, 3)
    assert (records[2]["verdict"], records[2]["code"]) == ("cancelled", "cancelled")


async def test_records_go_to_stderr_and_to_the_file_that_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with hub(tmp_path, {"up": fake()}, call_log={"file": str(path)}) as client:
        await client.text("up__echo", {"text": "x"})
        (record,) = await recorded(client, 1)
    assert records_in(path.read_bytes()) == [record]


async def test_records_may_go_to_the_file_alone_and_without_arguments(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "calls.jsonl"
    rules = {"file": str(path), "arguments": False, "stderr": False}
    async with hub(tmp_path, {"up": fake()}, call_log=rules) as client:
        await client.text("up__echo", {"text": "x"})
    assert records_in(client.stderr) == []
    (record,) = records_in(path.read_bytes())
    assert record["verdict"] == "ok"
    assert "arguments" not in record
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_call_log_that_is_off_writes_nothing(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}, call_log="off") as client:
        await client.text("up__echo", {"text": "x"})
    assert records_in(client.stderr) == []


async def test_tool_names_of_an_upstream_are_escaped_in_records(tmp_path: Path) -> None:
    name = "a\nb\x1b[2J\u202e\U000e0041"
    async with hub(tmp_path, {"up": fake()}, screen="off") as client:
        await client.tool_names()
        await client.call("up__grow", {"name": name})
        await client.notified("notifications/tools/list_changed")
        exposed = next(
            listed for listed in await client.tool_names() if listed.startswith("up__a") and listed != "up__add"
        )
        await client.call(exposed, {"text": name})
        records = await recorded(client, 2)
    assert records[1]["tool"] == name
    assert records[1]["arguments"] == {"text": name}
    assert not {char for char in client.stderr.decode() if not char.isprintable()} - {"\n"}
    assert all(line.startswith((b"{", b"mcp-hub: ")) for line in client.stderr.splitlines())


class Deaf(StdioClient):
    """A client that never reads its child's stderr."""

    async def _read_stderr(self) -> None:
        return


@contextlib.asynccontextmanager
async def deaf_client(argv: list[str]) -> AsyncIterator[Deaf]:
    read_end, write_end = os.pipe()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=write_end, limit=2**27, start_new_session=True
    )
    os.close(write_end)
    client = Deaf(process)
    try:
        yield client
    finally:
        await client.close()
        os.close(read_end)


async def test_an_unread_stderr_does_not_delay_answers(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake("--noise", "3")})
    async with deaf_client([*HUB, "serve", "-vv", "--config", str(config)]) as client:
        await client.initialize()
        for batch in range(20):
            texts = await asyncio.gather(*(client.text("up__echo", {"text": f"{batch} {n}"}) for n in range(500)))
            assert texts == [f"{batch} {n}" for n in range(500)]
    assert client.process.returncode == 0


async def test_the_file_gets_every_record_while_stderr_is_unread(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    config = write_config(tmp_path, {"up": fake()}, call_log={"file": str(path)})
    async with deaf_client([*HUB, "serve", "-vv", "--config", str(config)]) as client:
        await client.initialize()
        await asyncio.gather(*(client.text("up__stderr", {"text": "x" * 1000}) for _ in range(500)))
    assert len(records_in(path.read_bytes())) == 500


async def test_repeated_log_lines_are_counted(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake(), "other": fake()})
    async with spawned([*HUB, "serve", "-vv", "--config", str(config)]) as client:
        await client.initialize()
        await asyncio.gather(*(client.text("up__stderr", {"text": f"noise {n}"}) for n in range(900)))
        await client.text("other__stderr", {"text": "something else"})
        await recorded(client, 901)
    lines = [line.decode() for line in client.stderr.splitlines() if b": up: " in line]
    noise_lines = [line for line in lines if "noise" in line]
    counted = sum(int(line.split("up: ")[1].split()[0].replace(",", "")) for line in lines if "more lines like" in line)
    assert 10 <= len(noise_lines) < 900
    assert len(noise_lines) + counted == 900
    assert any(b"other: something else" in line for line in client.stderr.splitlines())


async def test_two_thousand_lines_of_noise_become_ten_log_lines(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake("--noise", "2000")}) as client:
        assert await client.text("up__echo", {"text": "x"}) == "x"
        await recorded(client, 1)
    assert client.stderr.count(b"not a message") == 10


async def test_a_hub_with_an_unread_stderr_ends_in_time(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    async with asyncio.timeout(PATIENCE), deaf_client([*HUB, "serve", "--config", str(config)]) as client:
        await client.initialize()
        await asyncio.gather(*(client.text("up__echo", {"text": "x" * 200}) for _ in range(500)))
    assert client.process.returncode == 0
