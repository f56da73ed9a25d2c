"""`mcp-hub serve --workers N`: several replicas of the hub on one port of this machine, and their store.

The parent opens the sockets, passes them to each worker, and restarts workers that end. It serves no requests itself.
Each worker is an ordinary replica. The others reach it by a Unix socket in a directory that only this user can enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.cli import BAD_INPUT, FAILED, OK
from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.config.listen import UNIX
from mcp_hub.config.models import Config
from mcp_hub.config.store import StoreSettings
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.transport.background import BACKGROUND, set_within
from mcp_hub.transport.children import Children
from mcp_hub.transport.http1.listening_sockets import bind, bind_path

if TYPE_CHECKING:
    from mcp_hub.cli.service_manager import ServiceNotifier

log = logging.getLogger("mcp_hub")

MAX_WORKERS: Final = 64
STORES: Final = ("valkey-server", "redis-server")
"""Programs that can be the store. The first that is installed is used."""
STORE_WITHIN: Final = 10.0
"""Seconds for the store to answer after it was started."""
READY_WITHIN: Final = 120.0
"""Seconds for a worker to listen; then it is killed and restarted."""
AGAIN: Final = 0.5
"""Seconds until an ended process is restarted, doubled for each failure in a row up to AGAIN_AT_MOST."""
AGAIN_AT_MOST: Final = 30.0
STEADY: Final = 10.0
"""A worker that ran for more than these seconds is restarted at once."""
END_WITHIN: Final = 20.0
"""Seconds, after `listen.shutdown_delay`, until workers that have not ended are killed."""
_HANG_UP: Final[signal.Signals] = getattr(signal, "SIGHUP", signal.SIGTERM)
_KILL: Final[signal.Signals] = getattr(signal, "SIGKILL", signal.SIGTERM)
_VARIABLE: Final = "MCP_HUB_WORKER"
"""The environment variable with the WorkerPlace of a worker, as JSON."""
_SYSTEM_DIRECTORIES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin")
"""Directories that may be missing on PATH and have programs of the system."""


class WorkerPlace(msgspec.Struct, frozen=True):
    """The settings that a worker gets from its parent."""

    sockets: tuple[int, ...]
    """The descriptors of the sockets that it listens on."""
    store: str
    """The URL of the store that was started for the workers; "" if the configuration names one."""
    address: str
    """The address at which other workers reach it: `unix:/PATH`."""
    tells: int
    """The descriptor of the pipe on which it reports that it is ready."""
    speaks: bool
    """Whether this worker prints where the hub listens."""

    @classmethod
    def taken(cls, environ: MutableMapping[str, str]) -> WorkerPlace | None:
        """Returns the place of this process, and removes it from `environ`. None if this process is not a worker."""
        raw_value = environ.pop(_VARIABLE, None)
        return None if raw_value is None else msgspec.json.decode(raw_value.encode(), type=cls)

    def handed(self) -> list[tuple[str, socket.socket]]:
        """Returns (name, socket) for each socket. Child processes do not inherit them."""
        for descriptor in (*self.sockets, self.tells):
            os.set_inheritable(descriptor, False)
        return [(f"worker {descriptor}", socket.socket(fileno=descriptor)) for descriptor in self.sockets]

    def settings(self, config: Config) -> Config:
        """Returns the configuration of this worker."""
        store = config.store or StoreSettings.model_validate({"url": self.store})
        return config.model_copy(update={"store": store.model_copy(update={"address": self.address})})

    def ready(self, bases: list[str]) -> list[str]:
        """Reports to the parent that connections are accepted. Returns the URLs for clients: `bases` but its own."""
        with contextlib.suppress(OSError):
            os.write(self.tells, b"1")
            os.close(self.tells)
        return [base for base in bases if base != self.address]


async def serve_workers(count: int, arguments: Sequence[str], config: Config) -> int:
    """Runs the workers of a hub until a signal arrives. Returns the exit code.

    `arguments` are the words of the command line. Raises ConfigError, and HubError if the listener cannot start.
    """
    from mcp_hub.cli.service_manager import ServiceNotifier, handed_sockets
    from mcp_hub.downstream.admission import check_listener
    from mcp_hub.transport.http1.listening_sockets import check_handed

    _check(count, config)
    handed, notifier = handed_sockets(os.environ), ServiceNotifier(os.environ)
    listen = check_handed(config.listen, handed) if handed else config.listen
    objection = check_listener(listen)
    if objection is not None:
        raise ConfigError(objection, objection.code)
    refuse_over_network(config)
    children = Children()
    with tempfile.TemporaryDirectory(prefix="mcp-hub-") as name:  # for this user alone
        sockets = [sock for _, sock in handed] or await bind(listen)
        pool = WorkerPool(count, arguments, children, Path(name), sockets, listen.shutdown_delay, notifier)
        try:
            async with _store(children, Path(name), started=config.store is None) as url:
                return await pool.run(url)
        finally:
            for sock in sockets:
                sock.close()
            if listen.socket_path is not None and not handed:
                listen.socket_path.unlink(missing_ok=True)
            await children.close()


def _check(count: int, config: Config) -> None:
    """Raises ConfigError if so many workers cannot be run here."""
    if sys.platform == "win32":
        raise ConfigError("--workers needs Unix sockets, which this system has not")
    if not 1 <= count <= MAX_WORKERS:
        raise ConfigError(f"--workers takes a number from 1 to {MAX_WORKERS}", codes.VALUE_WRONG)
    from mcp_hub.config.extras import missing

    if (problem := missing("store")) is not None:
        raise ConfigError(f"--workers: {problem}")
    if config.store is None and _store_program() is None:
        names = " or ".join(STORES)
        text = f"--workers needs {names}, through which workers are one hub: `apt-get install redis-server`"
        raise ConfigError(f"{text}, or name a running one by the setting store")


def _store_program() -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_DIRECTORIES))
    return next((program for name in STORES if (program := shutil.which(name, path=path)) is not None), None)


class WorkerPool:
    """The workers of one hub. A worker that ends is restarted."""

    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        children: Children,
        directory: Path,
        sockets: Sequence[socket.socket],
        delay: float,
        notifier: ServiceNotifier,
    ) -> None:
        """`delay`: seconds for which workers still serve after SIGTERM."""
        self._count = count
        self._arguments = arguments
        self._children = children
        self._directory = directory
        self._sockets = sockets
        self._delay = delay
        self._notifier = notifier
        self._stop = asyncio.Event()
        self._spawn_lock = asyncio.Lock()
        """Held while a worker is started, so that it does not inherit the descriptors of another one."""
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ready: set[int] = set()
        self._code = OK
        """The exit code of this command."""

    async def run(self, store: str) -> int:
        """Runs the workers until a signal arrives, or until one ends before any was ready. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._end)
        loop.add_signal_handler(_HANG_UP, self._reload)
        tasks = [BACKGROUND.keep(f"worker {number}", self._keep, number, store) for number in range(self._count)]
        try:
            async with self._notifier.watching(self._stop):
                await self._stop.wait()
        finally:
            for signum in (signal.SIGTERM, signal.SIGINT, _HANG_UP):
                loop.remove_signal_handler(signum)
            await self._end_all(tasks)
        return self._code

    def _end(self) -> None:
        if self._stop.is_set():
            self._signal(_KILL)
        self._stop.set()

    def _reload(self) -> None:
        self._signal(_HANG_UP)

    def _signal(self, signum: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signum)

    async def _end_all(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._signal(signal.SIGTERM)
        _, pending = await asyncio.wait(tasks, timeout=self._delay + END_WITHIN)
        if pending:
            self._signal(_KILL)
            await asyncio.wait(pending, timeout=END_WITHIN)

    async def _keep(self, number: int, store: str) -> None:
        """Keeps one worker running. If it ends before any worker was ready, all are stopped."""
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            started_at = loop.time()
            try:
                code = await self._run_one(number, store)
            except (OSError, HubError) as error:
                log.error("worker %d cannot be started: %s", number, error)
                code = FAILED
            if self._stop.is_set():
                return
            if not self._ready:
                self._code = code if code in (FAILED, BAD_INPUT) else FAILED
                self._stop.set()
                return
            failures = 0 if loop.time() - started_at > STEADY else failures + 1
            log.warning("worker %d has ended (status %d) and is started again", number, code)
            await set_within(self._stop, min(AGAIN_AT_MOST, AGAIN * 2 ** max(failures - 1, 0)) if failures else 0)

    async def _run_one(self, number: int, store: str) -> int:
        """Runs one worker until it ends; returns its exit code."""
        async with self._spawn_lock:
            process, read_end = await self._spawn(number, store)
        self._running[number] = process
        self._children.add(process.pid)
        if self._stop.is_set():
            process.terminate()
        readiness = asyncio.get_running_loop().create_task(self._wait_until_listening(number, read_end, process))
        try:
            return await process.wait()
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)
            del self._running[number]
            self._children.remove(process.pid)

    async def _spawn(self, number: int, store: str) -> tuple[asyncio.subprocess.Process, int]:
        """Starts a worker. Returns its process, and the descriptor to read its readiness from."""
        path = self._directory / f"worker{number}"
        own_socket = bind_path(path)
        read_end, write_end = os.pipe()
        descriptors = tuple(sock.fileno() for sock in (*self._sockets, own_socket))
        settings = WorkerPlace(descriptors, store, f"{UNIX}:{path}", write_end, number == 0 and not self._ready)
        environ = {**os.environ, _VARIABLE: msgspec.json.encode(settings).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "mcp_hub", *self._arguments),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(*descriptors, write_end),
                env=environ,
                start_new_session=True,
            )
        finally:
            own_socket.close()
            os.close(write_end)
        return process, read_end

    async def _wait_until_listening(self, number: int, read_end: int, process: asyncio.subprocess.Process) -> None:
        """Waits until a worker listens, and kills it if that takes too long."""
        loop = asyncio.get_running_loop()
        read: asyncio.Future[bytes] = loop.create_future()

        def read_ready() -> None:
            loop.remove_reader(read_end)
            read.set_result(os.read(read_end, 1))

        loop.add_reader(read_end, read_ready)
        try:
            async with asyncio.timeout(READY_WITHIN):
                if not await read:
                    return  # the worker has ended
        except TimeoutError:
            log.warning("worker %d does not listen after %g s", number, READY_WITHIN)
            process.kill()
            return
        finally:
            loop.remove_reader(read_end)
            os.close(read_end)
        self._ready.add(number)
        if len(self._ready) == self._count:
            self._notifier.say("READY=1", f"STATUS={self._count} workers listen")


