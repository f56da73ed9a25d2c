"""`defaults` of the configuration hold for every server, wherever it comes from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_hub import ToolExecutor, ToolManager
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import load_config
from mcp_hub.policy.breaker import BREAKER
from mcp_hub.policy.limits import LIMITS
from mcp_hub.policy.retry import RETRY
from tests.config.discovery.written import function, write
from tests.fakes.client import fake, write_config
from tests.fakes.json_api import json_api

API = "http://127.0.0.1:9/x"
TRUNCATE = {"step": "truncate", "arguments": {"max_chars": 40}}
DEFAULTS = {
    "timeout": "7s", "deadlines": {"connect": "50s", "list": 4}, "idle_timeout": 6, "postprocess": [TRUNCATE],
    "max_result_bytes": "2kb", "retry": 3, "limits": 5, "breaker": {"failures": 9}, "health": {"ping": 11},
    "validate_arguments": "strict",
}  # fmt: skip


def assert_they_hold(server: Server) -> None:
    deadlines = server.deadlines
    assert (deadlines.call, deadlines.connect, deadlines.list, deadlines.idle) == (7, 50, 4, 6), server.id
    assert [step.step for step in server.postprocess] == ["truncate"], server.id
    assert (RETRY.of(server).attempts, LIMITS.of(server).at_once, BREAKER.of(server).failures) == (3, 5, 9), server.id
    assert (server.health.ping, server.max_result_bytes, server.validate_arguments) == (11, 2000, "strict"), server.id


def by_name(config: Config) -> dict[str, Server]:
    return {server.id: server for server in config.servers}


def test_defaults_apply_to_servers_of_every_folder_and_of_a_program(tmp_path: Path) -> None:
    write(tmp_path, "tools/native/search.yaml", f"api_url: {API}\n")
    function(tmp_path, "tools/builtin/one.py", "one")
    write(tmp_path, "tools/mcp/bare.yaml", fake())
    write(tmp_path, "tools/mcp/more.json", {"mcpServers": {"more": fake()}})
    path = write_config(tmp_path, {"first": fake()}, defaults=DEFAULTS)
    manager = ToolManager([{"name": "given", "params": fake()}], config=path)
    manager.tool_func(lambda: "anonymous")
    manager.hub.add_server_sync("added", {**fake(), "lazy": True})
    servers = by_name(manager.hub.config)
    assert {*servers} == {"first", "native", "local", "bare", "more", "given", "added", "local_"}
    for server in servers.values():
        assert_they_hold(server)
    manager.close()


def test_a_servers_own_settings_override_the_defaults(tmp_path: Path) -> None:
    write(tmp_path, "tools/native/search.yaml", f"api_url: {API}\ntimeout: 3\n")
    write(tmp_path, "tools/mcp/own.yaml", {**fake(), "timeout": 2, "retry": "off", "postprocess": []})
    write(tmp_path, "tools/mcp/installed.yaml", "command: npx\nargs: [some-server@1.0.0]\n")
    write(tmp_path, "tools/mcp/theirs.json", {"defaults": {"timeout": 1}, "servers": {"theirs": fake()}})
    manager = ToolManager(config=write_config(tmp_path, {"first": fake()}, defaults=DEFAULTS))
    manager.hub.add_server_unstarted("added", {**fake(), "timeout": 5})
    servers = by_name(manager.hub.config)
    assert servers["native"].tools["search"].timeout == 3
    assert (servers["own"].deadlines.call, RETRY.of(servers["own"]).attempts, servers["own"].postprocess) == (2, 1, ())
    assert LIMITS.of(servers["own"]).at_once == 5
    assert servers["installed"].deadlines.connect == 50
    assert (servers["theirs"].deadlines.call, servers["theirs"].deadlines.list) == (1, 4)
    assert (servers["added"].deadlines.call, servers["added"].deadlines.connect) == (5, 50)
    manager.close()


def test_an_empty_default_namespace_gives_tools_of_every_folder_and_of_a_program_their_own_names(
    tmp_path: Path,
) -> None:
    write(tmp_path, "tools/native/search.yaml", f"api_url: {API}\n")
    function(tmp_path, "tools/builtin/one.py", "one")
    write(tmp_path, "tools/mcp/bare.yaml", fake("--tools", "1"))
    write(tmp_path, "tools/mcp/own.yaml", {**fake(), "namespace": "mine"})
    config = write_config(tmp_path, {"first": fake("--tools", "2")}, defaults={"namespace": ""})
    with ToolManager([{"name": "given", "params": fake("--tools", "3")}], config=config) as tools:
        tools.tool_func(here)
        names = [tool.name for tool in tools.load_tools()]
    added = [name for name in names if name in {"search", "one", "here", "t0", "t1", "t2"}]
    assert added == ["t0", "t1", "search", "one", "t2", "here"]
    assert "mine__echo" in names
    assert len(names) == len(set(names))


def here() -> int:
    return 1


def test_a_native_tool_has_a_default_deadline_of_one_minute(tmp_path: Path) -> None:
    write(tmp_path, "tools/native/search.yaml", f"api_url: {API}\n")
    assert by_name(load_config(write_config(tmp_path, {})))["native"].deadlines.call == 60


def test_invalid_defaults_are_a_configuration_error_even_without_entries(tmp_path: Path) -> None:
    function(tmp_path, "tools/builtin/one.py", "one")
    with pytest.raises(ConfigError, match=r"defaults\.timeout"):
        load_config(write_config(tmp_path, {}, defaults={"timeout": "soon"}))


@pytest.fixture
def silent_api() -> Iterator[str]:
    """A REST API that does not answer before the end of the test."""
    with json_api(lambda *_: None) as url:
        yield f"{url}/"


def test_every_kind_of_tool_ends_at_the_default_deadline_with_the_code_timeout(tmp_path: Path, silent_api: str) -> None:
    """Seed 4.5: a call that takes longer than its `timeout` returns the error `timeout`."""
    write(tmp_path, "tools/native/search.yaml", f"api_url: {silent_api}\n")
    write(
        tmp_path,
        "tools/builtin/slow.py",
        "import time\nfrom mcp_hub import tool\n\n@tool\ndef slow() -> None:\n    time.sleep(20)\n",
    )
    write(tmp_path, "tools/mcp/more.yaml", fake())
    path = write_config(tmp_path, {"first": fake()}, defaults={"timeout": "1s"})
    with ToolManager(config=path) as tools:
        finished = threading.Event()

        @tools.tool_func
        def here() -> None:
            finished.wait(20)

        sleep = {"seconds": 20}
        calls = [("search", {}), ("slow", {}), ("more/sleep", sleep), ("first/sleep", sleep), ("here", {})]
        done = ToolExecutor(tools).execute_many(calls, parallel=True)
        finished.set()
    assert [(message.code, message.output) for message in done] == [("timeout", None)] * 5
    assert all(message.error is not None and message.error.startswith("timeout: ") for message in done)


def test_default_post_processing_reaches_every_kind_of_tool(tmp_path: Path) -> None:
    long = "x" * 400
    write(
        tmp_path,
        "tools/builtin/long.py",
        f"from mcp_hub import tool\n\n@tool\ndef long() -> str:\n    return {long!r}\n",
    )
    write(tmp_path, "tools/mcp/more.yaml", fake())
    with ToolManager(config=write_config(tmp_path, {}, defaults={"postprocess": [TRUNCATE]})) as tools:

        @tools.tool_func
        def here() -> str:
            return long

        done = ToolExecutor(tools).execute_many([("long", {}), ("echo", {"text": long}), ("here", {})])
    assert [message.error for message in done] == [None] * 3
    assert all(len(message.output) < 100 for message in done), [message.output for message in done]
