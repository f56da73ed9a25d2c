"""AgentScope's Toolkit: the servers of its configuration, and the tools for programs and text files of this machine."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import mcp_hub
from mcp_hub import Toolkit
from mcp_hub.security.file_access import RAW_TEXT_VARIABLE
from tests.fakes.forks import python_with_sdk
from tests.library.toolkits import add, block, chunks, names, parameters, text

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[2] / "examples" / "demo_server.py"


def demo() -> dict[str, Any]:
    """The entry of the server of the examples."""
    rules = {"disable_tools": ["divide"], "preset": {"search": {"limit": 1}}}
    return {"command": python_with_sdk(), "args": [str(SERVER)], **rules}


TEXT_FILE_TOOLS = ("view_text_file", "write_text_file", "insert_text_file")


async def test_a_toolkit_of_a_configuration_lists_and_calls_its_servers() -> None:
    config: dict[str, Any] = {
        "servers": {"code": {"builtin": "code"}, "demo": demo(), "dead": {"command": "no-such-command"}},
        "groups": {"talk": {"description": "Talking.", "tools": ["demo/say"]}},
    }
    async with Toolkit(config=config) as toolkit:
        toolkit.register_tool_function(add)
        listed = ["add", "code__execute_python_code", "demo__multiply", "demo__search", "demo__show"]
        assert names(toolkit) == listed
        assert list(toolkit.tools) == ["add"]
        assert names(toolkit, ["other"]) == []
        assert names(toolkit, ["basic"]) == listed
        assert list(parameters(toolkit, "demo__search")["properties"]) == ["query", "key"]
        output = await text(toolkit, "code__execute_python_code", code="print(6 * 7)")
        assert output == "<returncode>0</returncode><stdout>42\n</stdout><stderr></stderr>"
        assert await text(toolkit, "demo__search", query="x", limit=9) == '{"key": "none", "found": ["x 1"]}'
        assert (await text(toolkit, "demo__multiply", a="x")).startswith("Error: ")
        off = "FunctionInactiveError: The function 'demo__say' is in the inactive group 'talk'. "
        assert (await text(toolkit, "demo__say", text="hello")).startswith(off)
        for name in ("demo__divide", "demo__nothing", "dead__any"):
            assert (await text(toolkit, name)).startswith("FunctionNotFoundError: ")
        toolkit.hub.groups.update("talk", active=True)
        assert "demo__say" in names(toolkit)
        assert await text(toolkit, "demo__say", text="hello") == "The server says: hello"
        await toolkit.remove_mcp_clients(["demo"])
        assert names(toolkit) == ["add", "code__execute_python_code"]
        assert (await text(toolkit, "demo__say", text="hello")).startswith("FunctionNotFoundError: ")
        toolkit.hub.groups.update("talk", active=False)
        toolkit.create_tool_group("talking", "Of the program.")
        assert names(toolkit) == ["add", "code__execute_python_code"]


async def test_a_configured_tool_can_be_called_before_it_was_listed() -> None:
    async with Toolkit(config={"servers": {"demo": demo()}}) as toolkit:
        assert await text(toolkit, "demo__multiply", a=21) == "42"


async def test_a_toolkit_has_no_machine_tools_unless_they_are_registered() -> None:
    """Seed 001, lines 68 and 120: a toolkit must not have them by default."""
    async with Toolkit() as toolkit:
        assert names(toolkit) == []
        for name in ("execute_python_code", *TEXT_FILE_TOOLS):
            assert (await text(toolkit, name)).startswith("FunctionNotFoundError: ")


@pytest.mark.parametrize("policy", ["deny", "warn", "allow", None, "nonsense"])
async def test_text_file_tools_read_the_policy_variable_at_each_call_and_are_annotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, policy: str | None
) -> None:
    """Seed 001, lines 121 to 124; `allow` does not warn (requirements B16)."""
    caplog.set_level(logging.WARNING)
    file = tmp_path / "a.txt"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_text_file", {"content": "one\n"}),
        ("view_text_file", {}),
        ("insert_text_file", {"content": "two", "line_number": 2}),
    ]
    monkeypatch.setenv(RAW_TEXT_VARIABLE, "deny")
    async with Toolkit() as toolkit:
        for name in TEXT_FILE_TOOLS:
            toolkit.register_tool_function(getattr(mcp_hub, name))
        for name, _ in calls:
            assert (await text(toolkit, name, file_path=str(file), content="", line_number=1)) != ""
        if policy is None:
            monkeypatch.delenv(RAW_TEXT_VARIABLE)
        else:
            monkeypatch.setenv(RAW_TEXT_VARIABLE, policy)
        in_force = policy if policy in ("deny", "allow") else "warn"
        for name, arguments in calls:
            caplog.clear()
            (chunk,) = await chunks(toolkit, name, file_path=str(file), **arguments)
            assert chunk.metadata == {
                "dangerous_io": True,
                "policy": in_force,
                "tool": name,
                "path": str(file),
                "blocked": in_force == "deny",
                "reason": "bypass_filesystem",
            }
            refusal = "Blocked by policy: raw OS file access is disabled. Use FileSystem service tools instead."
            assert (chunk.content[0]["text"] == refusal) == (in_force == "deny")
            assert bool([record for record in caplog.records if name in record.getMessage()]) == (in_force == "warn")
    assert file.exists() == (in_force != "deny")
    assert in_force == "deny" or file.read_text() == "one\ntwo\n"


async def test_the_built_in_text_file_server_reads_the_programs_policy_variable_at_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    outcomes = []
    async with Toolkit(config={"servers": {"raw": {"builtin": "text_files"}}}) as toolkit:
        for policy in ("allow", "deny", "warn", "deny"):
            monkeypatch.setenv(RAW_TEXT_VARIABLE, policy)
            outcome = await toolkit.hub.call("raw", "view_text_file", {"file_path": str(file)})
            outcomes.append((outcome["_meta"]["policy"], outcome["_meta"]["blocked"]))
    assert outcomes == [("allow", False), ("deny", True), ("warn", False), ("deny", True)]


async def test_calls_at_once_all_get_the_policy_that_the_program_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "a.txt").write_text("one\n")
    async with Toolkit(config={"servers": {"raw": {"builtin": "text_files"}}}) as toolkit:
        for policy in ("allow", "deny"):
            monkeypatch.setenv(RAW_TEXT_VARIABLE, policy)
            calls = (toolkit.hub.call("raw", "view_text_file", {"file_path": str(file)}) for _ in range(3))
            outcomes = await asyncio.gather(*calls)
            assert [outcome["_meta"]["policy"] for outcome in outcomes] == [policy] * 3


async def test_child_programs_end_with_their_call_and_inherit_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 004, section 5: output, errors and the return code, and an end at the time limit."""
    monkeypatch.setenv("CANARY_API_KEY", "canary-of-the-program")
    async with Toolkit() as toolkit:
        toolkit.register_tool_function(mcp_hub.execute_python_code)
        toolkit.register_tool_function(mcp_hub.execute_shell_command)
        code = "import os; print(os.environ.get('CANARY_API_KEY'), 'x' * 200_000)"
        output = await text(toolkit, "execute_python_code", code=code, timeout=60)
        assert output.startswith("<returncode>0</returncode><stdout>None xxx")
        assert output.count("x") == 200_000
        timed_out = await text(toolkit, "execute_shell_command", command="sleep 600; echo never", timeout=1)
        sentence = "TimeoutError: The command execution exceeded the timeout of 1 seconds."
        assert timed_out == f"<returncode>-1</returncode><stdout></stdout><stderr>{sentence}</stderr>"
        async for chunk in toolkit.tools["execute_shell_command"].call(arguments={"command": "echo called"}):
            assert chunk.content[0]["text"] == "<returncode>0</returncode><stdout>called\n</stdout><stderr></stderr>"
    directly = await mcp_hub.execute_shell_command("exit 3")
    assert directly.content == [
        {"type": "text", "text": "<returncode>3</returncode><stdout></stdout><stderr></stderr>"}
    ]


async def test_the_id_of_a_block_is_in_the_record_of_its_call(
    toolkit: Toolkit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mcp_hub.calls")
    toolkit.register_tool_function(add, preset_kwargs={"b": 40})
    toolkit.create_tool_group("off", "Off.")
    toolkit.register_tool_function(add, "off", {"b": 1}, func_name="late")
    for name in ("add", "late", "absent"):
        async for _ in toolkit.call_tool_function({**block(name, a=1, b=5), "id": f"of-{name}"}):
            pass
    records = [entry.getMessage() for entry in caplog.records if entry.name == "mcp_hub.calls"]
    assert [f'"id":"of-{name}"' in record for name, record in zip(("add", "late", "absent"), records, strict=True)] == [
        True
    ] * 3
    assert not [record for record in records[:2] if '"b"' in record]
