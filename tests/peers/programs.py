"""The programs of the real servers and clients: where they are installed, how one is run and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent.parent / ".peers"
NODE = PEERS / "bin" / "node"
NPM = PEERS / "node" / "node_modules"
SERVERS = PEERS / "servers" / "bin"
MCP1 = PEERS / "mcp1" / "bin" / "python"
START_BOUND = 60.0
"""A server accepts connections within this, on a slow machine too."""
END_BOUND = 5.0


class PeerMissing(Exception):
    """A real peer is not installed."""


class PeerFailed(Exception):
    """A real peer did not start, did not answer in time, or ended with an error."""


def installed(path: Path) -> str:
    """The path, if there is something there. Raises PeerMissing."""
    if not path.exists():
        raise PeerMissing(f"{path.name} is not installed ({path} is missing): run scripts/peers")
    return str(path)


def _environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "FASTMCP_CHECK_FOR_UPDATES": "off", **(extra or {})}


async def run(
    command: Sequence[str], deadline: float, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """What a command prints. Raises PeerFailed when it fails or takes longer; its process group is ended either way."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=_environment(env),
        start_new_session=True,
    )
    communication = asyncio.ensure_future(process.communicate())
    try:
        done, _ = await asyncio.wait({communication}, timeout=deadline)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        printed, errors = await communication
    details = f"{' '.join(command)}\n{errors.decode(errors='replace')[-8000:]}"
    if not done:
        raise PeerFailed(f"no answer within {deadline:.0f} s: {details}")
    if process.returncode != 0:
        raise PeerFailed(f"ended with {process.returncode}: {details}")
    return printed.decode()


@contextlib.asynccontextmanager
async def network_server(
    command: Sequence[str], port: int, env: Mapping[str, str] | None = None, *, log: Path, cwd: Path | None = None
) -> AsyncIterator[None]:
    """A server that accepts connections on a port; its process group is gone afterwards."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            cwd=cwd,
            env=_environment(env),
            start_new_session=True,
        )
    exit_wait = asyncio.ensure_future(process.wait())
    try:
        try:
            async with asyncio.timeout(START_BOUND):
                while not await _accepts(port):
                    if exit_wait.done():
                        raise TimeoutError
                    await asyncio.wait({exit_wait}, timeout=0.05)
        except TimeoutError:
            state = (
                f"ended with {process.returncode}" if exit_wait.done() else f"does not listen after {START_BOUND:.0f} s"
            )
            raise PeerFailed(f"{' '.join(command)} {state}:\n{log.read_text(errors='replace')[-8000:]}") from None
        yield
    finally:
        _signal_group(process.pid, signal.SIGTERM)
        await asyncio.wait({exit_wait}, timeout=END_BOUND)
        _signal_group(process.pid, signal.SIGKILL)
        await exit_wait


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
