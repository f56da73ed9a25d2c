"""What the tests of the ToolManager share: servers, calls, and the log that a program hands to it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters

from mcp_hub import (
    ToolManager,
    load_config,
)
from tests.fakes.client import fake

Json = dict[str, Any]
HF = "https://huggingface.co/datasets/x/y"
HF_SENTENCE = (
    "You are trying to scrape a Hugging Face dataset for answers, please do not use the scrape tool for this purpose."
)


def params(*options: str, **fields: Any) -> StdioServerParameters:
    entry = fake(*options)
    return StdioServerParameters(command=entry["command"], args=entry["args"], **fields)


def named(name: str, *options: str) -> Json:
    return {"name": name, "params": params(*options)}


def result(*content: Json, **fields: Any) -> str:
    return json.dumps({"content": list(content), **fields})


class TaskLog:
    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str, Any]] = []

    def log_step(self, info_level: str, step_name: str, message: str, metadata: Any = None) -> None:
        self.steps.append((info_level, step_name, message, metadata))

    def names(self) -> list[str]:
        return [step[1].removeprefix("ToolManager | ") for step in self.steps]


def call(manager: ToolManager, server: str, tool: str, arguments: Json | None = None) -> Json:
    return asyncio.run(manager.execute_tool_call(server, tool, arguments or {}))


class Neighbours:
    """Each interface of seed section 6 as somebody else's object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loaded: list[str] = []
        self.merge_requests: list[Any] = []
        self.lines: list[str] = []
        self.metrics: list[tuple[str, str, bool]] = []

    def load(self, path: str) -> Any:
        self.loaded.append(path)
        return load_config(self.path)

    def merged_tools(self, tool_sets: Any, tools: Any) -> list[str]:
        self.merge_requests.append((list(tool_sets), list(tools)))
        return ["search_tool"]

    def info(self, msg: str, *args: Any) -> None:
        self.lines.append(msg % args)

    def record(self, *, server: str, tool: str, method: str, code: str, seconds: float, success: bool) -> None:
        assert seconds >= 0
        self.metrics.append((tool, code, success))

    async def supports_function_calling(self) -> bool:
        return True
