"""Runs a file whose top level may await, as a notebook does."""

import ast
import asyncio
import inspect
import sys
from pathlib import Path

source = Path(sys.argv[1])
code = compile(source.read_text(encoding="utf-8"), str(source), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {"__name__": "__main__"}
result = eval(code, names)


async def await_result() -> None:
    if inspect.iscoroutine(result):
        await result


asyncio.run(await_result())
