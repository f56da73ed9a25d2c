"""What `mcp-hub logs` shows of a running hub: the records of its calls, and what its servers write to stderr."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_hub.downstream.page.endpoints import Json
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.trace import CALL_LOG
from mcp_hub.protocol.frames import FrameError, decode
from mcp_hub.security.private_files import open_regular
from mcp_hub.text import new_lines

if TYPE_CHECKING:
    from mcp_hub.downstream.page.feed import Feed
    from mcp_hub.hub import Engine

EVERY: Final = 0.25
"""Seconds between two checks for new lines."""
MAX_TAIL: Final = 256 * 1024
"""Bytes of the end of the call log that are read."""
MAX_EARLIER: Final = 200
"""Records of the call log that are shown."""


async def log_lines(hub: Engine, feed: Feed, server: str | None, *, follow: bool) -> AsyncIterator[Json]:
    """Yields `{"record": {...}}` and `{"server": id, "stderr": line}`, the earlier ones first.

    The first is `{"since": time}`, when the hub began to keep records in memory; `{"dropped": number}` says how many
    were lost. With `server`, it yields lines of that server only, or `{"problem": text, "cure": text}` if there is
    none of that name. With `follow`, it goes on until the consumer ends it.
    """
    if server is not None and server not in hub.upstreams:
        ids = ", ".join(hub.upstreams) or "none"
        yield {"problem": f"there is no server {server!r}", "cure": f"name one of these: {ids}"}
        return
    kept_before = feed.since
    news = feed.follow()
    try:
        yield {"since": feed.since}
        if kept_before is None:
            for record in await _earlier_records(hub):
                if server in (None, record.get("upstream")):
                    yield {"record": record}
        number = 0
        last_lines: dict[str, Sequence[str]] = {}
        while True:
            for id, line in _new_stderr(hub, last_lines, server):
                yield {"server": id, "stderr": line}
            dropped, entries = feed.after(number)
            if dropped and number:
                yield {"dropped": dropped}
            for entry in entries:
                number = entry.number
                if server in (None, entry.record.get("upstream")):
                    yield {"record": entry.record}
            if not follow:
                return
            news.clear()
            await asyncio.sleep(EVERY)
    finally:
        feed.unfollow(news)


def _new_stderr(hub: Engine, last_lines: dict[str, Sequence[str]], server: str | None) -> list[tuple[str, str]]:
    """Returns (server, line) for each line that is not yet in `last_lines`, and updates `last_lines`."""
    new = []
    for id, upstream in hub.upstreams.items():
        if server in (None, id):
            lines = upstream.last_words
            new += [(id, line) for line in new_lines(last_lines.get(id, ()), lines)]
            last_lines[id] = lines
    return new


async def _earlier_records(hub: Engine) -> list[Json]:
    """Returns the last records of this run in the call log, if the hub writes one."""
    settings = CALL_LOG.of(hub.config)
    if not settings.enabled or settings.file is None:
        return []
    labels = hub.labels
    return await in_thread(_tail, settings.file, f"{labels.run}-")


def _tail(path: Path, run: str) -> list[Json]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_TAIL))
            lines = file.read(MAX_TAIL).split(b"\n")
    except OSError:
        return []
    records = []
    for line in lines[1 if size > MAX_TAIL else 0 :]:
        try:
            record = decode(line) if line else None
        except FrameError:
            continue
        if isinstance(record, dict) and str(record.get("id", "")).startswith(run):
            records.append(record)
    return records[-MAX_EARLIER:]
