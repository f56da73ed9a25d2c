"""ToolManager as MiroFlow has it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import PlaywrightSession, ToolManager, ToolManagerProtocol, with_timeout
from mcp_hub.errors import ConfigError
from tests.fakes.client import PATIENCE, fake, write_config
from tests.fakes.network import network_hub
from tests.library.tool_managers import HF, HF_SENTENCE, Json, TaskLog, call, named, result

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
TEXTS = [{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}]


class Broken:
    def log_step(self, *_: Any) -> None:
        raise OSError("the disk is full")


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolManager]:
    scraping = tmp_path_factory.mktemp("lists") / "lists.json"
    url = {"type": "object", "properties": {"url": {"type": "string"}}}
    scraping.write_text(json.dumps({"tools": [{"name": "scrape", "inputSchema": url}]}))
    manager = ToolManager(
        [
            named("dead", "--die", "gone"),
            named("alive"),
            {"name": "odd", "params": 42},
            named("many", "--result", result(*TEXTS)),
            named("empty", "--result", result()),
            named("failing", "--result", result({"type": "text", "text": "Unknown tool: q"}, isError=True)),
            named("scraper", "--lists", str(scraping)),
            {"name": "timed", "params": fake(deadlines={"call": 0.5})},
        ],
        tool_blacklist=[["alive", "add"], ("many", "t*")],
    )
    yield manager
    manager.close()


def test_a_tool_manager_satisfies_the_protocol_of_orchestrators(manager: ToolManager) -> None:
    orchestrated: ToolManagerProtocol = manager
    assert isinstance(orchestrated, ToolManagerProtocol)

    class CachedToolManager:
        """Of the document: another implementation, whose arguments are by keyword only."""

        async def get_all_tool_definitions(self) -> list[Json]:
            return []

        async def execute_tool_call(self, *, server_name: str, tool_name: str, arguments: Json) -> Json:
            return {}

    assert isinstance(CachedToolManager(), ToolManagerProtocol)
    assert not isinstance(object(), ToolManagerProtocol)
    assert manager.get_server_params("alive") is manager.server_dict["alive"]
    assert manager.get_server_params("nobody") is None
    assert manager.tool_blacklist == {("alive", "add"), ("many", "t*")}
    assert manager.task_log is None


def test_check_8_an_unknown_server_gives_exactly_one_error(manager: ToolManager) -> None:
    """MiroFlow's document, 3.4 and 3.6."""
    assert call(manager, "alife", "echo") == {
        "server_name": "alife",
        "tool_name": "echo",
        "error": "Server 'alife' not found.",
    }


@pytest.mark.parametrize("tool", [["echo"], {}, None, 1])
def test_a_tool_name_that_is_not_a_string_gives_an_error_text(manager: ToolManager, tool: Any) -> None:
    assert call(manager, "alive", tool)["error"] == "Tool call failed: the name of a tool must be a string"


@pytest.mark.parametrize("server", [["alive"], {}, None])
def test_a_server_name_that_is_not_a_string_is_not_found(manager: ToolManager, server: Any) -> None:
    assert call(manager, server, "echo")["error"] == f"Server '{server}' not found."


