"""Converts documents to Markdown in child processes, which are killed at the deadline of the call.

At most `WORKERS` processes run at a time. They are kept for the next conversion and ended after `IDLE` seconds without
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_hub.servers.local.tool_results import ToolRefused
from mcp_hub.transport.background import TaskSet

WORKERS: Final = 2
IDLE: Final = 120.0
"""Seconds an idle process is kept."""
CONVERSIONS: Final = 100
"""Conversions after which a process is replaced, as its libraries leak memory."""
MEMORY: Final = 2 * 1024**3
"""Bytes a process may take, where the system can enforce that.

A PDF of 30 MB takes 215 MB, a Word document with 28 MB of pictures 340 MB, 7 MB of HTML full of tags 1 GiB.
"""
_HEADER: Final = 64 * 1024
_END_WAIT: Final = 5.0
_INHERITED: Final = frozenset({
    "PATH", "LANG", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH",
    "MCP_HUB_RUN",  # the mark by which the hub finds what it has started
})  # fmt: skip
"""Environment variables that a process inherits: those it needs to start, and no secret."""

Json = dict[str, Any]


@dataclass(frozen=True)
class SourceDocument:
    """A document to convert, and the known facts about its type."""

    body: bytes
    content_type: str = ""
    """The media type without parameters, in lower case; empty if unknown."""
    charset: str | None = None
    extension: str | None = None
    """The file name extension with its dot."""
    url: str | None = None
    """Where the document came from.

    Some converters treat some sites in their own way; nothing is fetched from there.
    """


@dataclass(frozen=True)
class MarkdownDocument:
    """The Markdown of a document."""

    markdown: str
    title: str | None
    scripts: bool
    """Whether the document is a page that contains scripts."""


class WorkerDied(Exception):
    """The process ended in the middle of a conversion."""


class _Worker:
    """One child process, which converts one document at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.conversions = 0
        self.expiry: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, endpoint: str | None, memory: int, environ: Mapping[str, str]) -> _Worker:
        """Starts a process and waits until it is ready.

        Raises WorkerDied, and ToolRefused if MarkItDown cannot be set up as configured.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "mcp_hub.servers.builtin.markdown",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_HEADER, env=environ,
        )  # fmt: skip
        worker = cls(process)
        try:
            setup = {"docintel_endpoint": endpoint, "memory": memory}
            reply, _ = await worker._exchange(json.dumps(setup).encode() + b"\n")
            if "error" in reply:
                raise ToolRefused("tool_error", _setup_failure(endpoint, reply["message"]))
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def convert(self, document: SourceDocument, seconds: float) -> tuple[Json, bytes]:
        """Returns the header of the answer and the Markdown in UTF-8. Raises WorkerDied."""
        self.conversions += 1
        request = {
            "content_type": document.content_type,
            "charset": document.charset,
            "extension": document.extension,
            "url": document.url,
            "seconds": seconds,
            "length": len(document.body),
        }
        return await self._exchange(json.dumps(request).encode() + b"\n", document.body)

    async def _exchange(self, *data: bytes) -> tuple[Json, bytes]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.writelines(data)
            await stdin.drain()
            header = json.loads(await stdout.readline())
            return header, await stdout.readexactly(header["length"])
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise WorkerDied(f"{type(error).__name__}: {error}") from None

    @property
    def is_usable(self) -> bool:
        return self.process.returncode is None and self.conversions < CONVERSIONS

    async def kill(self) -> None:
        """Kills the process, even in the middle of a conversion."""
        if self.expiry is not None:
            self.expiry.cancel()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_WAIT):
                await self.process.wait()
        self.process._transport.close()  # type: ignore[attr-defined]  # closes its pipes at once


class Converter:
    """Converts documents on the event loop that calls it, without ever blocking the loop."""

    def __init__(self, docintel_endpoint: str | None = None, *, memory: int = MEMORY) -> None:
        self._endpoint = docintel_endpoint
        # Read now: a page that is opened in a browser narrows the environment of this process.
        self._environ = _environment(docintel_endpoint)
        self._memory = memory
        self._slots = asyncio.Semaphore(WORKERS)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._end_tasks = TaskSet()
        self._closed = False

    async def convert(self, document: SourceDocument, seconds: float) -> MarkdownDocument:
        """Converts a document, which takes at most `seconds`, the wait for a free process included.

        Raises ToolRefused with the code `timeout`, or `tool_error` for a document that cannot be converted.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds), self._slots:
                header, body = await self._convert(document, deadline - loop.time())
        except TimeoutError:
            raise ToolRefused("timeout", f"converting it to Markdown took longer than {seconds:.3g} s") from None
        except WorkerDied:
            limit = _memory_limit(self._memory)
            text = f"the converter crashed: the document is broken, or needs more memory than {limit}"
            raise ToolRefused("tool_error", text) from None
        if header.get("error") == "memory":
            text = f"converting it to Markdown takes more memory than {_memory_limit(self._memory)}"
            raise ToolRefused("tool_error", text)
        if "error" in header:
            raise ToolRefused("tool_error", f"it cannot be converted to Markdown: {header['message']}")
        markdown = body.decode("utf-8", "replace")
        if header["cut"]:
            markdown += "\n\n[The rest is left out: the Markdown of this document is too long.]"
        return MarkdownDocument(markdown, header["title"], header["scripts"])

    async def _convert(self, document: SourceDocument, seconds: float) -> tuple[Json, bytes]:
        worker = await self._worker()
        if worker.conversions:
            with contextlib.suppress(WorkerDied):  # it may have died while idle, so a new process tries, too
                return await self._convert_with(worker, document, seconds)
            worker = await self._start_worker()
        return await self._convert_with(worker, document, seconds)

    async def _convert_with(self, worker: _Worker, document: SourceDocument, seconds: float) -> tuple[Json, bytes]:
        self._busy.add(worker)
        try:
            header, body = await worker.convert(document, seconds)
        except BaseException:  # cancelled too: the process is in the middle of a conversion
            await worker.kill()
            raise
        finally:
            self._busy.discard(worker)
        if self._closed or not worker.is_usable or header.get("error") == "memory":
            await worker.kill()
        else:
            worker.expiry = asyncio.get_running_loop().call_later(IDLE, self._retire, worker)
            self._idle.append(worker)
        return header, body

    async def _worker(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.expiry is not None:
                worker.expiry.cancel()
            if worker.is_usable:
                return worker
            await worker.kill()
        return await self._start_worker()

    async def _start_worker(self) -> _Worker:
        return await _Worker.start(self._endpoint, self._memory, self._environ)

    def _retire(self, worker: _Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            self._end_tasks.start(worker.kill())

    async def close(self) -> None:
        """Kills all processes, even those in the middle of a conversion."""
        self._closed = True
        workers = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(worker.kill() for worker in workers), *self._end_tasks, return_exceptions=True)


def _memory_limit(memory: int) -> str:
    return f"the {memory // 1024**2:,} MiB a conversion may take (web.max_memory)"


def _environment(endpoint: str | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    def is_inherited(name: str) -> bool:
        return (
            name.upper() in _INHERITED or name.startswith("LC_") or (endpoint is not None and name.startswith("AZURE_"))
        )

    return {name: value for name, value in environ.items() if is_inherited(name)}


def _setup_failure(endpoint: str | None, message: str) -> str:
    if endpoint is None:
        return f"MarkItDown cannot be used: {message}"
    return (
        f"MarkItDown cannot use web.docintel_endpoint: {message}. "
        "Install what it needs (pip install 'markitdown[az-doc-intel]'), or remove the setting."
    )
