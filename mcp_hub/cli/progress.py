"""What a person sees while servers are being connected to."""

from __future__ import annotations

import asyncio
import sys

from mcp_hub.hub import Hub
from mcp_hub.text import printable


async def outcomes(hub: Hub) -> None:
    """Wait for every upstream's first outcome; on a terminal stderr says for whom."""
    if not sys.stderr.isatty():
        await hub.outcomes()
        return
    from rich.console import Console

    with Console(stderr=True).status("connecting") as status:
        waiting = asyncio.ensure_future(hub.outcomes())
        while not waiting.done():
            missing = [u.server.id for u in hub.upstreams.values() if not u.settled.is_set()]
            status.update(f"connecting to {len(missing)} of {len(hub.upstreams)}: {printable(', '.join(missing), 80)}")
            await asyncio.wait({waiting}, timeout=0.2)
        waiting.result()
