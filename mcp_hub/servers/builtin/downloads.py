"""What a browser downloads: kept in a private directory, within a bound, until it is handed over."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.servers.local.results import ToolRefused

if TYPE_CHECKING:
    from playwright.async_api import Download

MAX_WAITING: Final = 10
"""Downloads that wait to be fetched; of more, the oldest are dropped."""
MAX_TEXT: Final = 256 * 1024
"""Bytes up to which a text is returned as a text."""
_POLL: Final = 0.1
_TEXT_TYPES: Final = frozenset({"application/json", "application/xml", "application/javascript", "image/svg+xml"})


class Downloads:
    """The downloads of one browser, oldest first; all that lie in `directory` together are at most `max_bytes`."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory = directory
        self._max_bytes = max_bytes
        self._waiting: list[Download] = []
        self._too_large: set[Download] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.arrived = asyncio.Event()
        """Set with each download that begins."""

    def started(self, download: Download) -> str:
        """One has begun; what to tell the caller of it."""
        self._waiting.append(download)
        self.arrived.set()
        self._begin(self._watch(download))
        while len(self._waiting) > MAX_WAITING:
            self._begin(self._drop(self._waiting.pop(0)))
        return f"A download began: {download.suggested_filename!r}. browser_download without arguments returns it."

    def latest(self) -> Download | None:
        """The newest that nobody has fetched; it is the caller's from now on."""
        return self._waiting.pop() if self._waiting else None

    async def content(self, download: Download, content_type: str | None) -> list[dict[str, Any]]:
        """Its content blocks, once it is complete. Raises ToolRefused if it fails or is too large."""
        try:
            failure = await download.failure()
            if download in self._too_large:
                limit = f"{self._max_bytes:,} bytes (web.max_bytes)"
                raise ToolRefused("result_too_large", f"{download.suggested_filename!r} is larger than {limit}.")
            if failure is not None:
                raise ToolRefused("tool_error", f"The download of {download.suggested_filename!r} failed: {failure}.")
            data = await asyncio.to_thread(Path(await download.path()).read_bytes)
            if len(data) > self._max_bytes:
                limit = f"{self._max_bytes:,} (web.max_bytes)"
                what = f"{download.suggested_filename!r} has {len(data):,} bytes, more than {limit}."
                raise ToolRefused("result_too_large", what)
        finally:
            self._begin(self._drop(download))
        name = download.suggested_filename
        kind = (content_type or "").partition(";")[0].strip() or mimetypes.guess_type(name)[0] or ""
        url = download.url if download.url.startswith("http") else f"download:///{name}"
        resource = embedded(url, kind, data)
        said = f"Downloaded {name!r} ({len(data):,} bytes, {resource['resource']['mimeType']}) from {url}"
        return [{"type": "text", "text": said}, resource]

    async def _watch(self, download: Download) -> None:
        """Cancel it should what lies here grow over the limit."""
        ended = asyncio.ensure_future(download.failure())
        while not ended.done():
            await asyncio.wait({ended}, timeout=_POLL)
            if not ended.done() and await asyncio.to_thread(self._size) > self._max_bytes:
                self._too_large.add(download)
                await download.cancel()
        ended.exception()

    def _size(self) -> int:
        total = 0
        for file in self.directory.glob("*"):
            try:
                total += file.stat().st_size
            except OSError:
                continue  # just renamed or removed
        return total

    async def _drop(self, download: Download) -> None:
        self._too_large.discard(download)
        await download.cancel()
        await download.delete()

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _quietly(work: Any) -> None:
    from playwright.async_api import Error

    with contextlib.suppress(Error, OSError):  # the browser is gone, and with it the file
        await work


def embedded(uri: str, kind: str, data: bytes) -> dict[str, Any]:
    """A file as an embedded resource: a small text as a text, anything else in base64."""
    if len(data) <= MAX_TEXT and (not kind or kind.startswith("text/") or kind in _TEXT_TYPES):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            if "\0" not in text:
                return {"type": "resource", "resource": {"uri": uri, "mimeType": kind or "text/plain", "text": text}}
    blob = base64.b64encode(data).decode()
    kind = kind or "application/octet-stream"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": blob}}
