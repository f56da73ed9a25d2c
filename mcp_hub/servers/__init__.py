"""The hub's own servers. Most of them run in their own process: `python -m mcp_hub.servers ...`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path


def bound_memory(limit: int) -> None:
    """Bounds the memory of this process, and of each that it starts, to `limit` bytes, where the system can do that.

    Where the machine itself runs out of memory, Linux ends this process before the hub.
    """
    if sys.platform == "win32":
        from mcp_hub.transport.job_object import limit_own_memory

        with contextlib.suppress(OSError):  # a sandbox may allow no job
            limit_own_memory(limit)
        return
    import resource

    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(ValueError, OSError):  # it has less already
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
