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
        tool_set = tools.get_tool_set("data_analysis_set")
        assert isinstance(tools, IToolManager)
        assert [tool.tool_name for tool in tool_set] == ["sql_tool", "excel_tool"]
        assert list(tool_set.missing) == ["plot_tool"]
        assert "dead" in tool_set.missing["plot_tool"]
        assert asyncio.run(tools.async_get_tool_set("data_analysis_set")) == tool_set
        with pytest.raises(ValueError, match="data_analysis_set"):
            tools.get_tool_set("no_set")
    assert any("plot_tool" in record.getMessage() for record in caplog.records)


def test_a_profile_has_the_tools_of_its_sets_then_its_own_without_duplicates(with_sets: Path) -> None:
    """Seed 4.2: `tool_sets: [data_analysis_set]` and `tools: [search_tool]` become one list."""
    expected = ["sql_tool", "excel_tool", "search_tool"]
    with ToolManager.from_config(with_sets) as tools:
        profile = tools.get_profile("analyst")
        assert [tool.tool_name for tool in profile] == expected
        assert list(profile.missing) == ["plot_tool"]
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
    neighbours = Neighbours(with_sets)
    for interface in (IConfigLoader, IConfigSystem, ILogger, ILLMClient):
        assert isinstance(neighbours, interface)
    collector: IMetricsCollector = neighbours
    with ToolManager.from_config(
        "agent.yaml", config_loader=neighbours, config_system=neighbours, collectors=[collector]
    ) as tools:
        assert neighbours.loaded == ["agent.yaml"]
        assert [tool.tool_name for tool in tools.get_tool_set("anything")] == ["search_tool"]
        assert [tool.tool_name for tool in tools.get_profile("analyst")] == ["search_tool"]
        assert neighbours.merge_requests == [(["anything"], []), (["data_analysis_set"], ["search_tool", "sql_tool"])]
        executor = ToolExecutor(tools, logger=neighbours)
        assert isinstance(executor, IToolExecutor)
        executor.execute("search_tool", {"a": 5})
        executor.execute("search_tool", {"a": "five"})
        formatter = tools.formatter
        assert isinstance(formatter, IToolFormatter)
        assert formatter.detect_strategy(neighbours) == "function_calling"
    assert neighbours.metrics == [("search_tool", "ok", True), ("search_tool", "invalid_parameters", False)]
    success, failure = neighbours.lines
    assert "local__search_tool" in success or "search_tool" in success
    assert "{'a': 5}" in success
    assert "search_tool of c_search.py" in success
    assert "invalid_parameters" in failure
    assert all(line.rstrip().endswith(" s") for line in neighbours.lines)
