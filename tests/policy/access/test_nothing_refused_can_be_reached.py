"""No name, spelling, method or era leads to what a rule refuses; the answer is that for a name nobody has."""

from __future__ import annotations

import asyncio
import contextlib
import json
import unicodedata
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.client import PATIENCE, StdioClient, fake, hub
from tests.tiers import EXAMPLES

TOOLS = ("add", "crash", "echo", "pid")
PROMPT = "greet"
RESOURCE = "fake://shut/one"
THROUGH_TEMPLATE = "fake://shut/item/secret"
SKILL = "fake://shut/hidden/SKILL.md"
OF_SKILL = "fake://shut/hidden/notes.md"
REFUSED = {*TOOLS, PROMPT, RESOURCE, THROUGH_TEMPLATE, SKILL, OF_SKILL}
NAMES = sorted({
    *TOOLS, *(f"shut__{tool}" for tool in TOOLS), "shut__say", "say", "shut/add", "shut.add", "shut__shut__add",
    PROMPT, f"shut__{PROMPT}",
    RESOURCE, THROUGH_TEMPLATE, f"mcp-hub://shut/{RESOURCE}", f"mcp-hub://shut/{THROUGH_TEMPLATE}",
    SKILL, OF_SKILL, f"mcp-hub://shut/{SKILL}", f"mcp-hub://shut/{OF_SKILL}",
    "fake://shut/item/x/../secret", "fake://shut/item/./secret",
})  # fmt: skip


