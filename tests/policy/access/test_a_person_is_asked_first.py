"""`confirm`: a person is asked before the calls that the configuration names, by the client's elicitation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_hub.config.models import Listen
from mcp_hub.downstream.app import App, serve_network
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.policy import confirm
from tests.fakes.client import PATIENCE, fake, hub, write_config
from tests.fakes.network import network_hub, sdk
from tests.policy.tries.counted import counting
from tests.upstream.asking.test_servers_ask_handshake_clients import QUESTION, asking

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

ERAS = ("handshake", "modern")
TOKEN, OTHER_TOKEN = "a" * 40, "b" * 40


class Person:
    """Answers with what it is told, and remembers what it was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[Any] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.questions.append(params)
        answer = self.answers.pop(0)
        if answer is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"allow": answer})


@asynccontextmanager
async def client_of(
    directory: Path, era: str, person: Person | None, servers: dict[str, Any], **root: Any
) -> AsyncIterator[Client]:
    async with network_hub(directory, servers, **root) as (_, base):
        options: dict[str, Any] = {} if person is None else {"elicitation_callback": person.elicit}
        async with sdk(f"{base}/mcp", era, **options) as client:
            yield client


async def outcome(client: Client, name: str, arguments: dict[str, Any] | None = None) -> str:
    """`ok`, or the code of the error."""
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool(name, arguments or {})
    return str((result.meta or {})["mcp-hub/error"]["code"]) if result.is_error else "ok"


def did(directory: Path) -> list[str]:
    log = directory / "log"
    return [line.removeprefix("did ") for line in log.read_text().split("\n") if "did" in line] if log.exists() else []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("answer", "code"), [("once", "ok"), ("no", "permission_denied"), (None, "permission_denied")])
async def test_a_call_is_executed_only_if_the_person_allows_it(
    tmp_path: Path, era: str, answer: str | None, code: str
) -> None:
    person = Person(answer)
    servers = {"files": counting(tmp_path)}
    async with client_of(tmp_path / "hub", era, person, servers, confirm=["files/effect"]) as client:
        assert await outcome(client, "files__effect", {"path": "/etc", "password": "hunter2-hunter2"}) == code
        assert did(tmp_path) == (["effect"] if code == "ok" else [])
    (question,) = person.questions
    assert "'effect' of 'files'" in question.message
    assert '"path":"/etc"' in question.message
    assert '"password":"hunter2-hunter2"' in question.message  # what only looks like a secret may be a command