def test_check_9_a_dead_server_is_listed_with_an_error_and_the_others_in_order(manager: ToolManager) -> None:
    """MiroFlow's document, 3.5: an entry with an error and without a name."""
    listed = asyncio.run(manager.get_all_tool_definitions())
    assert [definition["name"] for definition in listed] == list(manager.server_dict)
    by_name = {definition["name"]: definition["tools"] for definition in listed}
    for name in ("dead", "odd"):
        (entry,) = by_name[name]
        assert list(entry) == ["error"]
        assert entry["error"].startswith("Unable to fetch tools: ")
    assert "Unknown server params type for odd: <class 'int'>" in by_name["odd"][0]["error"]
    echo = by_name["alive"][0]
    assert echo == {
        "name": "echo",
        "description": "echo of fake",
        "schema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    assert "add" not in [tool["name"] for tool in by_name["alive"]]


def test_check_10_arguments_by_position_and_by_keyword_are_the_same(manager: ToolManager) -> None:
    async def call_both() -> tuple[Json, Json]:
        return (
            await manager.execute_tool_call("alive", "echo", {"text": "x"}),
            await manager.execute_tool_call(server_name="alive", tool_name="echo", arguments={"text": "x"}),
        )

    first, second = asyncio.run(call_both())
    assert first == second == {"server_name": "alive", "tool_name": "echo", "result": "x"}


def test_a_server_may_have_a_process_for_each_call() -> None:
    """As in the originals, where a call is a connection; here that is `session: call`."""
    with ToolManager([{"name": "new", "params": fake(session="call")}]) as manager:
        manager.use_mcp({"mcpServers": {"anew": fake(session="call")}})
        assert call(manager, "new", "pid") != call(manager, "new", "pid")
        assert manager.call_tool("pid", {}) != manager.call_tool("pid", {})


def test_asyncio_run_twice_keeps_the_session(manager: ToolManager) -> None:
    asyncio.run(manager.get_all_tool_definitions())
    assert call(manager, "alive", "pid") == call(manager, "alive", "pid")


def test_check_14_all_texts_are_in_the_result_and_nothing_raises(manager: ToolManager) -> None:
    assert call(manager, "many", "echo")["result"] == "one\n[image image/png]\ntwo"


def test_check_15_empty_content_gives_an_empty_text(manager: ToolManager) -> None:
    assert call(manager, "empty", "echo")["result"] == ""


def test_check_17_a_timeout_is_raised_and_the_next_call_is_answered(manager: ToolManager) -> None:
    """MiroFlow's document, 1: TimeoutError reaches the caller."""
    with pytest.raises(asyncio.TimeoutError):
        call(manager, "timed", "sleep", {"seconds": 60})
    assert call(manager, "timed", "echo", {"text": "next"})["result"] == "next"


def test_a_timeout_is_returned_as_an_error_text_if_configured() -> None:
    with ToolManager([named("slow")], timeout=0.5, on_timeout="return") as manager:
        answer = call(manager, "slow", "sleep", {"seconds": 60})
    assert "result" not in answer
    assert answer["error"].removeprefix("Tool execution failed: ")
    assert "0.5 s" in answer["error"]
    with pytest.raises(ValueError, match="on_timeout"):
        ToolManager([], on_timeout="ignore")  # type: ignore[arg-type]


def test_the_managers_timeout_applies_to_servers_of_a_file(tmp_path: Path) -> None:
    """MiroFlow's document, 1: one deadline for everything that a call does."""
    path = write_config(tmp_path, {"slow": fake(), "patient": fake(timeout=600)})
    with ToolManager.from_config(path, timeout=0.5, on_timeout="return") as manager:
        for server in ("slow", "patient"):
            assert "did not answer within 0.5 s" in call(manager, server, "sleep", {"seconds": 60})["error"]
        manager.use_mcp(fake())
        assert "did not answer within 0.5 s" in manager.call_tool("sleep", {"seconds": 60})
        manager.register("forever", "d", {}, threading.Event().wait)
        assert "within 0.5 s" in manager.call_tool("forever", {})


def test_a_blacklisted_tool_is_refused_even_if_added_to_the_set_later(manager: ToolManager) -> None:
    refused = {"server_name": "alive", "tool_name": "add", "error": "Tool 'add' on server 'alive' is blacklisted."}
    assert call(manager, "alive", "add", {"a": 1, "b": 2}) == refused
    manager.tool_blacklist.add(("alive", "big"))
    assert "blacklisted" in call(manager, "alive", "big", {"bytes": 1})["error"]
    manager.tool_blacklist.discard(("alive", "big"))
    assert call(manager, "alive", "big", {"bytes": 1})["result"] == "x"
    assert manager.call_tool("alive__add", {"a": 1, "b": 2}) == "Can not find tool named 'alive__add'"


def test_error_texts_begin_with_the_prefix_that_orchestrators_expect(manager: ToolManager) -> None:
    """MiroFlow's document, 3.6: result or error, never both."""
    assert call(manager, "failing", "echo")["error"] == "Unknown tool: q"
    assert call(manager, "alive", "nowhere")["error"].startswith("Unknown tool: ")
    assert call(manager, "alive", "fail")["error"] == "Tool execution failed: no"
    assert call(manager, "alive", "echo", {"text": [1]})["error"].startswith("Error executing tool echo: ")
    for arguments in ("text", ["a", "list"], 3):
        error = asyncio.run(manager.execute_tool_call("alive", "echo", arguments))["error"]  # type: ignore[arg-type]
        assert error.startswith("Error executing tool echo: The arguments of 'echo' must be an object")
    assert call(manager, "dead", "echo")["error"].startswith("Tool call failed: ")
    assert call(manager, "odd", "echo")["error"].startswith("Tool call failed: Unknown server params type for odd")


def test_an_unknown_tool_name_is_answered_with_names_the_caller_may_use(manager: ToolManager) -> None:
    """A003-37. The error about a server is the document's word for word (3.4), so its log has the hint."""
    log = TaskLog()
    asyncio.run(manager.get_all_tool_definitions())
    manager.task_log = log
    assert call(manager, "alive", "ecko")["error"] == "Unknown tool: ecko. Did you mean 'echo'?"
    assert call(manager, "alive", "scrape")["error"] == "Unknown tool: scrape. It is a tool of 'scraper'."
    assert call(manager, "alive", "addd")["error"] == "Unknown tool: addd", "add is blacklisted"
    assert call(manager, "alive", "xyzzy")["error"] == "Unknown tool: xyzzy"
    assert call(manager, "alife", "echo")["error"] == "Server 'alife' not found."
    assert call(manager, "nobody", "scrape")["error"] == "Server 'nobody' not found."
    misspelt, unrelated = [message for _, step, message, _ in log.steps if step.endswith("Server Not Found")]
    assert misspelt.endswith("'alife' not found. Did you mean 'alive'?")
    assert unrelated.endswith("'nobody' not found. It is a tool of 'scraper'.")
    manager.task_log = None


def test_a_guarded_url_is_answered_with_the_sentence_as_the_result(manager: ToolManager) -> None:
    """MiroFlow's document, 3.6: the sentence takes the place of the result."""
    log = TaskLog()
    manager.task_log = log
    assert call(manager, "scraper", "scrape", {"url": HF})["result"] == HF_SENTENCE
    assert log.names() == ["Tool Call Start", "Tool Call Blocked"]
    assert log.steps[-1][2] == f"Tool 'scrape' (server: 'scraper') was not called: {HF_SENTENCE}"
    manager.task_log = None


def test_check_28_a_task_log_is_written_at_once_and_never_breaks_a_call(manager: ToolManager) -> None:
    log = TaskLog()
    manager.set_task_log(log)
    servers = list(manager.server_dict)
    assert log.steps == [
        ("info", "ToolManager | Initialization", f"ToolManager initialized, loaded servers: {servers}", None)
    ]
    asyncio.run(manager.get_all_tool_definitions())
    for server, tool in (("alive", "echo"), ("alive", "add"), ("nobody", "x"), ("dead", "x"), ("failing", "echo")):
        call(manager, server, tool, {"text": "x", "api_key": "sk-1234567890abcdef"} if tool == "echo" else {})
    expected = {
        "Initialization",
        "Get Tool Definitions",
        "Tool Blacklisted",
        "Unknown Parameter Type",
        "Tool Definitions Success",
        "Connection Error",
        "Server Not Found",
        "Tool Call Start",
        "Tool Execution Error",
        "Tool Call Success",
        "Tool Call Failed",
    }
    assert expected == set(log.names())
    (started, *_) = [step for step in log.steps if step[1].endswith("Tool Call Start")]
    assert started[3] == {"arguments": {"text": "x", "api_key": "***"}}
    manager.set_task_log(Broken())
    assert call(manager, "alive", "echo", {"text": "x"})["result"] == "x"
    manager.task_log = None


def test_params_of_an_unknown_kind_are_a_step_of_the_log_also_in_a_call(manager: ToolManager) -> None:
    log = TaskLog()
    manager.task_log = log
    call(manager, "odd", "echo")
    assert log.names() == ["Unknown Parameter Type", "Tool Call Failed"]
    manager.task_log = None


def test_a_blacklisted_tool_is_told_by_an_info_step(manager: ToolManager) -> None:
    log = TaskLog()
    manager.task_log = log
    asyncio.run(manager.get_all_tool_definitions())
    assert {step[0] for step in log.steps if step[1].endswith("Tool Blacklisted")} == {"info"}
    manager.task_log = None


def test_a_server_without_checks_gets_the_arguments_as_they_are() -> None:
    with ToolManager([named("one")], check_arguments=False) as manager:
        assert call(manager, "one", "echo", {"text": [1]})["result"] == "[1]"


def test_servers_that_the_program_adds_changes_and_removes_count_at_once() -> None:
    servers = [named("first")]
    with ToolManager(servers, tool_blacklist={("late", "add")}, timeout=0.5, on_timeout="return") as manager:
        manager.server_dict["late"] = fake()
        manager.server_dict["odd"] = 42
        assert call(manager, "late", "echo", {"text": "x"})["result"] == "x"
        assert "blacklisted" in call(manager, "late", "add", {"a": 1, "b": 1})["error"]
        assert "0.5 s" in call(manager, "late", "sleep", {"seconds": 60})["error"]
        assert call(manager, "odd", "echo")["error"].startswith("Tool call failed: Unknown server params type for odd")
        manager.server_configs.append(named("listed"))  # type: ignore[attr-defined]
        listed = [entry["name"] for entry in asyncio.run(manager.get_all_tool_definitions())]
        assert listed == ["first", "late", "odd", "listed"]
        pid = call(manager, "late", "pid")["result"]
        manager.server_dict["late"] = fake(env={"OTHER": "1"})
        manager.server_dict.pop("odd")
        assert call(manager, "late", "pid")["result"] != pid
        assert call(manager, "odd", "echo")["error"] == "Server 'odd' not found."


def test_calls_at_once_all_wait_for_what_the_program_has_changed() -> None:
    async def at_once(server: str) -> list[Json]:
        return await asyncio.gather(*(manager.execute_tool_call(server, "echo", {"text": "x"}) for _ in range(3)))

    with ToolManager([named("first")]) as manager:
        assert call(manager, "first", "echo", {"text": "x"})["result"] == "x"
        manager.server_dict["late"] = fake()
        assert [answer.get("result") for answer in asyncio.run(at_once("late"))] == ["x", "x", "x"]
        manager.tool_blacklist.add(("first", "echo"))
        refusal = "Tool 'echo' on server 'first' is blacklisted."
        assert [answer.get("error") for answer in asyncio.run(at_once("first"))] == [refusal] * 3


def test_a_blacklist_holds_after_the_call_that_would_have_applied_it_was_cancelled() -> None:
    async def cancelled_call() -> None:
        running = asyncio.create_task(manager.execute_tool_call("first", "echo", {"text": "x"}))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with ToolManager([named("first")]) as manager:
        assert call(manager, "first", "echo", {"text": "x"})["result"] == "x"
        manager.tool_blacklist.add(("first", "echo"))
        asyncio.run(cancelled_call())
        assert "blacklisted" in call(manager, "first", "echo", {"text": "x"})["error"]


def test_servers_that_the_program_takes_out_stay_out_until_it_puts_them_back(tmp_path: Path) -> None:
    with ToolManager([named("given")], config=write_config(tmp_path, {"configured": fake()})) as manager:
        for name in ("given", "configured"):
            params = manager.server_dict.pop(name)
            for _ in range(2):
                assert call(manager, name, "echo", {"text": "x"})["error"] == f"Server '{name}' not found."
            manager.server_dict[name] = params
            assert call(manager, name, "echo", {"text": "x"})["result"] == "x"


class Careful(ToolManager):
    def __init__(self, *args: Any, **options: Any) -> None:
        self.logged: list[str] = []
        super().__init__(*args, **options)

    def _log(self, level: str, step_name: str, message: str, metadata: Any = None) -> None:
        self.logged.append(step_name)
        super()._log(level, step_name, message, metadata)

    def _should_block_hf_scraping(self, tool_name: str, arguments: Any) -> bool:
        return super()._should_block_hf_scraping(tool_name, arguments) or "secret" in str(arguments)


def test_a_subclass_extends_the_guard_and_the_log() -> None:
    with Careful([named("one")]) as manager:
        assert manager._is_huggingface_dataset_or_space_url(HF)
        assert not manager._is_huggingface_dataset_or_space_url("https://huggingface.co/models")
        assert manager._should_block_hf_scraping("scrape_website", {"url": HF})
        assert not manager._should_block_hf_scraping("echo", {"url": HF})
        assert call(manager, "one", "echo", {"text": "a secret"})["result"] == HF_SENTENCE
        assert call(manager, "one", "echo", {"text": "x"})["result"] == "x"
        assert manager.logged == ["Tool Call Blocked", "Tool Call Start", "Tool Call Success"]


class Wary(ToolManager):
    def _is_huggingface_dataset_or_space_url(self, url: Any) -> bool:
        return super()._is_huggingface_dataset_or_space_url(url) or "answers" in str(url)


def test_a_subclass_extends_the_guard_by_what_it_says_of_urls() -> None:
    with Wary([named("one")]) as manager:
        url = "https://example.com/answers"
        assert call(manager, "one", "scrape", {"url": url})["result"] == HF_SENTENCE
        assert call(manager, "one", "echo", {"text": url})["result"] == url


def test_duplicate_names_and_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="unique"):
        ToolManager([named("one"), named("one")])
    with pytest.raises(ValueError, match="tool_blacklist"):
        ToolManager([], tool_blacklist={"one"})
    with pytest.raises(ConfigError):
        ToolManager.from_config("/nowhere/servers.yaml")


