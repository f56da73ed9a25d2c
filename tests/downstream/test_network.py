from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import pytest

from mcp_hub import errors
from mcp_hub.config.models import Listen
from mcp_hub.errors import HubError
from mcp_hub.transport.http1 import listening_sockets
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import call, connected, fetch, initialized, modern, request
from tests.downstream.scripted import serving
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio


async def test_port_zero_reports_the_port_that_was_chosen() -> None:
    async with serving() as served:
        assert served.port != 0
        assert served.url == f"http://127.0.0.1:{served.port}"


async def test_localhost_is_served_on_loopback_only_and_on_one_port() -> None:
    sockets = await listening_sockets.bind(Listen(host="localhost", port=0))
    try:
        names = [sock.getsockname() for sock in sockets]
        assert {name[0] for name in names} <= {"127.0.0.1", "::1"}
        assert len({name[1] for name in names}) == 1
    finally:
        for sock in sockets:
            sock.close()


async def test_listening_on_a_name_that_is_not_loopback_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", elsewhere, raising=False)
    with pytest.raises(HubError, match=r"listen\.token"):
        await listening_sockets.bind(Listen(host="localhost", port=0))


async def test_a_port_in_use_is_explained() -> None:
    async with serving() as served:
        with pytest.raises(HubError, match=r"listen\.port"):
            async with serving(Listen(port=served.port)):
                pass
        assert (await fetch(served, "GET", "/healthz")).status == 200


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        (Listen(host="0.0.0.0", port=0), r"listen\.token"),
        (Listen(port=0, token="short"), r"listen\.token"),
        (Listen(host="no-such-name.invalid", port=0, token="t" * 32), r"listen\.host"),
        (Listen(host="192.0.2.1", port=0, token="t" * 32), "cannot listen"),
    ],
)
async def test_a_listener_that_cannot_start_reports_the_reason(listen: Listen, words: str) -> None:
    with pytest.raises(HubError, match=words):
        async with serving(listen):
            pass


async def test_serving_does_not_change_signal_handlers() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_stopping_lets_running_calls_finish_and_accepts_no_new_ones() -> None:
    async with serving() as served, connected(served) as calling, connected(served) as keeping:
        session = await initialized(served)
        keeping.send(request(served, "GET", "/healthz"))
        assert (await keeping.response()).status == 200
        calling.send(request(served, "POST", "/mcp", session, call("wait", {"text": "late"})))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        served.stop.set()
        await asyncio.wait_for(served.dispatcher.closing.wait(), HANG_BOUND)
        keeping.send(request(served, "POST", "/mcp", session, call("echo")))
        assert (await keeping.response()).status == 503
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", served.port)
        served.dispatcher.release.set()
        assert (await calling.response()).json["result"]["content"][0]["text"] == "late"
        await asyncio.wait_for(asyncio.shield(served.task), HANG_BOUND)


async def test_calls_still_running_after_the_grace_are_cancelled_and_answered() -> None:
    async with serving(grace=0.05) as served, connected(served) as calling, connected(served) as listening:
        session = await initialized(served)
        calling.send(request(served, "POST", "/mcp", session, call("hang")))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        listening.send(request(served, "GET", "/mcp", session))
        await listening.head()
        served.stop.set()
        answer = await calling.response()
        assert answer.json["result"]["_meta"]["mcp-hub/error"]["code"] == errors.CallCancelled.code
        assert await listening.event() == ("end", None)
        await asyncio.wait_for(asyncio.shield(served.task), HANG_BOUND)
        assert served.dispatcher.cancelled.is_set()
        assert served.dispatcher.left == served.dispatcher.joined


async def test_idle_and_non_reading_clients_do_not_delay_the_shutdown() -> None:
    async with serving(grace=0.05) as served, connected(served) as idle, connected(served) as silent:
        session = await initialized(served)
        idle.send(request(served, "GET", "/healthz"))
        await idle.response()
        flood = {"steps": 250, "size": 30_000}
        async with connected(served) as deaf:
            deaf.send(request(served, "POST", "/mcp", *modern("tools/call", {"name": "progress", "arguments": flood})))
            await deaf.head()
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            served.stop.set()
            await asyncio.wait_for(asyncio.shield(served.task), HANG_BOUND)
        assert await idle.ended()
        assert await silent.ended()
        assert session


async def test_a_cancelled_server_releases_its_port() -> None:
    async with serving() as served:
        port = served.port
        served.task.cancel()
        await asyncio.wait({served.task}, timeout=HANG_BOUND)
        assert served.task.cancelled()
        sockets = await listening_sockets.bind(Listen(port=port))
        sockets[0].close()


async def test_a_connection_above_the_limit_is_refused_at_once_and_its_slot_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_sockets, "MAX_CONNECTIONS", 2)
    async with serving() as served, connected(served) as first:
        first.send(request(served, "GET", "/healthz"))
        assert (await first.response()).status == 200
        async with connected(served) as second:
            second.send(request(served, "GET", "/healthz"))
            assert (await second.response()).status == 200
            async with connected(served) as third:
                refused = await third.response()
                assert (refused.status, refused.headers["retry-after"]) == (503, "1")
                assert await third.ended()
            first.send(request(served, "GET", "/healthz"))
            assert (await first.response()).status == 200
        async with asyncio.timeout(HANG_BOUND):
            while (await fetch(served, "GET", "/healthz")).status != 200:
                pass


def test_the_connection_limit_leaves_descriptors_for_other_uses() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        "from mcp_hub.transport.http1.listening_sockets import connections_possible;"
        "print(connections_possible(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )

    def possible(soft: int, hard: int) -> list[int]:
        argv = [sys.executable, "-c", program.format(soft=soft, hard=hard)]
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_BOUND, check=True)
        return [int(number) for number in completed.stdout.split()]

    assert possible(256, 300) == [150, 300]
    assert possible(1024, 1024) == [768, 1024]
    assert possible(1024, 15_000) == [10_000, 10_256]


def test_the_connection_limit_on_macos_accounts_for_its_lower_descriptor_limit() -> None:
    program = (
        "import resource; allowed = resource.setrlimit; allowed(resource.RLIMIT_NOFILE, (256, 15_000))\n"
        "def refusing(which, limits):\n"
        "    if limits[0] > 10_240: raise ValueError('current limit exceeds maximum limit')\n"
        "    allowed(which, limits)\n"
        "resource.setrlimit = refusing\n"
        "from mcp_hub.transport.http1.listening_sockets import connections_possible\n"
        "print(connections_possible(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    argv = [sys.executable, "-c", program]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_BOUND, check=True)
    assert completed.stdout.split() == ["9984", "10240"]
