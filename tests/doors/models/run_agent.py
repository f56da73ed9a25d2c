"""Runs the program of a page with a scripted model of its framework.

`run_agent.py FRAMEWORK PROGRAM main|ask CALLS`: the model makes these calls, one after the other, and answers with
their results. `main` is the program as it is; `ask` asks one question and prints what the model saw as JSON.
"""

import asyncio
import importlib
import importlib.util
import json
import sys

framework, path, mode, calls = sys.argv[1:]
spec = importlib.util.spec_from_file_location("program", path)
assert spec is not None
assert spec.loader is not None
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
model = importlib.import_module(f"model_of_{framework}").ScriptedModel(json.loads(calls))


async def ask() -> None:
    async with program.connection() as hub:
        answer = await program.ask(hub, "What do they say?", model)
    print(json.dumps({"tools": model.tools, "results": model.results, "answer": answer}))


asyncio.run(program.main(model) if mode == "main" else ask())
