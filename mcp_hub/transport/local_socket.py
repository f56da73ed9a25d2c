"""The socket on which a running hub answers its own user's commands: a Unix socket, on Windows a port and a key.

Python has no Unix sockets on Windows. There the file at the path of the socket holds a port of 127.0.0.1 and a random
key: `{"port": 50000, "key": "HEX"}`. Each side proves that it has read the file by an HMAC of the other side's nonce,
so the key itself is never sent. So no other user's program can connect to the hub, and no program that gets the port
later can pose as the hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from mcp_hub.security.private_files import PrivateDirectory

UNIX: Final = sys.platform != "win32"
"""Whether this system has Unix sockets."""
PROOF_WAIT: Final = 5.0
"""Seconds a client has to prove that it knows the key."""
_HOST: Final = "127.0.0.1"
_NONCE: Final = 32
"""Bytes of a nonce, and of an HMAC."""
_MAX_FILE: Final = 1024

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection."""


async def listen(path: Path, handler: ConnectionHandler, *, backlog: int, unix: bool = UNIX) -> asyncio.Server:
    """Listens at `path`, which only this user can open. Raises OSError."""
    if unix and sys.platform != "win32":
        # Other hubs remove a socket that nobody listens on as a dead hub's, so it gets its final name only afterwards.
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(handler, temporary, backlog=backlog)
        try:
            temporary.chmod(0o600)
            temporary.rename(path)
        except OSError:
            server.close()
            raise
        return server
    key = secrets.token_bytes(_NONCE)
    server = await asyncio.start_server(_Keyed(key, handler).handle, _HOST, 0, backlog=backlog)
    endpoint = {"port": server.sockets[0].getsockname()[1], "key": key.hex()}
    try:
        PrivateDirectory(path.parent).write(path.name, json.dumps(endpoint).encode())
    except OSError:
        server.close()
        raise
    return server


class _Keyed:
    """Serves only clients that prove that they know the key."""

    def __init__(self, key: bytes, handler: ConnectionHandler) -> None:
        self._key = key
        self._handler = handler

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PROOF_WAIT):
                client_nonce, hub_nonce = await reader.readexactly(_NONCE), secrets.token_bytes(_NONCE)
                writer.write(hub_nonce + _proof(self._key, b"hub", client_nonce))
                proof = await reader.readexactly(_NONCE)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            writer.close()
            return
        if hmac.compare_digest(proof, _proof(self._key, b"command", hub_nonce)):
            await self._handler(reader, writer)
        else:
            writer.close()


def connect(path: Path, timeout: float) -> socket.socket:
    """Returns a blocking socket to the hub that listens at `path`; waits at most `timeout` seconds for each step.

    Raises ConnectionRefusedError if the hub has ended, and another OSError if it cannot be reached.
    """
    if sys.platform != "win32" and not path.is_file():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(str(path))
        except BaseException:
            sock.close()
            raise
        return sock
    port, key = _read_endpoint(path)
    sock = socket.create_connection((_HOST, port), timeout)
    try:
        client_nonce = secrets.token_bytes(_NONCE)
        sock.sendall(client_nonce)
        answer = bytearray()
        while len(answer) < 2 * _NONCE and (chunk := sock.recv(2 * _NONCE - len(answer))):
            answer += chunk
        if not hmac.compare_digest(answer[_NONCE:], _proof(key, b"hub", client_nonce)):
            raise ConnectionRefusedError("another program has the port of the hub now")
        sock.sendall(_proof(key, b"command", bytes(answer[:_NONCE])))
    except BaseException:
        sock.close()
        raise
    return sock


def _read_endpoint(path: Path) -> tuple[int, bytes]:
    with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
        record = json.loads(PrivateDirectory(path.parent).read(path.name, _MAX_FILE))
        port, key = record["port"], bytes.fromhex(record["key"])
        if type(port) is int and 0 < port < 65536:
            return port, key
    raise ConnectionRefusedError(f"{path} has no valid port and key")


def _proof(key: bytes, role: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, role + nonce, "sha256")
