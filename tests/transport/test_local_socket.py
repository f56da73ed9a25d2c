"""The socket of a running hub where there are no Unix sockets: who is let in, and who is believed."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_hub.transport import local_socket
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello " + await reader.readline())
    writer.close()


@asynccontextmanager
async def listening(path: Path, *, unix: bool) -> AsyncIterator[asyncio.Server]:
    path.parent.chmod(0o700)
    server = await local_socket.listen(path, greet, backlog=8, unix=unix)
    try:
        yield server
    finally:
        server.close()


def response_of(path: Path) -> bytes:
    with local_socket.connect(path, PATIENCE) as asking:
        asking.sendall(b"you\n")
        return asking.makefile("rb").read()


@pytest.mark.parametrize("unix", [True, False])
async def test_a_command_of_the_same_user_is_answered(unix: bool, tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    async with listening(path, unix=unix):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await asyncio.to_thread(response_of, path) == b"hello you\n"


@pytest.mark.parametrize("unix", [True, False])
async def test_a_hub_that_does_not_listen_yet_is_not_found(
    unix: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that found it too early would think that the hub has ended, and remove its socket."""
    path, existed = tmp_path / "1.sock", list[bool]()
    begin = socket.socket.listen

    def listen(self: socket.socket, backlog: int) -> None:
        existed.append(path.exists())
        begin(self, backlog)

    monkeypatch.setattr(socket.socket, "listen", listen)
    async with listening(path, unix=unix):
        assert existed == [False]
        assert await asyncio.to_thread(response_of, path) == b"hello you\n"
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


async def test_the_port_is_loopback_only_and_the_key_is_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    async with listening(path, unix=False) as server:
        assert [listening_socket.getsockname()[0] for listening_socket in server.sockets] == ["127.0.0.1"]
        endpoint = json.loads(path.read_bytes())
        with socket.create_connection(("127.0.0.1", endpoint["port"]), PATIENCE) as raw:
            await asyncio.to_thread(raw.sendall, bytes(32))
            first = await asyncio.to_thread(raw.recv, 64)
        assert bytes.fromhex(endpoint["key"]) not in first


@pytest.mark.parametrize("said", [b"", b"x" * 31, b"x" * 64, b'{"ask": "status"}\n' * 10])
async def test_a_client_without_the_key_gets_no_response(said: bytes, tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    async with listening(path, unix=False):
        port = json.loads(path.read_bytes())["port"]

        def exchange() -> bytes:
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as raw:
                raw.sendall(said)
                raw.shutdown(socket.SHUT_WR)
                received = b""
                try:
                    while piece := raw.recv(1024):
                        received += piece
                except ConnectionResetError:
                    pass
                return received

        assert b"hello" not in await asyncio.to_thread(exchange)


async def test_another_program_on_the_same_port_later_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    async with listening(path, unix=False):
        pass

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(32) * 2 + b"hello you\n")
        writer.close()

    port = json.loads(path.read_bytes())["port"]
    server = await asyncio.start_server(impostor, "127.0.0.1", port)
    async with server:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(response_of, path)


async def test_the_socket_file_of_an_ended_hub_finds_no_hub(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    async with listening(path, unix=False):
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(response_of, path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"port": "x", "key": ""}', b'{"port": 0, "key": "00"}'])
def test_a_damaged_socket_file_is_treated_as_that_of_an_ended_hub(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConnectionRefusedError):
        local_socket.connect(path, PATIENCE)
