"""One call that runs: its chunks, and what its caller is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import encode
from mcp_hub.servers.local.functions import Bound, LocalTool
from mcp_hub.servers.local.response import ToolResponse
from mcp_hub.servers.local.results import result_of

CHUNK_KEY: Final = "mcp-hub/chunk"
"""In `_meta` of a progress notification: the chunk as a result, where it is more than its text."""
MAX_CHUNK: Final = 256 * 1024
"""Bytes of a chunk that are told as progress; of a longer one only that it came: the result will have it all."""

Tell = Callable[[dict[str, Any]], None]


class Running:
    """Chunks go out as progress as they come, the last one is the result.

    A chunk that says of itself that it is the last one is told only if another follows.
    """

    def __init__(self, tool: LocalTool, call: Bound, params: dict[str, Any], tell: Tell) -> None:
        meta = params.get("_meta")
        self._token = meta.get(eras.PROGRESS_TOKEN) if isinstance(meta, dict) else None
        self._tell = tell
        self._told = 0
        self._held: Any = None
        self._work: Future[None] | None = None
        self.tool = tool
        self.call = call
        self.last: Any = None
        self.cancelled = False

    def heard(self, chunk: Any, more: bool) -> None:
        """Take in a chunk; `more`: others may follow."""
        self.last = chunk
        if not more or self._token is None:
            return
        held, self._held = self._held, None
        if held is not None:
            self._progress(held)
        if isinstance(chunk, ToolResponse) and chunk.is_last:
            self._held = chunk
        else:
            self._progress(chunk)

    def works(self, work: Future[None]) -> None:
        """This is what a cancellation ends."""
        self._work = work
        if self.cancelled:
            work.cancel()

    def cancel(self) -> None:
        """End it: a coroutine at once, a sync generator at its next chunk. Any other sync function goes on unheard."""
        self.cancelled = True
        if self._work is not None:
            self._work.cancel()

    def _progress(self, chunk: Any) -> None:
        self._told += 1
        params: dict[str, Any] = {"progressToken": self._token, "progress": self._told}
        result = result_of(self.tool.name, chunk)
        texts = [block["text"] for block in result["content"] if block.get("type") == "text"]
        if len(encode(result)) <= MAX_CHUNK:
            if texts:
                params["message"] = "\n".join(texts)
            if len(texts) != 1 or set(result) != {"content"} or len(result["content"]) != 1:
                params["_meta"] = {CHUNK_KEY: result}
        self._tell({"method": eras.PROGRESS, "params": params})
