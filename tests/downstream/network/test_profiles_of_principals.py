"""A principal with a profile is on a hub that has nothing else: in lists, calls, errors, instructions and news."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.errors import HEADER_MISMATCH, UnknownName
from mcp_hub.hub import Engine
from mcp_hub.hub.catalogs import CallerFilter
from mcp_hub.hub.composition import load_config
from mcp_hub.policy import Call
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.security.callers import Caller
from mcp_hub.upstream.list_store import RawLists
from tests.downstream.network.dumping import dumping
from tests.downstream.network.visitor import ERAS, TOKENS, Visitor, network_hub, spelled, visiting
from tests.fakes.callers import a_principal
from tests.fakes.client import HUB, PATIENCE, fake, spawned, write_config
from tests.hub.test_large_inputs import tool

pytestmark = pytest.mark.anyio

PROFILES: dict[str, Any] = {
    "analyst": {"tools": ["a/add", "a/echo", "a/count"]},
    "second": {"tools": ["b/ec*"]},
    "nothing": {"tools": ["nowhere/*"]},
}
PRINCIPALS = {
    "alice": {"token": TOKENS["alice"], "profile": "analyst"},
    "bob": {"token": TOKENS["bob"], "profile": "second"},
    "carol": TOKENS["carol"],
    "dora": {"token": TOKENS["dora"], "profile": "nothing"},
}
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


def servers(record: Path) -> dict[str, Any]:
    """Servers of which `a` and `b` share a namespace: the profile decides whose tool an equal name means."""
    return {
        "a": fake("--name", "a", namespace="n"),
        "b": fake("--name", "b", "--record", str(record), namespace="n"),
        "c": fake("--name", "c", "--record", str(record)),
    }


@contextlib.asynccontextmanager
async def everybodys_hub(directory: Path) -> AsyncIterator[str]:
    root = {"profiles": PROFILES, "on_conflict": "rename"}
    listen = {"principals": PRINCIPALS}
    async with network_hub(directory / "all", servers(directory / "record"), listen, **root) as (_, base):
        yield base


def reached(record: Path) -> list[str]:
    """Methods that a server was asked for to act on something."""
    methods = [json.loads(line).get("method") for line in record.read_text().splitlines()]
    return [method for method in methods if method in METHODS]


METHODS = ("tools/call", "prompts/get", "resources/read", "completion/complete", "resources/subscribe")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("name", "profile"), [("alice", "analyst"), ("bob", "second"), ("dora", "nothing")])
async def test_a_principal_gets_the_lists_of_a_hub_that_serves_only_its_profile(
    tmp_path: Path, era: str, name: str, profile: str
) -> None:
    root = {"profiles": PROFILES, "on_conflict": "rename"}
    options = ("--profile", profile)
    async with (
        everybodys_hub(tmp_path) as base,
        network_hub(tmp_path / "one", servers(tmp_path / "r"), {}, *options, **root) as (_, alone),
        visiting(base, era, TOKENS[name]) as visitor,
        visiting(alone, era) as expected,
    ):
        for method in LISTS:
            assert spelled(await visitor.ask(method)) == spelled(await expected.ask(method))
        # A hub answers a handshake before its servers are there: with their instructions only from now on.
        await visitor.begin()
        await expected.begin()
        assert visitor.negotiated == expected.negotiated
        assert ("be kind" in visitor.negotiated.get("instructions", "")) is (profile != "nothing")


@pytest.mark.parametrize("era", ERAS)
async def test_the_first_handshake_of_a_principal_waits_for_its_part_of_a_large_cached_catalog(
    tmp_path: Path, era: str
) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [tool(f"tool{n}") for n in range(5_000)]}))
    root = {"profiles": {"most": {"tools": ["a/tool*"]}}}
    listen = {"principals": {"alice": {"token": TOKENS["alice"], "profile": "most"}}}
    server = {"a": fake("--lists", str(lists), deadlines={"list": PATIENCE, "connect": PATIENCE})}

    @contextlib.asynccontextmanager
    async def visited() -> AsyncIterator[Visitor]:
        async with (
            network_hub(tmp_path, server, listen, **root) as (_, base),
            visiting(base, era, TOKENS["alice"]) as alice,
        ):
            yield alice

    async with visited() as alice:
        assert len(await alice.names("tools/list")) > 0  # and cached
    async with visited() as alice:
        assert "be kind" in alice.negotiated.get("instructions", "")


@pytest.mark.parametrize("era", ERAS)
async def test_equal_names_resolve_to_a_server_of_each_principals_profile(tmp_path: Path, era: str) -> None:
    async with (
        everybodys_hub(tmp_path) as base,
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
        visiting(base, era, TOKENS["carol"]) as carol,
    ):
        assert await alice.names("tools/list") == ["n__echo", "n__add", "n__count"]
        assert await bob.names("tools/list") == ["n__echo"]
        described = [
            (await visitor.ask("tools/list"))["result"]["tools"][0]["description"] for visitor in (alice, bob, carol)
        ]
        assert described == ["echo of a", "echo of b", "echo of a"]
        before = reached(tmp_path / "record")
        assert await alice.text("n__echo", {"text": "x"}) == "x"
        assert reached(tmp_path / "record") == before
        assert await bob.text("n__echo", {"text": "x"}) == "x"
        assert reached(tmp_path / "record") == [*before, "tools/call"]


def request_of(method: str, name: str) -> dict[str, Any]:
    if method == "completion/complete":
        prompt = "://" not in name
        reference = {"type": "ref/prompt", "name": name} if prompt else {"type": "ref/resource", "uri": name}
        return {"ref": reference, "argument": {"name": "id", "value": "v"}}
    return {"uri": name} if method.startswith("resources/") else {"name": name, "arguments": {}}


@pytest.mark.parametrize("era", ERAS)
async def test_names_outside_a_profile_answer_like_unknown_names_byte_for_byte(tmp_path: Path, era: str) -> None:
    async with (
        everybodys_hub(tmp_path) as base,
        visiting(base, era, TOKENS["carol"]) as carol,
        visiting(base, era, TOKENS["alice"]) as alice,
    ):
        kinds = {"tools/list": "name", "prompts/list": "name", "resources/list": "uri"}
        hidden = {
            method: sorted(set(await carol.names(method, key)) - set(await alice.names(method, key)))
            for method, key in kinds.items()
        }
        assert "c__echo" in hidden["tools/list"]
        assert "c__greet" in hidden["prompts/list"]
        assert "fake://c/one" in hidden["resources/list"]
        attempts = 0
        for method in METHODS if era == "handshake" else METHODS[:-1]:
            names = hidden["tools/list"] + hidden["prompts/list"]
            if method.startswith("resources/"):
                names = [*hidden["resources/list"], "fake://c/item/7", "mcp-hub://c/fake://c/one"]
            elif method == "completion/complete":
                names = [*names, *hidden["resources/list"], "fake://c/item/{id}"]
            for name in names:
                unknown = ("z" * len(name)) if "://" not in name else f"zz://{'z' * (len(name) - 5)}"
                refusal = await alice.ask(method, request_of(method, name))
                unknown_answer = await alice.ask(method, request_of(method, unknown))
                assert "error" in refusal, (method, name)
                assert spelled(refusal) == spelled(unknown_answer).replace(unknown, name)
                attempts += 1
        assert attempts > 20
        assert reached(tmp_path / "record") == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_principal_without_a_profile_reaches_everything(tmp_path: Path, era: str) -> None:
    async with everybodys_hub(tmp_path) as base, visiting(base, era, TOKENS["carol"]) as carol:
        names = await carol.names("tools/list")
        assert {"n__echo", "c__echo", "n__add"} <= set(names)
        assert await carol.text("c__echo", {"text": "x"}) == "x"


async def test_only_callers_whose_lists_change_are_notified(tmp_path: Path) -> None:
    path = write_config(tmp_path, servers(tmp_path / "record"), profiles=PROFILES, on_conflict="rename")
    notifications: list[tuple[frozenset[Kind], CallerFilter]] = []
    alice, bob, anonymous = a_principal("alice", "analyst"), a_principal("bob", "second"), a_principal("")
    async with Engine(load_config(path)) as hub, asyncio.timeout(PATIENCE):
        changed = asyncio.Event()

        def watch(kinds: frozenset[Kind], caller_filter: CallerFilter) -> None:
            notifications.append((kinds, caller_filter))
            changed.set()

        for caller in (alice, bob, anonymous):
            await hub.settled_catalog(caller)
        names = [hub.catalogs.of(caller).names(TOOLS) for caller in (alice, bob)]
        hub.catalogs.watch(watch)
        tool = {"name": "late", "inputSchema": {"type": "object"}}
        hub.upstreams["c"].lists.adopt({TOOLS: [*hub.upstreams["c"].lists.items[TOOLS], tool]})
        hub.catalogs.changed()
        await changed.wait()
        assert {kind for kinds, caller_filter in notifications if caller_filter(anonymous) for kind in kinds} == {TOOLS}
        assert [caller_filter(caller) for caller in (alice, bob) for _, caller_filter in notifications] == [
            False
        ] * len(notifications) * 2
        assert [hub.catalogs.of(caller).names(TOOLS) for caller in (alice, bob)] == names
        ecru = {"name": "ecru", "inputSchema": {"type": "object"}}
        hub.upstreams["b"].lists.adopt({TOOLS: [*hub.upstreams["b"].lists.items[TOOLS], ecru]})
        notifications.clear()
        changed.clear()
        hub.catalogs.changed()
        await changed.wait()
        assert any(caller_filter(bob) for _, caller_filter in notifications)
        assert not any(caller_filter(alice) for _, caller_filter in notifications)
        assert "n__ecru" in hub.catalogs.of(bob).names(TOOLS)


class Listener:
    """A client of the handshake era, as far as servers know it."""

    capabilities: dict[str, Any] = {}  # noqa: RUF012
    parked = None

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def hear(self, message: Any) -> None:
        self.messages.append(message)


async def test_log_messages_reach_only_callers_who_see_the_server(tmp_path: Path) -> None:
    path = write_config(tmp_path, servers(tmp_path / "record"), profiles=PROFILES, on_conflict="rename")
    async with Engine(load_config(path)) as hub, asyncio.timeout(PATIENCE):
        await hub.settled_catalog()
        sessions = [Caller(principal) for principal in (Principal("alice", "analyst"), ANONYMOUS)]
        listeners = [Listener(), Listener()]
        for session, listener in zip(sessions, listeners, strict=True):
            hub.clients.introduce(session, listener, "handshake")  # type: ignore[arg-type]
        for session, server in itertools.product(sessions, ("a", "b", "c")):
            hub.clients.hear({"data": server}, server, session)
        assert [[message["data"] for message in listener.messages] for listener in listeners] == [
            ["a"],
            ["a", "b", "c"],
        ]


async def test_tools_of_a_clients_own_session_are_restricted_by_its_profile_too(tmp_path: Path) -> None:
    path = write_config(tmp_path, servers(tmp_path / "record"), profiles=PROFILES, on_conflict="rename")
    async with Engine(load_config(path)) as hub, asyncio.timeout(PATIENCE):
        sessions = [Caller(principal) for principal in (Principal("bob", "second"), ANONYMOUS)]
        for session in sessions:
            await hub.settled_catalog(session)
            own = hub.upstreams["b"].caller_lists.all[session] = RawLists(hub.upstreams["b"].server)
            own.items = {
                TOOLS: [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "eclair", "danger")]
            }
        hub.catalogs.changed()
        bob_names, all_names = [(await hub.settled_catalog(session)).names(TOOLS) for session in sessions]
        assert bob_names == ("n__echo", "n__eclair")
        assert {"n__eclair", "n__danger"} <= set(all_names)
        with pytest.raises(UnknownName):
            await hub.route(TOOLS, "n__danger", "handshake", sessions[0])


async def test_header_validation_does_not_reveal_a_hidden_tool(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    async with dumping() as server:
        server.tools = [{"name": name, "inputSchema": schema} for name in ("look", "regional")]
        profiles = {"analyst": {"tools": ["up/look"]}}
        listen = {"principals": {name: PRINCIPALS[name] for name in ("alice", "carol")}}
        async with (
            network_hub(tmp_path, {"up": {"url": server.url}}, listen, profiles=profiles) as (_, base),
            visiting(base, "modern", TOKENS["alice"]) as alice,
            visiting(base, "modern", TOKENS["carol"]) as carol,
        ):
            await carol.names("tools/list")
            arguments = {"region": "north"}
            assert (await carol.call("up__regional", arguments))["error"]["code"] == HEADER_MISMATCH
            assert (await alice.call("up__look", arguments))["error"]["code"] == HEADER_MISMATCH
            hidden, unknown = [await alice.call(name, arguments) for name in ("up__regional", "up__zzzzzzzz")]
            assert spelled(hidden) == spelled(unknown).replace("up__zzzzzzzz", "up__regional")
            assert hidden["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("method", "kind", "name"),
    [
        ("tools/call", TOOLS, "echo"),
        ("tools/call", TOOLS, "listed by nobody"),
        ("tasks/get", TOOLS, "echo"),
        ("prompts/get", PROMPTS, "greet"),
        ("resources/read", RESOURCES, "fake://c/one"),
        ("resources/subscribe", RESOURCES, "fake://c/one"),
        ("completion/complete", TEMPLATES, "fake://c/item/{id}"),
    ],
)
async def test_a_caller_who_knows_the_route_is_still_refused(
    tmp_path: Path, method: str, kind: Kind, name: str
) -> None:
    record = tmp_path / "record"
    path = write_config(tmp_path, servers(record), profiles=PROFILES)
    async with Engine(load_config(path)) as hub, asyncio.timeout(PATIENCE):
        await hub.settled_catalog()
        alice = Principal("alice", "analyst")
        for caller in (hub.callers.of(alice), Caller(alice)):
            call = Call(method, name, Route("c", kind, name), {}, "handshake", Envelope(), caller)
            with pytest.raises(UnknownName):
                await hub.act(call)
            assert call.refused_by == "not in profile 'analyst'"
    assert reached(record) == []


def test_a_principal_with_an_unknown_profile_sees_nothing() -> None:
    from mcp_hub.catalog import Item
    from mcp_hub.config.models import Config, Server
    from mcp_hub.policy.access import Access

    server = Server(id="a", transport="stdio", command="x", namespace="a")
    access = Access(Config(servers=(server,)))
    route = Route("a", TOOLS, "echo")
    access.shape([Item(route, "echo", {"name": "echo"})])
    assert access.why(route) is None
    assert access.why(route, "misspelled") is not None


@pytest.mark.parametrize(
    ("listen", "line"),
    [
        (
            {"principals": {"alice": {"token": TOKENS["alice"], "profile": "analist"}}},
            b"listen.principals.alice.profile: there is no profile 'analist' in this file (there is: analyst",
        ),
        ({"principals": {"alice": {"profile": "analyst"}}}, b"listen.principals.alice.token is missing"),
        ({"principals": {"token": TOKENS["alice"]}}, b"'token' is the principal of listen.token"),
        ({"principals": {"a b": TOKENS["alice"]}}, b"a principal's name has letters"),
        ({"principals": {"alice": TOKENS["alice"][:31]}}, b"listen.principals.alice.token has 31 bytes"),
        (
            {"principals": {"alice": TOKENS["alice"], "bob": TOKENS["alice"]}},
            b"listen.principals.bob.token is the same as listen.principals.alice.token",
        ),
        ({"token": TOKENS["bob"], "principals": {"bob": TOKENS["bob"]}}, b"is the same as listen.token"),
    ],
)
async def test_invalid_principals_are_reported_without_their_tokens(
    tmp_path: Path, listen: dict[str, Any], line: bytes
) -> None:
    config = write_config(tmp_path, {}, listen=listen, profiles=PROFILES)
    async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as client:
        assert await client.exited() == 2
        await client.until(lambda: line in client.stderr)
        assert not any(token[:31].encode() in client.stderr for token in TOKENS.values())


@pytest.mark.parametrize("era", ERAS)
async def test_records_name_the_principal_and_never_its_token(tmp_path: Path, era: str) -> None:
    root = {"profiles": PROFILES, "call_log": {"file": str(tmp_path / "calls.jsonl")}}
    async with (
        network_hub(tmp_path / "hub", {"a": fake()}, {"principals": PRINCIPALS}, **root) as (process, base),
        visiting(base, era, TOKENS["alice"]) as alice,
    ):
        await alice.text("a__echo", {"text": TOKENS["alice"]})
        await alice.call("a__pid")
        await process.until(lambda: process.stderr.count(b'"event":"call"') >= 2 or process.stderr.count(b"a__pid"))
    lines = (tmp_path / "calls.jsonl").read_text()
    records = [json.loads(line) for line in lines.splitlines()]
    key = "caller" if era == "modern" else "principal"
    assert [record[key] for record in records] == ["principal-alice"] * 2
    assert records[1]["verdict"] == "refused"
    assert records[1]["reason"] == "not in profile 'analyst'"
    assert not any(token in lines for token in TOKENS.values())