@pytest.mark.parametrize("era", ERAS)
async def test_allow_once_asks_again_and_allow_for_this_session_does_not(tmp_path: Path, era: str) -> None:
    person = Person("once", "for this session")
    servers = {"files": counting(tmp_path)}
    listen = {"token": TOKEN}
    async with (
        network_hub(tmp_path / "hub", servers, confirm=["effect"], listen=listen) as (_, base),
        with_token(f"{base}/mcp", era, TOKEN, person) as client,
    ):
        for _ in range(4):
            assert await outcome(client, "files__effect") == "ok"
    assert len(person.questions) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_confirmation_of_one_caller_does_not_count_for_another(tmp_path: Path, era: str) -> None:
    first, second = Person("for this session"), Person("no")
    listen = {"principals": {"ann": {"token": TOKEN}, "bob": {"token": OTHER_TOKEN}}}
    servers = {"files": counting(tmp_path)}
    async with network_hub(tmp_path / "hub", servers, confirm=["effect"], listen=listen) as (_, base):
        async with with_token(f"{base}/mcp", era, TOKEN, first) as client:
            assert await outcome(client, "files__effect") == "ok"
        async with with_token(f"{base}/mcp", era, OTHER_TOKEN, second) as client:
            assert await outcome(client, "files__effect") == "permission_denied"
    assert len(second.questions) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answer", "read_in", "note"),
    [
        (types.ElicitResult(action="decline"), 60, "confirm: no answer, the client said decline at once"),
        (types.ElicitResult(action="cancel"), 60, "confirm: no answer, the client said cancel at once"),
        (types.ElicitResult(action="decline"), 0, "confirm: decline"),
        (types.ElicitResult(action="cancel"), 0, "confirm: cancel"),
        (types.ElicitResult(action="accept", content={}), 60, "confirm: accept without a choice"),
        (types.ElicitResult(action="accept", content={"allow": "no"}), 60, "confirm: no"),
    ],
)
async def test_only_an_explicit_no_counts_as_the_refusal_of_a_person(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    era: str,
    answer: types.ElicitResult,
    read_in: float,
    note: str,
) -> None:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return answer

    monkeypatch.setattr(confirm, "AT_ONCE", read_in)
    records: list[dict[str, Any]] = []
    config = load_config(write_config(tmp_path, {"files": counting(tmp_path)}, confirm=["effect"]))
    async with (
        Engine(config, record=records.append) as engine,
        served_in_process(engine) as base,
        sdk(f"{base}/mcp", era, elicitation_callback=elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("files__effect", {})
        assert await outcome(client, "files__other") == "ok"
    assert did(tmp_path) == ["other"]
    assert [call["notes"] for call in records if call.get("verdict") == "refused"] == [[note]]
    assert isinstance(result.content[0], types.TextContent)
    assert ("The person did not" in result.content[0].text) == (note == "confirm: no")
    assert ("Nobody answered" in result.content[0].text) == note.startswith("confirm: no answer")


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_declined_question_of_a_server_ends_no_call(tmp_path: Path, server: str, action: Any) -> None:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    async with (
        network_hub(tmp_path, {"a": asking("--era", server, allow=["elicitation"])}) as (_, base),
        sdk(f"{base}/mcp", "handshake", elicitation_callback=elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        result = await client.call_tool("a__ask", QUESTION)
    assert not result.is_error
    assert action in str(result.content)


async def test_a_new_session_asks_for_confirmation_again(tmp_path: Path) -> None:
    first, second = Person("for this session"), Person("no")
    log = tmp_path / "calls.jsonl"
    root: dict[str, Any] = {"confirm": ["effect"], "call_log": {"file": str(log)}}
    async with (
        network_hub(tmp_path / "hub", {"files": counting(tmp_path)}, **root) as (_, base),
        sdk(f"{base}/mcp", "handshake", elicitation_callback=first.elicit) as client,
    ):
        assert [await outcome(client, "files__effect") for _ in range(2)] == ["ok", "ok"]
        async with sdk(f"{base}/mcp", "handshake", elicitation_callback=second.elicit) as another:
            assert await outcome(another, "files__effect") == "permission_denied"
        assert await outcome(client, "files__effect") == "ok"
    assert (len(first.questions), len(second.questions)) == (1, 1)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    calls = [(entry["verdict"], entry["policy"], entry["notes"]) for entry in records if entry.get("tool") == "effect"]
    confirmed, allowed = ("ok", None, ["confirm: for this session"]), ("ok", None, [])
    assert calls == [confirmed, allowed, ("refused", "confirm", ["confirm: no"]), allowed]


async def test_anonymous_modern_clients_are_not_offered_for_this_session(tmp_path: Path) -> None:
    person = Person("for this session", "once")
    servers = {"files": counting(tmp_path)}
    async with client_of(tmp_path / "hub", "modern", person, servers, confirm=["effect"]) as client:
        assert await outcome(client, "files__effect") == "permission_denied"
        assert await outcome(client, "files__effect") == "ok"
    assert "for this session" not in json.dumps(person.questions[0].requested_schema)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_of_a_client_without_elicitation_is_refused_and_names_the_setting(
    tmp_path: Path, era: str
) -> None:
    servers = {"files": counting(tmp_path, confirm="effect")}
    async with client_of(tmp_path / "hub", era, None, servers) as client:
        result = await client.call_tool("files__effect", {})
        assert result.is_error
        assert result.meta is not None
        assert result.meta["mcp-hub/error"]["code"] == "permission_denied"
        assert isinstance(result.content[0], types.TextContent)
        assert "Use a client that has elicitation, or change the setting. (setting: servers.files.confirm)" in (
            result.content[0].text
        )
        assert await outcome(client, "files__other") == "ok"
    assert did(tmp_path) == ["other"]


@pytest.mark.parametrize("name", ["effect", "files/effect", "files/eff*", "files__effect", "files__eff*"])
@pytest.mark.parametrize("of_server", [False, True])
async def test_confirm_matches_a_tool_by_any_of_its_names(tmp_path: Path, name: str, of_server: bool) -> None:
    entry, root = ({"confirm": [name]}, {}) if of_server else ({}, {"confirm": [name]})
    servers = {"files": counting(tmp_path, **entry), "fake": fake()}
    async with hub(tmp_path, servers, **root) as client:
        refused = await client.call("files__effect")
        assert refused["_meta"]["mcp-hub/error"]["code"] == "permission_denied"
        assert await client.text("files__other") == "other done"
        assert await client.text("fake__echo", {"text": "x"}) == "x"
    assert did(tmp_path) == ["other"]


async def test_a_tool_counts_as_destructive_unless_annotated_read_only_or_non_destructive(tmp_path: Path) -> None:
    person = Person("no")
    servers = {"files": counting(tmp_path), "fake": fake()}
    async with client_of(tmp_path / "hub", "handshake", person, servers, confirm="destructive") as client:
        assert await outcome(client, "files__read") == "ok"
        assert await outcome(client, "fake__echo", {"text": "x"}) == "ok"
        assert await outcome(client, "files__effect") == "permission_denied"
    assert len(person.questions) == 1


async def test_confirm_of_a_profile_applies_only_to_its_principals(tmp_path: Path) -> None:
    person = Person("no")
    root: dict[str, Any] = {
        "listen": {"principals": {"guest": {"token": TOKEN, "profile": "careful"}, "owner": {"token": OTHER_TOKEN}}},
        "profiles": {"careful": {"tools": ["*"], "confirm": ["files/effect"]}},
    }
    async with network_hub(tmp_path / "hub", {"files": counting(tmp_path)}, **root) as (_, base):
        async with with_token(f"{base}/mcp", "modern", TOKEN, person) as client:
            assert await outcome(client, "files__effect") == "permission_denied"
        async with with_token(f"{base}/mcp", "modern", OTHER_TOKEN, None) as client:
            assert await outcome(client, "files__effect") == "ok"


@pytest.mark.parametrize("era", ERAS)
async def test_hub_call_asks_nobody_about_what_the_configuration_does_not_confirm(tmp_path: Path, era: str) -> None:
    person, servers = Person(), {"files": counting(tmp_path)}
    for elicits in (person, None):
        async with client_of(tmp_path / "hub", era, elicits, servers, meta_tools=True) as client:
            assert await outcome(client, "hub_call", {"tool": "files__effect"}) == "ok"
    assert not person.questions
    assert did(tmp_path) == ["effect", "effect"]


async def test_a_denied_tool_is_unknown_and_asks_for_no_confirmation(tmp_path: Path) -> None:
    person = Person()
    root: dict[str, Any] = {"confirm": "destructive", "meta_tools": True, "blacklist": ["files/effect"]}
    async with client_of(tmp_path / "hub", "handshake", person, {"files": counting(tmp_path)}, **root) as client:
        for name, arguments in (("files__effect", {}), ("hub_call", {"tool": "files__effect"})):
            with pytest.raises(Exception, match="Unknown tool"):
                await client.call_tool(name, arguments)
    assert not person.questions


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_confirmed_call_asks_once_even_if_its_server_sends_a_request(
    tmp_path: Path, era: str, server: str
) -> None:
    person = Person("once", "anything")
    servers = {"a": asking("--era", server, allow=["elicitation"])}
    async with client_of(tmp_path / "hub", era, person, servers, confirm=["a/ask"]) as client:
        async with asyncio.timeout(PATIENCE):
            result = await client.call_tool("a__ask", QUESTION)
        assert not result.is_error, result
    assert [params.message for params in person.questions][1:] == ["a asks: who?"]
    assert len(person.questions) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_is_refused_if_its_confirmation_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr(confirm, "CONFIRM_WAIT", 0.05)
    closed = asyncio.Event()

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        await asyncio.wait_for(refused.wait() if era == "modern" else closed.wait(), PATIENCE)
        return types.ElicitResult(action="accept", content={"allow": "once"})

    records: list[dict[str, Any]] = []
    refused = asyncio.Event()

    def record(entry: dict[str, Any]) -> None:
        records.append(entry)
        refused.set()

    config = load_config(write_config(tmp_path, {"files": counting(tmp_path)}, confirm=["effect"]))
    async with Engine(config, record=record) as engine, served_in_process(engine) as base:
        async with sdk(f"{base}/mcp", era, elicitation_callback=elicit) as client:
            assert await outcome(client, "files__effect") == "permission_denied"
        closed.set()
    assert did(tmp_path) == []
    (refusal,) = [call for call in records if call.get("verdict") == "refused"]
    assert (refusal["policy"], refusal["code"]) == ("confirm", "permission_denied")
    assert [question["outcome"] for question in refusal["questions"]] == ["unanswered"]


@asynccontextmanager
async def served_in_process(engine: Engine) -> AsyncIterator[str]:
    """The URL of a listener for a hub of this process."""
    listen, stop = Listen(port=0), asyncio.Event()
    bases: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    app = App(Dispatcher(engine), listen, sse=False)
    serving = asyncio.create_task(serve_network(app, listen, stop=stop, ready=bases.set_result))
    try:
        async with asyncio.timeout(PATIENCE):
            yield (await bases)[0]
    finally:
        stop.set()
        await serving


@asynccontextmanager
async def with_token(url: str, era: str, token: str, person: Person | None) -> AsyncIterator[Client]:
    options: dict[str, Any] = {} if person is None else {"elicitation_callback": person.elicit}
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode="legacy" if era == "handshake" else "auto", **options) as client:
            yield client
