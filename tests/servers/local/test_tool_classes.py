"""Seed section 5: a new tool implements `BaseTool` and is put into the folder; nothing else is changed."""

from __future__ import annotations

import json
from pathlib import Path

from mcp_hub import ToolExecutor, ToolManager
from tests.cli.test_commands import run
from tests.config.discovery.written import write
from tests.fakes.client import fake, write_config

CLASSES = '''
from pydantic import BaseModel, Field
from mcp_hub import BaseTool, BuiltinTool

class Sum(BaseTool):
    """Add two numbers."""

    name: str = "sum_tool"

    def _run(self, a: int, b: int = 1) -> int:
        return a + b

class Range(BaseModel):
    start: int = Field(description="the first one")
    stop: int = 3

class Count(BuiltinTool):
    name: str = "count_tool"
    description: str = "Count."
    args_schema: type[BaseModel] = Range

    async def _arun(self, start: int, stop: int) -> list[int]:
        return list(range(start, stop))

class Prefixed(BaseTool):
    prefix: str

    def _run(self, text: str) -> str:
        return self.prefix + text

greet = Prefixed(name="greet_tool", description="Greet.", prefix="Hello ")

class Unfinished(BaseTool):
    name: str = "unfinished_tool"

class Nameless(BaseTool):
    def _run(self) -> None:
        pass

class Raising(BaseTool):
    name: str = "raising_tool"

    def model_post_init(self, context: object) -> None:
        raise RuntimeError("no licence")

    def _run(self) -> None:
        pass
'''


def test_a_class_that_implements_base_tool_is_served_as_a_tool(tmp_path: Path) -> None:
    write(tmp_path, "tools/builtin/classes.py", CLASSES)
    with ToolManager.from_config(write_config(tmp_path, {"up": fake()})) as tools:
        executor = ToolExecutor(tools)
        local_tools = {tool.tool_name: tool for tool in tools.load_tools() if tool.server == "local"}
        assert list(local_tools) == ["sum_tool", "count_tool", "greet_tool"]
        described = {name: (tool.source, tool.description) for name, tool in local_tools.items()}
        assert described == {
            "sum_tool": ("builtin", "Add two numbers."),
            "count_tool": ("builtin", "Count."),
            "greet_tool": ("builtin", "Greet."),
        }
        assert [
            (parameter.name, parameter.type, parameter.required) for parameter in local_tools["sum_tool"].parameters
        ] == [
            ("a", "integer", True),
            ("b", "integer", False),
        ]
        assert local_tools["count_tool"].parameters[0].description == "the first one"
        assert executor.execute("sum_tool", {"a": 1}).output == 2
        assert executor.execute("count_tool", {"start": 1}).output == [1, 2]
        assert executor.execute("greet_tool", {"text": "you"}).output == "Hello you"
        assert executor.execute("sum_tool", {"a": "one"}).code == "invalid_parameters"
        assert executor.execute("count_tool", {}).code == "invalid_parameters"


def test_check_names_the_missing_members_of_a_tool_class(tmp_path: Path) -> None:
    write(tmp_path, "tools/builtin/classes.py", CLASSES)
    done = run("check", "--json", "--config", str(write_config(tmp_path, {"up": fake()})))
    assert done.returncode == 1
    (local,) = (fact for fact in json.loads(done.stdout)["servers"] if fact["server"] == "local")
    (text,) = local["incomplete"]
    assert "Unfinished is left out: a BaseTool needs a method _run" in text
    assert "Nameless is left out: name: " in text
    assert "Raising is left out: no licence" in text


BASE = "from mcp_hub import BaseTool\n\nclass Base(BaseTool):\n    kind: str = ''\n"
DERIVED = """
from _base import Base

class Work:
    def _run(self) -> str:
        return "done"

class Own(Base, Work):
    name: str = "own"
"""


def test_an_imported_tool_class_is_not_served_by_the_importing_file(tmp_path: Path) -> None:
    write(tmp_path, "tools/builtin/_base.py", BASE)
    write(tmp_path, "tools/builtin/own.py", DERIVED)
    with ToolManager.from_config(write_config(tmp_path, {"up": fake()})) as tools:
        assert [tool.tool_name for tool in tools.load_tools() if tool.server == "local"] == ["own"]
        assert ToolExecutor(tools).execute("own").output == "done"
