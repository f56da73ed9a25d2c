"""A program calls tools as its client does, and only what it returns and prints comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from tests.fakes.client import PATIENCE, StdioClient, fake, hub
from tests.fakes.processes import below
from tests.hub.test_over_a_network import network_hub, sdk
from tests.policy.access.test_a_person_is_asked_first import Person, did
from tests.policy.tries.counted import counting
from tests.upstream.asking.test_servers_ask_handshake_clients import QUESTION, asking

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

CODE: dict[str, Any] = {"code_mode": {"enabled": True, "writes": True}}
ERAS = ("handshake", "modern")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    directory = tmp_path_factory.mktemp("programs")
    tools = directory / "tools"
    tools.mkdir()
    (tools / "shapes.py").write_text(
        "from mcp_hub import tool\n\n"
        "@tool\ndef numbers(count: int, start: int = 0) -> list[int]:\n    return list(range(start, start + count))\n\n"
        "@tool\ndef facts() -> dict:\n    return {'name': 'ada', 'age': 36}\n\n"
        "VALUES = [3, 0.5, True, None, '[1]', '3', {'result': 3}, [{'a': 1}]]\n\n"
        "@tool\ndef value(index: int):\n    return VALUES[index]\n\n"
        "from mcp_hub.servers.local.tool_results import ToolResult\n\n"
        "@tool\ndef picture() -> ToolResult:\n"
        f"    image = {{'type': 'image', 'data': '{PIXEL}', 'mimeType': 'image/png'}}\n"
        "    return ToolResult([image])\n"
    )
    servers = {
        "fake": fake(),
        "denied": fake(disable_tools=["echo"]),
        "files": counting(directory),
    }
    root = {**CODE, "tools_dir": str(tools), "call_log": {"file": str(directory / "calls.jsonl")}}
    async with hub(directory, servers, **root) as client:
        client.directory = directory  # type: ignore[attr-defined]
        await client.tool_names()
        yield client


async def run(client: StdioClient, code: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        return await client.call("hub_run", {"code": code})


async def run_text(client: StdioClient, code: str) -> str:
    result = await run(client, code)
    assert not result.get("isError"), result
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


async def blamed(client: StdioClient, code: str) -> str:
    result = await run(client, code)
    assert result["isError"], result
    return str(result["content"][0]["text"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait, for a bounded time, until something holds that nobody tells of."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The JSON lines that have been written to a file as a whole."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def received_names(record: Path) -> list[str]:
    """Returns the tools that were called at a fake server with this record, and the other methods it received."""
    messages = whole_lines(record)
    return [
        message["params"]["name"] if message["method"] == "tools/call" else message["method"]
        for message in messages
        if "method" in message
    ]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("await fake__echo(text='hi')", "hi"),
        ("await fake__echo('positional')", "positional"),
        ("await call_tool('fake__echo', {'text': 'by name'})", "by name"),
        ("await local__numbers(3)", "[0,1,2]"),
        ("await local__numbers(count=2, start=5)", "[5,6]"),
        ("(await local__facts())['age'] + 1", "37"),
        ("print('a')\nprint('b')", "a\nb"),
        ("print('printed')\n'value'", "printed\nvalue"),
        ("x = 1", "The program returned nothing."),
        ("[math.floor(1.5), json.dumps({'a': 1}), (1, 2), {'k': {3}}]", '[1,"{\\"a\\": 1}",[1,2],{"k":[3]}]'),
        ("sum(await asyncio.gather(*[local__add_up(n) for n in range(3)]))", None),
        ("len(await asyncio.gather(*[fake__echo(text=str(n)) for n in range(10)]))", "10"),
        ("await asyncio.gather(fake__echo(text='a'), asyncio.sleep(0.01), fake__echo(text='b'))", '["a",null,"b"]'),
        ("import time\ntime.sleep(0.01)\nawait asyncio.sleep(0.01)\n'slept'", "slept"),
        ("called = fake__echo\nawait called(text='by another name')", "by another name"),
    ],
)
async def test_a_program_returns_a_value_computed_from_tool_results(
    client: StdioClient, code: str, answer: str | None
) -> None:
    if answer is None:
        assert "NameError: name 'local__add_up' is not defined" in await blamed(client, code)
    else:
        assert await run_text(client, code) == answer


@pytest.mark.parametrize(
    ("result", "code", "answer"),
    [
        ({"content": [{"type": "text", "text": '{"rows": [1, 2]}'}]}, "(await up__echo(text='x'))['rows'][1]", "2"),
        ({"content": [{"type": "text", "text": " {no JSON"}]}, "await up__echo(text='x')", " {no JSON"),
        ({"content": [{"type": "text", "text": t} for t in ("[1]", "[2]")]}, "await up__echo(text='x')", "[1]\n[2]"),
        ({"content": [], "structuredContent": {"a": {"b": 5}}}, "(await up__echo(text='x'))['a']['b']", "5"),
        (
            {"content": [{"type": "text", "text": "other"}], "structuredContent": {"result": [5, 6]}},
            "(await up__echo(text='x'))[1]",
            "6",
        ),
    ],
)
async def test_structured_content_and_a_single_json_text_become_values_in_a_program(
    tmp_path: Path, result: dict[str, Any], code: str, answer: str
) -> None:
    async with hub(tmp_path, {"up": fake("--result", json.dumps(result))}, **CODE) as client:
        assert await run_text(client, code) == answer


async def test_a_program_gets_what_a_local_tool_returned(client: StdioClient) -> None:
    values = [3, 0.5, True, None, "[1]", "3", {"result": 3}, [{"a": 1}]]
    code = f"[await local__value(index=i) for i in range({len(values)})]"
    assert json.loads(await run_text(client, code)) == values


async def test_the_rules_of_a_tool_apply_to_its_calls_in_a_program(tmp_path: Path) -> None:
    servers = {
        "files": counting(tmp_path),
        "up": fake(preset={"echo": {"text": "preset"}}),
        "rare": fake(limits={"rate": 0.001}),
    }
    calls = (
        ("files__scrape", {"url": "https://huggingface.co/datasets/squad"}),
        ("up__add", {"a": "no number", "b": 1}),
        ("up__echo", {"text": "sent"}),
        *[("rare__echo", {"text": "x"})] * 2,
    )
    code = (
        f"for name, arguments in {calls!r}:\n"
        "    try:\n        print(await call_tool(name, arguments))\n"
        "    except RuntimeError as error:\n        print(str(error).split(':')[0])"
    )
    async with hub(tmp_path, servers, **CODE) as client:
        outcomes = (await run_text(client, code)).split("\n")
    assert outcomes == ["guard_blocked", "invalid_parameters", "preset", "x", "overloaded"]
    assert did(tmp_path) == []


async def test_gathered_calls_of_a_program_run_concurrently(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with hub(tmp_path, {"slow": fake("--record", str(record))}, **CODE) as client:
        program = "await asyncio.gather(*[slow__sleep(seconds=600) for _ in range(20)])"
        client.start("tools/call", {"name": "hub_run", "arguments": {"code": program}}, "run")
        await until(lambda: received_names(record).count("sleep") == 20)  # none of them has ended
        client.notify("notifications/cancelled", {"requestId": "run"})


async def test_an_error_is_an_exception_with_the_hubs_code_that_a_program_can_catch(client: StdioClient) -> None:
    code = (
        "found = []\n"
        "tried = [('fake__echo', {'text': [1]}), ('fake__crash', {}), ('no__tool', {}), ('denied__echo', {})]\n"
        "for name, arguments in tried:\n"
        "    try:\n        await call_tool(name, arguments)\n"
        "    except RuntimeError as error:\n        found.append(str(error).split(':')[0])\n"
        "found"
    )
    assert json.loads(await run_text(client, code)) == ["invalid_parameters", "server_unavailable", "-32602", "-32602"]


async def test_an_uncaught_error_names_its_line_and_its_cause(client: StdioClient) -> None:
    text = await blamed(client, "a = 1\nb = await fake__fail()\nb")
    assert "line 2" in text
    assert "RuntimeError" in text
    assert "Calls of tools until then: 1." in text
    assert "line 1" in await blamed(client, "x = = 2")


@pytest.mark.parametrize("code", ["fake__echo(text='x')", "later = fake__echo(text='x')\nprint('done')\n'done'"])
async def test_a_call_without_await_is_an_error(client: StdioClient, code: str) -> None:
    text = await blamed(client, code)
    assert "without 'await' of calls, which were not made: fake__echo" in text
    assert text.endswith("Calls of tools until then: 0.")


async def test_a_programs_images_reach_the_model_only_if_returned(client: StdioClient) -> None:
    result = await run(client, "image = await local__picture()\nimage['type']")
    assert [block["type"] for block in result["content"]] == ["text"]
    assert PIXEL not in json.dumps(result)
    returned = await run(client, "[await local__picture()]")
    assert [block["type"] for block in returned["content"]] == ["text", "image"]
    assert returned["content"][1]["data"] == PIXEL


async def test_each_call_of_a_program_is_recorded_with_the_id_of_the_run(client: StdioClient) -> None:
    await run_text(client, "await fake__echo(text='first recorded')\nawait fake__echo(text='second recorded')")
    log = client.directory / "calls.jsonl"  # type: ignore[attr-defined]

    def of_run(record: dict[str, Any]) -> bool:
        return record["tool"] == "hub_run" and "second recorded" in str(record["arguments"])

    await until(lambda: any(map(of_run, whole_lines(log))))
    records = whole_lines(log)
    (run_record,) = filter(of_run, records)
    inner = [record["id"] for record in records if str(record["id"]).startswith(f"{run_record['id']}.")]
    assert inner == [f"{run_record['id']}.1", f"{run_record['id']}.2"]


async def test_in_code_mode_a_search_returns_python_stubs(client: StdioClient) -> None:
    stubs = await client.text("hub_search", {"query": "numbers", "server": "local", "detail": "signature"})
    assert "- async def local__numbers(count: int, start: int = ...): ..." in stubs
    assert "async def fake__echo(" in await client.text("hub_search", {"query": "echo"})
    assert "async def fake__echo(" in await run_text(client, "await hub_search(query='echo', detail='signature')")


@pytest.mark.parametrize("modern", [False, True])
async def test_a_tool_whose_name_is_not_an_identifier_is_called_by_its_stub_name(tmp_path: Path, modern: bool) -> None:
    schema = {"type": "object", "properties": {"from": {"type": "string"}}, "required": ["from"]}
    lists = tmp_path / "lists"
    output = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    lists.write_text(json.dumps({"tools": [{"name": "get-it.now", "inputSchema": schema, "outputSchema": output}]}))
    servers = {"my-server": fake("--lists", str(lists))}
    async with hub(tmp_path, servers, modern=modern, expose="code", code_mode={"writes": True}) as client:
        search, *_ = (await client.request("tools/list"))["tools"]
        assert "programs of hub_run" in search["description"]
        assert "hub_call" not in search["description"]
        stub = 'async def my_server__get_it_now(**_: {"from": str}) -> str: ...'
        assert stub in await client.text("hub_search", {"query": "get it now", "detail": "signature"})
        assert await run_text(client, "await my_server__get_it_now(**{'from': 'x'})") == "called get-it.now"


async def test_a_program_may_search_and_may_not_run_programs(client: StdioClient) -> None:
    assert "fake__echo" in await run_text(client, "await hub_search(query='echo')")
    assert "invalid_parameters" in await blamed(client, "await call_tool('hub_run', {'code': '1'})")


async def test_each_call_of_a_program_sends_progress(client: StdioClient) -> None:
    code = "await fake__echo(text='a')\nawait fake__echo(text='b')"
    await client.call("hub_run", {"code": code}, _meta={"progressToken": "run"})
    progress = [message["params"] for message in client.notifications if message["method"] == "notifications/progress"]
    assert [message["progress"] for message in progress if message["progressToken"] == "run"] == [1, 2]


@pytest.mark.parametrize("era", ERAS)
async def test_writes_of_a_program_need_confirmation_and_reads_do_not(tmp_path: Path, era: str) -> None:
    person = Person("once", "no")
    code = (
        "await files__read()\nawait files__effect()\n"
        "try:\n    await files__other()\nexcept RuntimeError as error:\n    print(error)"
    )
    async with (
        network_hub(tmp_path / "hub", {"files": counting(tmp_path)}, code_mode=True) as (_, base),
        sdk(f"{base}/mcp", era, elicitation_callback=person.elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("hub_run", {"code": code})
    assert not result.is_error, result
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text.startswith("permission_denied: The person did not allow the call")
    assert did(tmp_path) == ["read", "effect"]
    assert ["hub_run" in question.message for question in person.questions] == [True, True]


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_the_time_limit_of_a_program_is_suspended_during_a_server_request(
    tmp_path: Path, era: str, server: str
) -> None:
    short = {"code_mode": {"enabled": True, "writes": True, "seconds": "1s"}}
    servers = {"a": asking("--era", server, allow=["elicitation"])}
    messages = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        messages.append(params.message)
        async with sdk(f"{base}/mcp", era) as second_client:  # so long that the time of another program is up
            assert (await second_client.call_tool("hub_run", {"code": "while True:\n    pass"})).is_error
        return types.ElicitResult(action="accept", content={})

    async with (
        network_hub(tmp_path, servers, **short) as (_, base),
        sdk(f"{base}/mcp", era, elicitation_callback=elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        await client.call_tool("hub_run", {"code": "1"})  # starts the process
        result = await client.call_tool("hub_run", {"code": f"await a__ask(**{QUESTION!r})\n'answered'"})
    assert not result.is_error, result
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text == "answered"
    assert messages == ["a asks: who?"]


async def test_the_time_limit_of_an_ended_call_is_not_resumed(tmp_path: Path) -> None:
    person = Person("once")
    servers = {
        "files": counting(tmp_path, tools={"read": {"timeout": "1s"}}, confirm=["effect"]),
        "slow": fake(timeout="2s"),
    }
    code = (
        "await files__read()\nawait files__effect()\n"
        "try:\n    await slow__sleep(seconds=600)\nexcept RuntimeError as error:\n    print(str(error).split(':')[0])"
    )
    async with (
        network_hub(tmp_path / "hub", servers, **CODE) as (_, base),
        sdk(f"{base}/mcp", "handshake", elicitation_callback=person.elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("hub_run", {"code": code})
    assert not result.is_error, result
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text == "timeout"


async def test_writes_of_a_program_are_refused_if_the_client_cannot_be_asked(tmp_path: Path) -> None:
    async with hub(tmp_path, {"files": counting(tmp_path)}, code_mode=True) as client:
        assert await run_text(client, "await files__read()") == "read done"
        assert "permission_denied" in await blamed(client, "await files__effect()")
    assert did(tmp_path) == ["read"]


async def test_expose_code_lists_only_the_hubs_own_tools(tmp_path: Path) -> None:
    async with hub(tmp_path, {"fake": fake()}, expose="code", code_mode={"writes": True}) as client:
        assert await client.tool_names() == ["hub_search", "hub_run", "hub_call"]
        assert await run_text(client, "await fake__add(a=1, b=2)") == "3"
        assert await client.text("fake__echo", {"text": "directly"}) == "directly"


async def test_hub_run_is_unknown_without_code_mode(tmp_path: Path) -> None:
    async with hub(tmp_path, {"fake": fake()}, expose="search") as client:
        assert "hub_run" not in await client.tool_names()
        with pytest.raises(Exception, match="Unknown tool"):
            await client.call("hub_run", {"code": "1"})


async def test_no_worker_process_starts_before_the_first_program(tmp_path: Path) -> None:
    async with hub(tmp_path, {"fake": fake()}, **CODE) as client:
        await client.tool_names()
        assert below(client.process.pid, "programs") == []
        assert await run_text(client, "1") == "1"
        assert len(below(client.process.pid, "programs")) == 1
