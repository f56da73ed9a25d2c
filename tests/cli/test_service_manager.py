"""Under a manager of services such as systemd: sockets are handed over, and it hears how the hub is."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from mcp_hub import codes
from mcp_hub.cli.service_manager import ServiceNotifier, handed_sockets
from mcp_hub.config.models import Listen
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.transport.http1.listening_sockets import check_handed
from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned, write_config

pytestmark = pytest.mark.anyio

TOKEN = "t" * 40
MAX_DATAGRAM = 65536


class Manager:
    """Listens on NOTIFY_SOCKET, as systemd does, and hands sockets over."""

    def __init__(self, directory: Path, *, abstract: bool = False) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = str(directory / "notify")
        self._socket.bind(f"\0{path}" if abstract else path)
        self._socket.setblocking(False)
        self.address = f"@{path}" if abstract else path
        self.received: list[str] = []

    def close(self) -> None:
        self._socket.close()

    async def until(self, line: str) -> list[str]:
        """The lines of the datagram that has this one; datagrams before it are passed over."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE):
            while True:
                lines = (await loop.sock_recv(self._socket, MAX_DATAGRAM)).decode().splitlines()
                self.received += lines
                if line in lines:
                    return lines


@pytest.fixture(params=[False, True], ids=["a path", "an abstract name"])
def manager(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    service_manager = Manager(tmp_path, abstract=request.param)
    yield service_manager
    service_manager.close()


LAUNCHER = """
import os, sys
for number, descriptor in enumerate(map(int, sys.argv[1].split(","))):
    os.dup2(descriptor, 3 + number)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execvp(sys.argv[2], sys.argv[2:])
"""


@contextlib.asynccontextmanager
async def handed(config: Path, *sockets: socket.socket, names: str = "") -> AsyncIterator[StdioClient]:
    """A hub that gets these sockets as descriptors from 3 on, as systemd hands them over."""
    moved = [fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for sock in sockets]
    hub_command = [*HUB, "serve", "--http", "--config", str(config)]
    command = [sys.executable, "-c", LAUNCHER, ",".join(map(str, moved)), *hub_command]
    env = {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
    try:
        async with spawned(command, env=env, pass_fds=moved) as hub:
            yield hub
    finally:
        for descriptor in moved:
            os.close(descriptor)


def tcp(host: str = "127.0.0.1") -> socket.socket:
    return socket.create_server((host, 0))


def unix(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(path))
    path.chmod(0o666)
    bound.listen()
    return bound


async def status_at(connecting: Callable[[], socket.socket], head: str = "") -> int:
    """The status that /mcp has for one ping."""

    def ask() -> bytes:
        with connecting() as connection:
            connection.settimeout(PATIENCE)
            lines = "Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
            body = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
            head_ = f"POST /metrics HTTP/1.1\r\n{lines}{head}Content-Length: {len(body)}\r\n\r\n{body}"
            connection.sendall(head_.encode())
            return connection.recv(4096)

    return int((await asyncio.to_thread(ask)).split()[1])


def connection_to(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(path))
    return connection


async def test_sockets_of_socket_activation_are_served_and_not_modified(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, listen={"host": "192.0.2.1", "port": 1, "token": TOKEN})
    path = tmp_path / "hub.sock"
    with tcp() as tcp_socket, unix(path) as unix_socket:
        port = tcp_socket.getsockname()[1]
        async with handed(config, tcp_socket, unix_socket, names="web:local") as hub:
            await hub.until(lambda: b"Serving" in hub.stderr)
            assert f"http://127.0.0.1:{port}/mcp".encode() in hub.stderr
            assert f"unix:{path} with the path /mcp".encode() in hub.stderr
            # Over the Unix socket the user of the hub needs no token.
            assert await status_at(lambda: connection_to(path)) == 405
            assert await status_at(lambda: socket.create_connection(("127.0.0.1", port))) == 401
            hub.process.terminate()
            assert await hub.exited() == 0
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o666
        # A client that comes while the hub is started again waits in the queue of the socket.
        waiting = asyncio.create_task(status_at(lambda: connection_to(path)))
        async with handed(config, tcp_socket, unix_socket) as hub:
            assert await waiting == 405
            hub.process.terminate()


async def test_a_public_activated_socket_needs_a_token_also_after_a_reload(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, listen={})
    with tcp("0.0.0.0") as listener:
        async with handed(config, listener) as hub:
            assert await hub.exited() == 2
            await hub.until(lambda: b"listening on 0.0.0.0 lets others in" in hub.stderr)
        config = write_config(tmp_path, {}, listen={"token": TOKEN})
        async with handed(config, listener) as hub:
            await hub.until(lambda: b"Serving" in hub.stderr)
            write_config(tmp_path, {}, listen={})
            hub.process.send_signal(1)
            await hub.until(lambda: b"was not loaded again" in hub.stderr)
            port = listener.getsockname()[1]
            assert await status_at(lambda: socket.create_connection(("127.0.0.1", port))) == 401
            hub.process.terminate()


async def test_activated_sockets_for_another_process_id_are_ignored(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, listen={"port": 0})
    command = [*HUB, "serve", "--http", "--config", str(config)]
    async with spawned(command, env={"LISTEN_FDS": "1", "LISTEN_PID": "1"}) as hub:
        await hub.until(lambda: b"Serving" in hub.stderr)
        assert b"LISTEN_PID" in hub.stderr
        hub.process.terminate()


@pytest.mark.parametrize("count", ["x", "-1", "65", "1000000"])
def test_an_invalid_count_of_activated_sockets_is_refused(count: str) -> None:
    with pytest.raises(ConfigError, match="LISTEN_FDS"):
        handed_sockets({"LISTEN_FDS": count, "LISTEN_PID": str(os.getpid())})


def test_service_manager_variables_are_removed_from_the_environment() -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "a", "NOTIFY_SOCKET": "/x"}
    environ |= {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "HOME": "/root"}
    assert handed_sockets(environ) == []
    ServiceNotifier(environ)
    assert environ == {"HOME": "/root"}


@pytest.mark.parametrize("kind", ["connected", "datagrams"])
def test_an_activated_socket_that_cannot_be_served_is_reported_by_name(kind: str) -> None:
    with contextlib.ExitStack() as stack:
        if kind == "connected":
            listening = stack.enter_context(tcp())
            activated = stack.enter_context(socket.create_connection(listening.getsockname()))
        else:
            activated = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with pytest.raises(HubError, match="'web'") as refused:
            check_handed(Listen(), [("web", activated)])
        assert refused.value.hub_code == codes.SOCKET_HANDED


async def test_the_service_manager_is_notified_of_start_reload_and_stop(tmp_path: Path, manager: Manager) -> None:
    config = write_config(tmp_path, {}, listen={"port": 0})
    command = [*HUB, "serve", "--http", "--config", str(config)]
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
    async with spawned(command, env=environ) as hub:
        ready = await manager.until("READY=1")
        assert re.fullmatch(r"STATUS=listening on http://127\.0\.0\.1:\d+", ready[1])
        await manager.until("WATCHDOG=1")
        hub.process.send_signal(1)
        reloading = await manager.until("RELOADING=1")
        assert re.fullmatch(r"MONOTONIC_USEC=\d+", reloading[1])
        await manager.until("READY=1")
        await manager.until("WATCHDOG=1")
        hub.process.terminate()
        await manager.until("STOPPING=1")
        assert await hub.exited() == 0


async def test_a_hub_without_a_watchdog_sends_no_watchdog_notifications(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    config = write_config(tmp_path, {}, listen={"port": 0})
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}
    async with spawned([*HUB, "serve", "--http", "--config", str(config)], env=environ) as hub:
        await manager.until("READY=1")
        hub.process.terminate()
        await manager.until("STOPPING=1")
    assert "WATCHDOG=1" not in manager.received
    manager.close()


async def test_an_unreachable_service_manager_does_not_stop_the_hub_from_serving(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, listen={"port": 0})
    environ = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "200000"}
    async with spawned([*HUB, "serve", "--http", "--config", str(config)], env=environ) as hub:
        await hub.until(lambda: b"Serving" in hub.stderr)
        await hub.until(lambda: b"cannot be told that READY=1" in hub.stderr)
        hub.process.terminate()
        assert await hub.exited() == 0
        assert hub.stderr.count(b"cannot be told") == 1
