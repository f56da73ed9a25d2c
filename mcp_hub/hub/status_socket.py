"""The local sockets on which running hubs say how they are: one a hub, in a directory of the user's alone.

They only tell: whoever connects gets one JSON object and the end, and nothing that is sent is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mcp_hub.security.private_files import PendingWrites

log = logging.getLogger("mcp_hub")

VARIABLE: Final = "MCP_HUB_RUNTIME_DIR"
AT_ONCE: Final = 8
WRITE_WAIT: Final = 5.0
"""Seconds somebody has to read what is said."""
READ_WAIT: Final = 5.0
MAX_SIZE: Final = 16 * 1024 * 1024
MAX_PATH: Final = 100
"""Bytes of the path of a socket; the systems allow 104 to 108."""

Json = dict[str, Any]


def directory() -> Path:
    """Where the sockets of this user are: `$MCP_HUB_RUNTIME_DIR`, else what the system has for it."""
    import platformdirs

    if named := os.environ.get(VARIABLE):
        path = Path(named)
    elif sys.platform == "linux" and not os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(platformdirs.user_cache_dir("mcp-hub", appauthor=False)) / "run"
    else:
        path = Path(platformdirs.user_runtime_dir("mcp-hub", appauthor=False))
    if len(os.fsencode(path)) > MAX_PATH - 20:
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
        path = Path(tempfile.gettempdir()) / f"mcp-hub-{digest}"
    return path


@contextlib.asynccontextmanager
async def telling(facts: Callable[[], Json]) -> AsyncIterator[None]:
    """While the block runs, whoever asks is told. A machine on which that cannot be now is a warning in the log, and
    is tried again."""
    opened: list[tuple[Path, asyncio.Server]] = []

    async def open_socket() -> None:
        path = _ours(directory()) / f"{os.getpid()}.sock"
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(_Teller(facts).told, path, backlog=AT_ONCE)
        opened.append((path, server))
        path.chmod(0o600)

    attempts = PendingWrites()
    if hasattr(asyncio, "start_unix_server"):
        try:
            await open_socket()
        except (OSError, ValueError):
            attempts.put("opening the socket on which `mcp-hub status` finds this hub", open_socket)
    try:
        yield
    finally:
        attempts.cancel()
        for path, server in opened:
            server.close()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _ours(directory: Path) -> Path:
    """The directory, made if it is not there. Raises ValueError where somebody else could put something into it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ValueError(f"{directory} is not a directory of yours alone; delete it, or chmod 700 it")
    return directory


class _Teller:
    def __init__(self, facts: Callable[[], Json]) -> None:
        self._facts = facts
        self._open = 0

    async def told(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= AT_ONCE:
                writer.write(json.dumps(self._facts()).encode())
                async with asyncio.timeout(WRITE_WAIT):
                    await writer.drain()
                    writer.write_eof()
                    await reader.read(1)
        except (OSError, TimeoutError):
            pass
        except Exception:
            log.exception("the hub could not say how it is")
        finally:
            self._open -= 1
            writer.close()


def running() -> Iterator[Json]:
    """The facts of every hub of this user that runs, the one that started first first. What is left of others goes."""
    found = directory()
    try:
        paths = sorted(_ours(found).glob("*.sock"), key=lambda path: path.lstat().st_mtime_ns)
    except (OSError, ValueError):
        return
    for path in paths:
        facts = _asked(path)
        if facts is not None:
            yield facts


def _asked(path: Path) -> Json | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(READ_WAIT)
        try:
            asking.connect(str(path))
            data = bytearray()
            while len(data) < MAX_SIZE and (chunk := asking.recv(65536)):
                data += chunk
            facts = json.loads(data)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # it was killed
            return None
        except (OSError, ValueError):
            return {"pid": int(path.stem) if path.stem.isdigit() else None, "problem": "it does not answer"}
    return facts if isinstance(facts, dict) else None
