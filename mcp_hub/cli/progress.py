"""What a person sees while servers are being connected to."""

from __future__ import annotations

import asyncio
import sys

from mcp_hub.hub.engine import Hub
from mcp_hub.text import printable


async def outcomes(hub: Hub) -> None:
    """Wait until every upstream has been connected to or failed to be; on a terminal stderr says for whom.

    Lazy ones too, and also those that are served from a kept catalog: what a person is shown is what is there now.
    """
    for upstream in hub.upstreams.values():
        upstream.start_now()
    waiting = asyncio.ensure_future(_all_tried(hub))
    if not sys.stderr.isatty():
        await waiting
        return
    from rich.console import Console

    with Console(stderr=True).status("connecting") as status:
        while not waiting.done():
            missing = [u.server.id for u in hub.upstreams.values() if not u.tried.is_set()]
            status.update(f"connecting to {len(missing)} of {len(hub.upstreams)}: {printable(', '.join(missing), 80)}")
            await asyncio.wait({waiting}, timeout=0.2)
        waiting.result()


async def _all_tried(hub: Hub) -> None:
    for upstream in hub.upstreams.values():
        await upstream.tried.wait()
    await hub.catalogs.settled()