def test_a_configuration_file_provides_servers_and_rules(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": fake()}, blacklist=[["one", "add"]])
    with ToolManager.from_config(path, tool_blacklist={"one/echo"}) as manager:
        (listed,) = asyncio.run(manager.get_all_tool_definitions())
        assert not {"add", "echo"} & {tool["name"] for tool in listed["tools"]}
        assert "blacklisted" in call(manager, "one", "add")["error"]


@pytest.mark.parametrize("path", ["/sse", "/mcp"])
def test_a_url_defines_a_server_and_the_blacklist_applies_to_it(tmp_path: Path, path: str) -> None:
    async def ask() -> tuple[list[str], list[Json]]:
        async with network_hub(tmp_path, {"fake": fake(namespace="")}) as (_, base):
            servers = [{"name": "net", "params": base + path}]
            async with ToolManager(servers, tool_blacklist={("net", "add")}) as manager:
                (listed,) = await manager.get_all_tool_definitions()
                answers = [await manager.execute_tool_call("net", "echo", {"text": "far"})]
                answers.append(await manager.execute_tool_call("net", "add", {"a": 1, "b": 1}))
                session = PlaywrightSession(base + path)
                assert [await session.call_tool("echo", {"text": "far"}) for _ in range(2)] == ["far", "far"]
                await session.close()
                await manager.async_use_mcp(base + path, headers={"X-Any": "1"})
                assert manager.tool_info["echo"]["desc"] == "echo of fake"
                return [tool["name"] for tool in listed["tools"]], answers

    names, (echoed, refused) = asyncio.run(ask())
    assert "echo" in names
    assert "add" not in names
    assert echoed["result"] == "far"
    assert "blacklisted" in refused["error"]


def test_with_timeout_passes_results_and_raises_at_the_end() -> None:
    @with_timeout(0.05)
    async def slow(seconds: float) -> str:
        await asyncio.Event().wait() if seconds else None
        return "done"

    assert asyncio.run(slow(0)) == "done"
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(slow(PATIENCE))


def test_arguments_are_checked_at_the_first_call_that_starts_a_server(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"late": fake(lazy=True)})
    with ToolManager.from_config(path) as manager:
        assert call(manager, "late", "echo", {"text": [1]})["error"].startswith("Error executing tool echo: ")
        assert call(manager, "late", "echo", {"text": "x"})["result"] == "x"