@dataclass
class Peers:
    runner: asyncio.Runner
    clients: dict[str, StdioClient]
    record: Path

    def answer(self, era: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The whole response."""

        async def ask() -> dict[str, Any]:
            async with asyncio.timeout(PATIENCE):
                message: dict[str, Any] = await self.clients[era].start(method, params)
                return message

        return self.runner.run(ask())

    def assert_unknown(self, era: str, method: str, name: str, unknown: str) -> None:
        """The answer for a name is that for an unknown one, byte for byte."""
        first = self.answer(era, method, request_of(method, name))
        second = self.answer(era, method, request_of(method, unknown))
        assert "error" in second
        assert json.dumps(first["error"]) == json.dumps(second["error"]).replace(unknown, name)

    def reached(self) -> list[tuple[str, str]]:
        """(method, name) of every act the guarded server was asked for."""
        acts = []
        for line in self.record.read_text().splitlines():
            message = json.loads(line)
            params = message.get("params") or {}
            reference = params.get("ref") or {}
            name = params.get("name") or params.get("uri") or reference.get("name") or reference.get("uri")
            if name is not None:
                acts.append((message["method"], name))
        return acts


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    directory = tmp_path_factory.mktemp("access")
    record = directory / "record"
    servers = {
        "shut": fake(
            "--name", "shut", "--record", str(record), "--era", "dual",
            "--skills", json.dumps([SKILL, "fake://shut/open/SKILL.md"]),
            disable_tools=["add", "cra*"],
            tools={"echo": {"name": "say", "enabled": False}},
            disable_prompts=[PROMPT],
            disable_resources=[RESOURCE, THROUGH_TEMPLATE, OF_SKILL],
        ),
        "open": fake("--name", "open"),
    }  # fmt: skip
    root = {"blacklist": [["shut", "pid"], ["sh*", "fail"]], "on_conflict": "rename", "meta_tools": True}
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        clients = {}
        for era in ("handshake", "modern"):
            (directory / era).mkdir()
            client = hub(directory / era, servers, modern=era == "modern", **root)
            clients[era] = runner.run(stack.enter_async_context(client))
            runner.run(clients[era].tool_names())
        yield Peers(runner, clients, record)
        runner.run(stack.aclose())


def spelled(name: str) -> st.SearchStrategy[str]:
    """Other ways to write a name, some of which a careless reader would take for it."""
    spellings = [
        name,
        name.upper(),
        name.title(),
        name + " ",
        " " + name,
        name + "\0",
        name.replace("_", "-"),
        name.replace("__", "_"),
        name.replace("a", "\u0430"),
        name.replace("e", "\u0435"),
        unicodedata.normalize("NFKD", name),
        "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in name),
        name + "\u200b",
        "\u202e" + name,
        urllib.parse.quote(name, safe=""),
        urllib.parse.quote(urllib.parse.quote(name, safe=""), safe=""),
        "".join(f"%{ord(char):02x}" for char in name),
        name.replace("/", "%2f"),
        name.replace("/", "\\"),
        name.replace("//", "///"),
        name.replace("fake:", "FAKE:"),
        name.replace("secret", "%73ecret"),
        name.replace("secret", "%2573ecret"),
        name.replace("secret", "SECRET"),
        name + "/",
        name + "?x=1",
        name + "#f",
    ]
    return st.sampled_from(spellings)


METHODS = (
    "tools/call",
    "prompts/get",
    "resources/read",
    "completion/complete",
    "resources/subscribe",
    "tasks/get",
    "skills/get",
)


def request_of(method: str, name: str) -> dict[str, Any]:
    if method == "completion/complete":
        uri = "://" in name or "%3A" in name
        reference = {"type": "ref/resource", "uri": name} if uri else {"type": "ref/prompt", "name": name}
        return {"ref": reference, "argument": {"name": "id", "value": "v"}}
    key = {"tools/call": "name", "prompts/get": "name", "tasks/get": "taskId"}.get(method, "uri")
    return {key: name, "arguments": {"a": 1, "b": 2}}


@given(
    era=st.sampled_from(("handshake", "modern")),
    method=st.sampled_from(METHODS),
    name=st.sampled_from(NAMES).flatmap(spelled),
)
@settings(max_examples=8 * EXAMPLES)
def test_no_spelling_method_or_era_reaches_a_refused_item(peers: Peers, era: str, method: str, name: str) -> None:
    peers.answer(era, method, request_of(method, name))
    forbidden = [(m, n) for m, n in peers.reached() if n in REFUSED or "secret" in n.lower()]
    assert forbidden == []


@given(
    era=st.sampled_from(("handshake", "modern")),
    query=st.sampled_from(NAMES).flatmap(spelled)
    | st.sampled_from(["add", "numbers", "process id", "", "crash of shut"]),
    more=st.fixed_dictionaries(
        {}, optional={"detail": st.sampled_from(("brief", "signature", "full")), "limit": st.just(50)}
    ),
    server=st.sampled_from((None, "shut", "open")),
)
@settings(max_examples=4 * EXAMPLES)
def test_no_search_finds_a_refused_tool(
    peers: Peers, era: str, query: str, more: dict[str, Any], server: str | None
) -> None:
    arguments = {"query": query, **more, **({"server": server} if server else {})}
    result = peers.answer(era, "tools/call", {"name": "hub_search", "arguments": arguments})["result"]
    assert not result.get("isError"), result
    assert not [tool for tool in (*TOOLS, "fail", "say") if f"shut__{tool}" in result["content"][0]["text"]]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    ("method", "refused", "unknown"),
    [
        ("tools/call", "shut__add", "shut__xyz"),
        ("tools/call", "shut__crash", "shut__xyz"),
        ("tools/call", "shut__pid", "shut__xyz"),
        ("tools/call", "shut__say", "shut__xyz"),
        ("prompts/get", "shut__greet", "shut__xyz"),
        ("resources/read", RESOURCE, "fake://nobody/xyz"),
        ("resources/read", THROUGH_TEMPLATE, "fake://nobody/xyz"),
        ("skills/get", SKILL, "fake://nobody/xyz"),
        ("skills/get", THROUGH_TEMPLATE, "fake://nobody/xyz"),
        ("completion/complete", "shut__greet", "shut__xyz"),
        ("completion/complete", RESOURCE, "fake://nobody/xyz"),
    ],
)
def test_a_refused_name_answers_byte_for_byte_as_an_unknown_one(
    peers: Peers, era: str, method: str, refused: str, unknown: str
) -> None:
    peers.assert_unknown(era, method, refused, unknown)


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_items_beside_a_refused_one_are_served(peers: Peers, era: str) -> None:
    assert "result" in peers.answer(era, "tools/call", {"name": "shut__count", "arguments": {"steps": 0}})
    assert "result" in peers.answer(era, "resources/read", {"uri": "fake://shut/item/other"})
    assert "result" in peers.answer(era, "prompts/get", {"name": "open__greet"})
    got = peers.answer(era, "skills/get", {"uri": "fake://shut/open/SKILL.md"})
    assert ("result" in got) == (era == "modern")
    assert "result" in peers.answer(era, "tools/call", {"name": "open__add", "arguments": {"a": 1, "b": 2}})


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_refused_item_is_not_listed(peers: Peers, era: str) -> None:
    tools = peers.answer(era, "tools/list", {})["result"]["tools"]
    names = {tool["name"] for tool in tools}
    assert not names & {f"shut__{name}" for name in (*TOOLS, "fail", "say")}
    assert {"shut__count", "open__add"} <= names
    prompts = peers.answer(era, "prompts/list", {})["result"]["prompts"]
    assert [prompt["name"] for prompt in prompts] == ["open__greet"]
    resources = peers.answer(era, "resources/list", {})["result"]["resources"]
    assert [resource["uri"] for resource in resources] == ["fake://open/one"]
    if era == "modern":
        skills = peers.answer(era, "skills/list", {})["result"]["skills"]
        assert [skill["uri"] for skill in skills] == ["fake://shut/open/SKILL.md"]
