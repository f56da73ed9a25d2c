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
    StrategyUnavailable,
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


EQUAL_NAMES = {
    "servers": {"first": fake(), "second": fake()},
    "tool_sets": {"numbers": ["pid", "second/add", "echo"]},
    "profiles": {"agent": {"tool_sets": ["numbers"], "tools": ["second__echo"]}},
}


def test_of_equal_names_the_first_in_the_configuration_is_meant_and_the_others_have_full_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 4.1.2: by the tool's own name, a warning, and the later tool as a reference."""
    with ToolManager(config=EQUAL_NAMES) as tools:
        assert (tools.get_tool("pid").name, tools.get_tool("second/pid").name) == ("first__pid", "second__pid")
        executor = ToolExecutor(tools)
        pids = [executor.execute(name).output for name in ("pid", "first__pid", "second__pid")]
        assert pids[0] == pids[1] != pids[2]
        assert [tool.name for tool in tools.get_tool_set("numbers")] == ["first__pid", "second__add", "first__echo"]
        agent = [tool.name for tool in tools.get_profile("agent")]
        assert agent == ["first__pid", "second__add", "first__echo", "second__echo"]
        both = {"first__sleep", "second__sleep"}
        assert {tool.name for tool in asyncio.run(tools.async_get_profile({"tools": ["slee?"]}))} == both
    warnings = [record.getMessage() for record in caplog.records if record.name == "mcp_hub.library"]
    assert [[name in text for text in warnings] for name in ("second__pid", "second__echo")] == [
        [True, False],
        [False, True],
    ]


def test_loading_tools_tells_once_which_names_several_have(caplog: pytest.LogCaptureFixture) -> None:
    """Seed 4.1.2: duplicates are found when tools are loaded."""
    with ToolManager(config={"servers": {"first": fake(), "second": fake()}}) as tools:
        tools.tool_func(echo)
        for _ in range(2):
            assert {tool.name for tool in tools.load_tools()} >= {"first__echo", "second__echo", "echo", "second__pid"}
        assert ToolExecutor(tools).execute("echo", {"text": "x"}).output == "here"
    warnings = [record.getMessage() for record in caplog.records if record.name == "mcp_hub.library"]
    (of_echo,) = [text for text in warnings if "'echo'" in text]
    assert "it means echo;" in of_echo
    assert of_echo.endswith("first__echo, second__echo")
    assert len([text for text in warnings if "second__pid" in text]) == 1


def echo(text: str) -> str:
    return "here"


def test_a_name_stays_with_the_first_server_while_that_is_unavailable(tmp_path: Path) -> None:
    death_flag = tmp_path / "gone"
    servers = {"first": fake("--die-if", str(death_flag)), "second": fake()}
    with ToolManager(config={"servers": servers}) as tools:
        executor = ToolExecutor(tools)
        assert executor.execute("echo", {"text": "hello"}).output == "hello"
        death_flag.touch()
        executor.execute("first__crash")
        assert executor.execute("echo", {"text": "hello"}).code in ("server_unavailable", "circuit_open")
        profile = tools.get_profile({"tools": ["echo", "second/echo"]})
        assert [tool.name for tool in profile] == ["second__echo"]
        assert "first" in profile.missing["echo"]


def test_an_exposed_name_means_its_tool_although_an_earlier_server_has_a_tool_of_that_name() -> None:
    servers = {"first": fake(), "second": fake(namespace="")}
    with ToolManager(config={"servers": servers}) as tools:
        for tool in (*tools.load_tools(), *tools.get_profile({"tools": ["pid"]})):
            assert tools.get_tool(tool.name) == tool
        assert [tool.name for tool in tools.get_profile({"tools": ["pid"]})] == ["pid"]


def test_without_namespaces_the_first_tool_of_each_name_is_the_only_one() -> None:
    tools = {"first": fake(), "second": fake("--tools", "1")}
    config = {"defaults": {"namespace": ""}, "servers": tools}
    with ToolManager(config=config, server_configs=[{"name": "third", "params": fake("--tools", "2")}]) as manager:
        manager.hub.add_server_sync("fourth", fake())
        names = [tool.name for tool in manager.load_tools()]
        servers = {name: manager.get_tool(name).server for name in ("echo", "t0", "t1")}
    assert len(names) == len(set(names))
    assert servers == {"echo": "first", "t0": "second", "t1": "third"}


def test_the_strategy_of_a_profile_overrides_that_of_the_configuration(tmp_path: Path) -> None:
    """Seed 4.3.1: `output_strategy` belongs to the configuration of an agent."""

    class Model:
        """A model without function calling."""

        def supports_function_calling(self) -> bool:
            return False

    strict = {"output_strategy": {"fallback_to_structured_output": False}}
    neither = {"function_calling": False, "fallback_to_structured_output": False}
    profiles = {"strict": {"tools": ["echo"], **strict}, "plain": {"tools": ["echo"]}}
    config = write_config(tmp_path, {"up": fake()}, profiles=profiles, tool_sets={"some": ["echo"]})
    with ToolManager.from_config(config) as tools:
        for lenient in ("plain", {"tools": ["echo"], "output_strategy": {"function_calling": True}}):
            agent = tools.get_profile(lenient)
            assert agent.formatter.detect_strategy(Model()) == "structured_output"
            assert "up__echo" in agent.formatter.format_for_llm(agent)
        assert tools.get_tool_set("some").formatter.detect_strategy(Model()) == "structured_output"
        for agent in (tools.get_profile("strict"), asyncio.run(tools.async_get_profile({"tools": ["echo"], **strict}))):
            with pytest.raises(StrategyUnavailable):
                agent.formatter.detect_strategy(Model())
        with pytest.raises(StrategyUnavailable):
            tools.get_profile({"tools": ["echo"], "output_strategy": neither}).formatter.detect_strategy(Model())
        with pytest.raises(ValueError, match="fallback"):
            tools.get_profile({"tools": ["echo"], "output_strategy": {"fallback": True}})
    with ToolManager.from_config(write_config(tmp_path, {}, profiles=profiles, **strict)) as tools:
        for agent in (tools.get_profile("plain"), tools.get_profile({})):
            with pytest.raises(StrategyUnavailable):
                agent.formatter.detect_strategy(Model())


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
