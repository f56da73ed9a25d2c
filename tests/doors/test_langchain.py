"""LangChain, in its own locked environment: `to_langchain`, and LangChain's own tools in the folder of tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.config.discovery.written import write
from tests.doors.packages import python_beside
from tests.doors.programs import output
from tests.fakes.client import fake, write_config

pytestmark = pytest.mark.anyio

TOOLS = '''
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain_tool
from mcp_hub import tool

@tool
def calculate(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool
def nothing() -> None:
    """Do nothing."""

@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no such column")

class Sum(BaseTool):
    name: str = "langchain_sum"
    description: str = "Add two numbers for LangChain."

    def _run(self, a: int, b: int) -> int:
        return a + b

@langchain_tool
async def langchain_upper(text: str) -> str:
    """Write in capitals."""
    return text.upper()
'''


async def test_tools_convert_to_and_from_langchain_tools(tmp_path: Path) -> None:
    write(tmp_path, "tools/builtin/both.py", TOOLS)
    config = write_config(tmp_path, {"up": fake(enable_tools=["echo"])})
    program = Path(__file__).with_name("langchain_tools.py")
    python = await python_beside("langchain", tmp_path / "environment")
    (line,) = await output(program, str(config), python=python)
    report = json.loads(line)
    schema = report.pop("openai")["function"]
    assert (schema["name"], schema["description"]) == ("local__calculate", "Add two numbers.")
    assert schema["parameters"]["required"] == ["a", "b"]
    assert schema["parameters"]["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert report == {
        "tools": ["calculate", "echo", "fail", "langchain_sum", "langchain_upper", "nothing"],
        "are": True,
        "sync": {"calculate": 3, "nothing": None, "echo": "hello", "langchain_sum": 42, "langchain_upper": "X"},
        "message": [True, "5", "call_1"],
        "async": {"calculate": [1, 2, 3], "fail": "tool_error", "within": 2},
        "fail": "tool_error",
        "invalid": "invalid_parameters",
        "handled": "tool_error: Error: no such column",
        "described": {
            "langchain_sum": "Add two numbers for LangChain.",
            "langchain_upper": "Write in capitals.",
        },
        "executor": "invalid_parameters",
    }
