"""Tool sets and profiles in a program: their order, what is missing, and the neighbours that use them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_hub import (
    IConfigLoader,
    IConfigSystem,
    ILLMClient,
    ILogger,
    IMetricsCollector,
    IToolExecutor,
    IToolFormatter,
    IToolManager,
    ToolExecutor,
    ToolManager,
)
from tests.config.discovery.written import function, write
from tests.fakes.client import fake, write_config
from tests.library.tool_managers import Neighbours


@pytest.fixture
def with_sets(tmp_path: Path) -> Path:
    """The tool set of seed 4.2, of which `plot_tool` is nowhere."""
    function(tmp_path, "tools/builtin/a_excel.py", "excel_tool")
    function(tmp_path, "tools/builtin/b_sql.py", "sql_tool")
    function(tmp_path, "tools/builtin/c_search.py", "search_tool")
    write(
        tmp_path,
        "configs/tool_sets/data.yaml",
        "name: data_analysis_set\ndescription: 数据分析工具集\ntools:\n  - sql_tool\n  - excel_tool\n  - plot_tool\n",
    )
    profile = {"tool_sets": ["data_analysis_set"], "tools": ["search_tool", "sql_tool"]}
    return write_config(tmp_path, {"dead": fake("--die", "gone")}, profiles={"analyst": profile})


def test_a_tool_set_keeps_its_order_and_reports_missing_tools(
    with_sets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ToolManager.from_config(with_sets) as tools:
        found = tools.get_tool_set("data_analysis_set")
        assert isinstance(tools, IToolManager)
        assert [tool.tool_name for tool in found] == ["sql_tool", "excel_tool"]
        assert list(found.missing) == ["plot_tool"]
        assert "dead" in found.missing["plot_tool"]
        assert asyncio.run(tools.async_get_tool_set("data_analysis_set")) == found
        with pytest.raises(ValueError, match="data_analysis_set"):
            tools.get_tool_set("no_set")
    assert any("plot_tool" in record.getMessage() for record in caplog.records)


def test_a_profile_has_the_tools_of_its_sets_then_its_own_without_duplicates(with_sets: Path) -> None:
    """Seed 4.2: `tool_sets: [data_analysis_set]` and `tools: [search_tool]` become one list."""
    expected = ["sql_tool", "excel_tool", "search_tool"]
    with ToolManager.from_config(with_sets) as tools:
        found = tools.get_profile("analyst")
        assert [tool.tool_name for tool in found] == expected
        assert list(found.missing) == ["plot_tool"]
        agent = {"tool_sets": ["data_analysis_set"], "tools": ["search_tool"]}
        assert [tool.tool_name for tool in asyncio.run(tools.async_get_profile(agent))] == expected
        assert [tool.tool_name for tool in tools.get_profile({"tools": ["excel_tool"]})] == ["excel_tool"]
        with pytest.raises(ValueError, match="analyst"):
            tools.get_profile("nobody")
        with pytest.raises(ValueError, match="no_set"):
            tools.get_profile({"tool_sets": ["no_set"]})


def test_a_profile_includes_tools_by_their_tags(tmp_path: Path) -> None:
    write(
        tmp_path,
        "tools/builtin/tagged.py",
        "from mcp_hub import tool\n\n@tool(tags='sums')\ndef add() -> int:\n    return 1\n\n"
        "@tool\ndef other() -> int:\n    return 2\n",
    )
    with ToolManager.from_config(write_config(tmp_path, {}, profiles={"p": {"tags": ["sums"]}})) as tools:
        assert [tool.tool_name for tool in tools.get_profile("p")] == ["add"]


def test_user_objects_for_config_logging_model_and_metrics_are_used(with_sets: Path) -> None:
    """Seed 6: IConfigLoader, IConfigSystem, ILLMClient, ILogger and IMetricsCollector."""
    mine = Neighbours(with_sets)
    for interface in (IConfigLoader, IConfigSystem, ILogger, ILLMClient):
        assert isinstance(mine, interface)
    collector: IMetricsCollector = mine
    with ToolManager.from_config("agent.yaml", config_loader=mine, config_system=mine, collectors=[collector]) as tools:
        assert mine.loaded == ["agent.yaml"]
        assert [tool.tool_name for tool in tools.get_tool_set("anything")] == ["search_tool"]
        assert [tool.tool_name for tool in tools.get_profile("analyst")] == ["search_tool"]
        assert mine.asked == [(["anything"], []), (["data_analysis_set"], ["search_tool", "sql_tool"])]
        executor = ToolExecutor(tools, logger=mine)
        assert isinstance(executor, IToolExecutor)
        executor.execute("search_tool", {"a": 5})
        executor.execute("search_tool", {"a": "five"})
        formatter = tools.formatter
        assert isinstance(formatter, IToolFormatter)
        assert formatter.detect_strategy(mine) == "function_calling"
    assert mine.metrics == [("search_tool", "ok", True), ("search_tool", "invalid_parameters", False)]
    done, refused = mine.lines
    assert "local__search_tool" in done or "search_tool" in done
    assert "{'a': 5}" in done
    assert "search_tool of c_search.py" in done
    assert "invalid_parameters" in refused
    assert all(line.rstrip().endswith(" s") for line in mine.lines)