@contextlib.asynccontextmanager
async def _store(children: Children, directory: Path, *, started: bool) -> AsyncIterator[str]:
    """Runs a store for the workers while the block runs, and yields its URL; "" if it is not to be `started`.

    It listens only on a Unix socket in `directory`, and writes no data to disk. Raises ConfigError if it fails.
    """
    program = _store_program() if started else None
    if program is None:
        yield ""
        return
    path = directory / "store"
    process = await _store_process(children, program, directory, path)
    keeper = BACKGROUND.keep("store of the workers", _keep_store, children, program, directory, path, process)
    try:
        yield f"{UNIX}://{path}"
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


async def _store_process(children: Children, program: str, directory: Path, path: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(program, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700", "--dir", str(directory)),
        *("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    children.add(process.pid)
    try:
        async with asyncio.timeout(STORE_WITHIN):
            while not await _answers(path):
                if process.returncode is not None:
                    break
                await asyncio.sleep(0.01)
            else:
                return process
    except TimeoutError:
        process.kill()
    await process.wait()
    children.remove(process.pid)
    raise ConfigError(f"{program} was started for the workers and does not answer (status {process.returncode})")


async def _answers(path: Path) -> bool:
    connect: Any = getattr(asyncio, "open_unix_connection")  # noqa: B009  # not on Windows
    try:
        reader, writer = await connect(path)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return bool(await reader.readline())
    except OSError:
        return False
    finally:
        writer.close()


async def _keep_store(
    children: Children, program: str, directory: Path, path: Path, process: asyncio.subprocess.Process
) -> None:
    """Restarts the store whenever it ends. Stops it when this task is cancelled."""
    try:
        while True:
            await process.wait()
            children.remove(process.pid)
            log.warning("the store of the workers has ended (status %s) and is started again", process.returncode)
            await asyncio.sleep(AGAIN)
            with contextlib.suppress(ConfigError):
                process = await _store_process(children, program, directory, path)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_WITHIN):
                    await process.wait()
        children.remove(process.pid)
