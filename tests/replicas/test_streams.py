"""Event streams that continue at another replica than the one where they began."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fakes
from tests.fakes.client import PATIENCE, fake
from tests.replicas.raw_client import Json, RawClient, Unanswered, code_of, raw, text_of
from tests.replicas.served import cluster

pytestmark = pytest.mark.anyio
ASKING = Path(fakes.__file__).with_name("asking.py")


def counting(steps: int, pause: float) -> Json:
    """Returns a call that reports progress `steps` times."""
    params = {"name": "up__count", "arguments": {"steps": steps, "pause": pause}, "_meta": {"progressToken": "t"}}
    return {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}


async def first_events(client: RawClient, message: Json, url: str, events: int) -> tuple[str, list[Json]]:
    """Reads the first events of a response, and drops the connection; returns the last event's id, and the messages."""
    messages: list[Json] = []
    async with contextlib.aclosing(client.events(message, url)) as answers:
        async for id, answer in answers:
            messages.append(answer)
            if len(messages) == events:
                assert id is not None
                return id, messages
    raise AssertionError(messages)


async def remaining_events(client: RawClient, last_event_id: str, url: str) -> list[Json]:
    """Returns the messages after an event, to the end of its stream."""
    async with asyncio.timeout(PATIENCE):
        return [message async for _, message in client.stream(last_event_id, url) if message is not None]


async def test_a_stream_is_resumed_at_another_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        last_event_id, messages = await first_events(client, counting(20, 0.02), served.urls[0], 3)
        messages += await remaining_events(client, last_event_id, served.urls[1])
    assert [message["params"]["progress"] for message in messages[:-1]] == list(range(1, 21))
    assert text_of(messages[-1]) == "counted"


async def test_the_response_of_a_dead_replica_is_read_from_the_store(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        last_event_id, first_messages = await first_events(client, counting(5, 0.01), served.urls[0], 2)
        remainder = await remaining_events(client, last_event_id, served.urls[1])  # the call has ended
        served.kill(0)
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(Unanswered):
                    read_again = await remaining_events(client, last_event_id, served.urls[1])
                    break
    assert read_again == remainder
    assert [message["params"]["progress"] for message in (*first_messages, *read_again[:-1])] == [1, 2, 3, 4, 5]
    assert text_of(read_again[-1]) == "counted"


async def test_a_call_of_a_dead_replica_fails_with_an_error_and_is_never_retried(tmp_path: Path) -> None:
    record = tmp_path / "record"
    servers = {"up": fake("--record", str(record))}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        last_event_id, _ = await first_events(client, counting(1000, 0.05), served.urls[0], 2)
        served.kill(0)
        messages = await remaining_events(client, last_event_id, served.urls[1])
        read_again = await remaining_events(client, last_event_id, served.urls[1])
    assert messages[-1]["id"] == 77
    assert code_of(messages[-1]) == "session_restarted"
    assert "may have been carried out" in str(messages[-1])
    assert read_again == messages
    assert record.read_text().count('"count"') == 1


async def test_a_standing_stream_and_its_subscriptions_survive_their_replica(tmp_path: Path) -> None:
    servers: dict[str, Any] = {"ask": {"command": sys.executable, "args": [str(ASKING)]}}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.urls[1]) as client:
        await client.begin(served.urls[0])
        assert "result" in await client.request("resources/subscribe", {"uri": "x:one"})
        last_event_id = await touched(client, None, served.urls[0])
        served.kill(0)
        assert await touched(client, last_event_id, served.urls[1])


async def test_an_event_that_no_replica_has_written_takes_no_stream_over(tmp_path: Path) -> None:
    servers: dict[str, Any] = {"ask": {"command": sys.executable, "args": [str(ASKING)]}}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        assert "result" in await client.request("resources/subscribe", {"uri": "x:one"})
        async with contextlib.aclosing(client.stream()) as stream, asyncio.timeout(PATIENCE):
            await anext(stream)
            with pytest.raises(Unanswered) as refused:
                await anext(client.stream("0123456789ab.0-7"))
            assert refused.value.status == 400
            assert text_of(await client.call("ask__touch", {"uri": "x:one"})) == "touched"
            async for _, message in stream:
                if message is not None and message["method"] == "notifications/resources/updated":
                    return
    raise AssertionError("the stream has ended")


async def touched(client: RawClient, last_event_id: str | None, owner: str) -> str | None:
    """Opens the standing stream, and touches a resource until an update arrives; returns the id of its event."""

    async def touch() -> None:
        while True:
            with contextlib.suppress(Unanswered):
                await client.call("ask__touch", {"uri": "x:one"}, owner)
            await asyncio.sleep(0.1)

    touching = asyncio.ensure_future(touch())
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(Unanswered):
                    async for id, message in client.stream(last_event_id):
                        if message is not None and message["method"] == "notifications/resources/updated":
                            assert message["params"]["uri"] == "x:one"
                            if "future" in message["params"]:  # the update comes from the server, not from the hub
                                return id
    finally:
        touching.cancel()
