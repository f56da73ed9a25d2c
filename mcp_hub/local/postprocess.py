"""`python -m mcp_hub.local.postprocess [--path=DIRECTORY]... MODULE:FUNCTION...`: functions that change results.

Each function is a tool: it gets `call`, `result` and `options`, and answers `{"result": ...}`, null for the result as
it was. They run here and not in the hub, so that one that blocks, prints or ends its process costs only its own call.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from mcp_hub.wire.streams import claim

Json = dict[str, Any]


def main() -> None:
    """Serve until stdin ends, then leave at once, whatever still runs."""
    stdin, stdout = claim()  # before anything of the user's can print
    from mcp_hub.local.registry import Mark
    from mcp_hub.local.schema import LocalTool
    from mcp_hub.local.server import LocalServer

    words = sys.argv[1:]
    sys.path[:0] = [word.removeprefix("--path=") for word in words if word.startswith("--path=")]
    names = [word for word in words if not word.startswith("--")]
    tools = {name: LocalTool(step(name), Mark(name=name)) for name in names}
    LocalServer(tools, [], stdin, stdout, name="mcp-hub functions").serve()
    sys.stderr.flush()
    os._exit(0)


def step(name: str) -> Callable[..., Any]:
    """The tool of one `module:function`, which is looked for when it is called."""

    def run(call: Json, result: Json, options: Json) -> Json:
        """Change a result."""
        changed = found(name)(call, result, **options)
        if inspect.isawaitable(changed):
            changed = asyncio.run(_awaited(changed))
        if isinstance(changed, str):
            changed = {"content": [{"type": "text", "text": changed}]}
        if changed is not None and not isinstance(changed, dict):
            raise TypeError(f"it returned {type(changed).__name__}, not a result, a text or None")
        return {"result": changed}

    return run


async def _awaited(value: Any) -> Any:
    return await value


def found(name: str) -> Callable[..., Any]:
    """The function of `module:function`. Raises ImportError, in words, if there is none."""
    module, _, function = name.partition(":")
    try:
        target = getattr(importlib.import_module(module), function)
    except AttributeError:
        raise ImportError(f"the module {module!r} has no function {function!r}") from None
    if not callable(target):
        raise ImportError(f"{name!r} is no function")
    return target  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
