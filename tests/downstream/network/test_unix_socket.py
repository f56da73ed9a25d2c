"""A hub on a Unix socket: its own user needs no token, others and whoever comes through a proxy do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Gate, check_listener
from mcp_hub.errors import HubError
from mcp_hub.transport.http1.listening_sockets import bind
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import BOTH, Lines, Response, connected, message, modern
from tests.downstream.scripted import Served, serving
from tests.fakes.client import HUB, PATIENCE, spawned, write_config
from tests.loops import anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio

TOKEN = "t" * 40
ANOTHER = os.getuid() + 1


def listening(path: Path, **settings: Any) -> Listen:
    return Listen.model_validate({"host": f"unix:{path}", **settings})


async def ask(path: Path, headers: Lines = (), method: str = "tools/list", host: str = "localhost") -> Response:
    """The answer to one modern request."""
    lines, body = modern(method)
    lines = [("Host", host), ("Content-Length", str(len(body))), *lines, *headers]
    async with connected(path) as connection:
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in lines)])
        connection.send(head.encode() + b"\r\n\r\n" + body)
        return await connection.response()


async def test_the_user_of_the_hub_needs_no_token_and_has_no_forwarding_header(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    async with serving(listening(path)) as served:
        assert served.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await ask(path)).status == 200
        for name in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "Via", "X-Real-IP"):
            assert (await ask(path, [(name, "for=203.0.113.9")])).status == 403, name
        assert (await ask(path, host="evil.example")).status == 421
        counts = served.app.refusals.facts()
        assert counts == {"forwarded": 5, "host": 1}
        assert {record["peer"] for record in served.dispatcher.refusals} == {f"unix:{os.getuid()}"}
    assert not path.exists()


async def test_a_session_of_the_handshake_era_is_served_on_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    async with serving(listening(path)), connected(path) as connection:
        info = {"name": "raw", "version": "0"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        body = message("initialize", params)
        lines = [("Host", "localhost"), ("Content-Length", str(len(body))), *BOTH]
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in lines)])
        connection.send(head.encode() + b"\r\n\r\n" + body)
        answer = await connection.response()
        assert answer.status == 200
        assert answer.headers["mcp-session-id"]


@contextlib.asynccontextmanager
async def of_user(path: Path, uid: int, **settings: Any) -> AsyncIterator[Served]:
    """A hub whose user is `uid`."""
    listen = listening(path, **settings)
    async with serving(listen, gate=Gate(listen, own_uid=uid)) as served:
        yield served


async def test_another_user_needs_a_token(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    async with of_user(path, ANOTHER) as served:
        answer = await ask(path)
        assert (answer.status, served.app.refusals.facts()) == (403, {"uid": 1})
        assert b"listen.token" in answer.body
        assert not served.dispatcher.methods
    async with of_user(path, ANOTHER, token=TOKEN):
        assert (await ask(path)).status == 401
        assert (await ask(path, [("Authorization", "Bearer " + "x" * 40)])).status == 401
        assert (await ask(path, [("Authorization", f"Bearer {TOKEN}")])).status == 200


@pytest.mark.parametrize("more", [{}, {"public_host": ["hub.example"]}, {"trusted_proxies": ["unix"]}])
async def test_a_request_forwarded_by_a_proxy_needs_a_token(tmp_path: Path, more: dict[str, Any]) -> None:
    path = tmp_path / "hub.sock"
    forwarded = [("X-Forwarded-For", "203.0.113.9")]
    async with serving(listening(path, token=TOKEN, **more)) as served:
        assert (await ask(path, forwarded)).status == 401
        assert (await ask(path, [*forwarded, ("Authorization", f"Bearer {TOKEN}")])).status == 200
        # Where the socket is said to be a proxy's, nobody is taken for the user of the hub.
        assert (await ask(path)).status == (401 if more else 200)
        assert (await ask(path, [("Authorization", "Bearer " + "x" * 40)])).status == 401
        peers = {record["peer"] for record in served.dispatcher.refusals}
        assert ("203.0.113.9" in peers) is ("trusted_proxies" in more)


async def test_a_stale_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(path))
        stale.listen()
    assert path.exists()
    async with serving(listening(path)):
        assert (await ask(path)).status == 200
        with pytest.raises(HubError, match="another program already listens there"):
            await bind(listening(path))
        assert (await ask(path)).status == 200
    assert not path.exists()


async def test_a_stopping_hub_does_not_remove_the_socket_of_another_hub(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    async with serving(listening(path)) as first:
        path.unlink()
        async with serving(listening(path)):
            first.stop.set()
            await asyncio.wait({first.task}, timeout=HANG_BOUND)
            assert (await ask(path)).status == 200


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("a file", "something else than a socket"),
        ("no directory", "create it, for this user alone"),
        ("an open directory", "others can write to"),
        ("a locked directory", "perhaps a hub that starts"),
    ],
)
async def test_an_unusable_socket_path_is_reported(tmp_path: Path, case: str, words: str) -> None:
    path = tmp_path / "in" / "hub.sock"
    if case != "no directory":
        path.parent.mkdir()
    with contextlib.ExitStack() as stack:
        if case == "a file":
            path.write_text("mine")
        elif case == "an open directory":
            path.parent.chmod(0o777)
        elif case == "a locked directory":
            import fcntl

            descriptor = os.open(path.parent, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(HubError, match=words):
            await bind(listening(path))
    if case == "a file":
        assert path.read_text() == "mine"


@pytest.mark.parametrize("host", ["unix:hub.sock", "unix:", "unix:/tmp/", "unix:/" + "d" * 120])
def test_a_socket_path_must_be_absolute_and_short(host: str) -> None:
    with pytest.raises(ValueError, match="host"):
        Listen.model_validate({"host": host})


@pytest.mark.parametrize("host", ["/run/hub.sock", "./hub.sock", "unix//run/hub.sock"])
def test_a_socket_path_without_the_unix_scheme_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"write unix:/PATH for a Unix socket"):
        Listen.model_validate({"host": host})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"public_host": ["hub.example"]}, "hub.example"),
        ({"trusted_proxies": ["unix"]}, "trusted_proxies"),
        ({"tls": {"cert": "c", "key": "k"}}, "listen.tls is for addresses"),
    ],
)
def test_a_socket_that_a_proxy_uses_needs_a_token(more: dict[str, Any], words: str) -> None:
    listen = Listen.model_validate({"host": "unix:/run/hub.sock", **more})
    assert words in str(check_listener(listen))
    assert check_listener(Listen.model_validate({"host": "unix:/run/hub.sock"})) is None


async def printed(command: str, config: Path, *options: str) -> str:
    argv = [*HUB, command, "--config", str(config), *options]
    completed = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return completed.stdout


@pytest.mark.parametrize("listen", ["unix:hub.sock", {"host": "unix:hub.sock"}, {"host": "unix:./x/../hub.sock"}])
async def test_a_hub_serves_on_the_socket_of_its_file(tmp_path: Path, listen: Any) -> None:
    config = write_config(tmp_path, {}, listen=listen)
    path = tmp_path / "hub.sock"
    async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as hub:
        await hub.until(lambda: b"Serving" in hub.stderr)
        assert f"unix:{path} with the path /mcp".encode() in hub.stderr
        answer = await ask(path)
        assert json.loads(answer.body)["result"]["tools"] == []
        async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as second:
            assert await second.exited() == 1
            await second.until(lambda: b"HUB-501" in second.stderr)
        assert f"serving unix:{path};" in await printed("status", config)
        assert "http://127.0.0.1:" in await printed("open", config, "--print")  # a listener for the page alone
        assert "a hub of yours listens on it" in await printed("doctor", config, "--json")
        hub.process.terminate()
        assert await hub.exited() == 0
    assert not path.exists()
