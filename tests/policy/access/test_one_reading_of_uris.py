"""Every rule about URIs compares one text of a URI, so that no spelling passes one rule and is refused by another."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.catalog import Item, Route, names
from mcp_hub.errors import HubError
from mcp_hub.hub.composition import config_of
from mcp_hub.policy import Call, Json
from mcp_hub.policy.access import Access
from mcp_hub.policy.data_flow import FlowPolicy, FlowSettings, UsedLabels
from mcp_hub.policy.guard import GuardSettings, UrlGuard
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES
from mcp_hub.security.callers import Caller
from tests.fakes.callers import a_principal
from tests.fakes.client import PATIENCE, RpcError, StdioClient, fake, hub, spawned
from tests.fakes.forks import python_with_sdk
from tests.tiers import EXAMPLES

PATH = "datasets/secret.txt"
URI = f"https://huggingface.co/{PATH}"
RULE = "https://huggingface.co/datasets*"
TEMPLATE = "https://huggingface.co/{+path}"


def unlisted(route: Route, caller: object) -> None:
    return None


@functools.cache
def policies() -> dict[str, Access | FlowPolicy | UrlGuard]:
    def servers(**keys: Any) -> Any:
        return config_of({"servers": {"s": {"command": "s", **keys}}})

    labelled = {server.id: server for server in servers(labels={"reads_private": [RULE]}).servers}
    return {
        "blacklist": Access(config_of({"servers": {"s": {"command": "s"}}, "blacklist": [f"s/{RULE}"]})),
        "disabled": Access(servers(disable_resources=[RULE])),
        "enabled": Access(servers(enable_resources=["https://huggingface.co/docs*"])),
        "labels": FlowPolicy(labelled, FlowSettings(mode="refuse"), UsedLabels()),
        "guard": UrlGuard(GuardSettings(), labelled, unlisted),
    }


def call_of(route: Route, path: str | None = None) -> Call:
    params: Json = {} if path is None else {"argument": {"name": "path", "value": path}}
    method = "resources/read" if path is None else "completion/complete"
    return Call(method, route.name, route, params, "handshake", Envelope({}, {}, None))


def is_caught(policy: Access | FlowPolicy | UrlGuard, call: Call) -> bool:
    """Whether the policy refuses the call, or labels it."""

    async def answer(call: Call) -> Json:
        return {}

    try:
        next(iter(policy(call, answer).__await__()))
    except HubError:
        return True
    except StopIteration:
        pass
    return any("reads_private" in note for note in call.notes)


@st.composite
def spellings(draw: st.DrawFn, text: str) -> str:
    """Escapes at any level, another case, dots, slashes and Unicode forms."""
    parts: list[str] = []
    for char in text:
        how = draw(st.integers(0, 24))
        levels = draw(st.integers(0, 7)) if how < 4 else 0
        if how == 5 and char.isalpha():
            char = char.upper()
        elif how == 6 and char.isalpha():
            char = chr(ord(char) + 0xFEE0)
        elif how == 7:
            char += "\u200b"
        elif how == 8 and char == "/":
            char = draw(st.sampled_from(["//", "/./", "/x/../", "\\", "\uff0f", "/%2e/"]))
        if levels:
            char = "".join(f"%{byte:02x}" for byte in char.encode())
            char = char.replace("%", "%" + "25" * (levels - 1))
        parts.append(char)
    return "".join(parts)


@pytest.mark.parametrize("name", ["blacklist", "disabled", "enabled", "labels", "guard"])
@given(path=spellings(PATH))
@settings(max_examples=12 * EXAMPLES)
def test_no_spelling_of_a_uri_passes_a_rule_in_a_read_or_a_completion(name: str, path: str) -> None:
    policy = policies()[name]
    read = call_of(Route("s", RESOURCES, f"https://huggingface.co/{path}"))
    assert is_caught(policy, read), read.route.name
    if name != "enabled":  # what a person has typed so far need not be allowed; the answers are
        completion = call_of(Route("s", TEMPLATES, TEMPLATE), path)
        assert is_caught(policy, completion), path


@pytest.mark.parametrize("name", ["blacklist", "disabled", "enabled", "labels", "guard"])
@pytest.mark.parametrize("path", ["docs/a.txt", "docs/My%20Notes/%c3%a4.txt", "docs/a%2Fb", "docs/My Notes/ä.txt"])
def test_uris_that_no_rule_names_pass_every_rule(name: str, path: str) -> None:
    assert not is_caught(policies()[name], call_of(Route("s", RESOURCES, f"https://huggingface.co/{path}")))
    assert not is_caught(policies()[name], call_of(Route("s", TEMPLATES, TEMPLATE), path))


@pytest.mark.parametrize("uri", ["docs://a/1", "DOCS://a/1", "docs://a/%31"])
def test_what_only_a_refused_template_makes_is_refused_whatever_the_case_of_the_rule(uri: str) -> None:
    access = Access(config_of({"servers": {"s": {"command": "s", "disable_resources": ["docs://A/{x}"]}}}))
    template = Route("s", TEMPLATES, "docs://a/{name}")
    list(access.review([Item(template, template.name, {})]))
    assert access.why(template) is not None
    assert access.why(Route("s", RESOURCES, uri)) is not None


READER = str(Path(__file__).with_name("greedy_reader.py"))


@pytest.mark.anyio
async def test_the_values_of_a_completion_have_the_labels_of_the_uris_that_they_make(tmp_path: Path) -> None:
    def reader(*rules: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": [READER, "docs"], "labels": {"reads_private": rules}}

    reference = {"type": "ref/resource", "uri": "docs:///{+path}"}
    others = {"web": fake(labels=["reads_untrusted"]), "mail": fake(labels=["writes_external"])}
    for rule, typed, is_private in (
        ("docs:///private/*", "", True),
        ("docs:///private/*", "pub", False),
        ("docs:///private/{name}", "", True),
        ("docs:///SRV//private/{name}", "", True),
        ("docs:///private/{name}", "pub", False),
    ):
        async with hub(tmp_path, {"s": reader(rule), **others}, flows="refuse", list_wait=60) as client:
            await client.request("resources/templates/list")
            await client.call("web__echo", {"text": "x"})
            params = {"ref": reference, "argument": {"name": "path", "value": typed}}
            assert (await client.request("completion/complete", params))["completion"]["values"]
            sent = await client.call("mail__echo", {"text": "x"})
            assert bool(sent.get("isError")) is is_private, (rule, typed)
            if not is_private:  # now the names would be the third label
                with pytest.raises(RpcError):
                    await client.request("completion/complete", {**params, "argument": {"name": "path", "value": ""}})


@pytest.mark.anyio
async def test_a_uri_that_a_template_of_a_rule_makes_has_its_label_in_every_spelling() -> None:
    servers = config_of(
        {"servers": {"s": {"command": "s", "labels": {"reads_private": ["db://{id}/x", "n://{path*}"]}}}}
    )
    policy = FlowPolicy({"s": servers.servers[0]}, FlowSettings(mode="refuse"), UsedLabels())
    for uri in ("db://5/x", "DB://5/X", "db:///5//x", "db://%35/%78", "n://a/b"):
        assert policy.labels(Route("s", RESOURCES, uri)), uri
    assert not policy.labels(Route("s", RESOURCES, "db://5/y"))


@pytest.mark.anyio
async def test_values_of_a_completion_beside_missing_arguments_have_all_labels_that_they_may_get() -> None:
    servers = config_of({"servers": {"s": {"command": "s", "labels": {"reads_private": ["docs://private/*"]}}}})
    policy = FlowPolicy({"s": servers.servers[0]}, FlowSettings(mode="refuse"), UsedLabels())

    async def answer(call: Call) -> Json:
        return {"completion": {"values": ["salaries"]}}

    for template, is_private in (("docs://{dir}/{path}", True), ("docs://public/{dir}/{path}", False)):
        call = call_of(Route("s", TEMPLATES, template), "")
        await policy(call, answer)
        assert bool(call.notes) is is_private, template


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["blacklist", "disabled", "enabled", "guard"])
async def test_completions_offer_only_values_that_no_rule_refuses_and_as_many_as_the_protocol_allows(name: str) -> None:
    allowed = [f"docs/{number}" for number in range(150)]

    async def answer(call: Call) -> Json:
        return {"completion": {"values": ["docs", {"name": PATH}, PATH, *allowed], "total": 153}}

    completion = (await policies()[name](call_of(Route("s", TEMPLATES, TEMPLATE), ""), answer))["completion"]
    assert completion == {"values": ["docs", *allowed[:97]], "hasMore": True}


@pytest.mark.anyio
async def test_completions_offer_a_caller_only_values_of_its_profile() -> None:
    profiles = {"docs": {"tools": ["s/https://huggingface.co/docs*"]}}
    policy = Access(config_of({"servers": {"s": {"command": "s"}}, "profiles": profiles}))

    async def answer(call: Call) -> Json:
        return {"completion": {"values": ["docs/one", PATH]}}

    async def offered(caller: Caller) -> Any:
        call = call_of(Route("s", TEMPLATES, TEMPLATE), "")
        call.caller = caller
        return (await policy(call, answer))["completion"]["values"]

    assert await offered(a_principal("ann", "docs")) == ["docs/one"]
    assert await offered(a_principal("bob")) == ["docs/one", PATH]


LISTED = ("file:///My%20Notes/%c3%a4.txt", "file:///My Notes/raw.txt", "db://t/a%2Fb")
SERVER = f"""
from fastmcp import FastMCP
server = FastMCP("real")
for uri in {LISTED!r}:
    server.resource(uri, name=uri)(lambda: "text")
server.run(show_banner=False)
"""


async def is_read(client: StdioClient, uri: str) -> bool:
    try:
        return bool((await client.request("resources/read", {"uri": uri}))["contents"])
    except RpcError:
        return False


@pytest.mark.anyio
async def test_what_a_real_server_lists_stays_readable_beside_rules(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    entry = {"command": python_with_sdk(), "args": [str(program)]}
    servers = {
        "s": {**entry, "disable_resources": ["file:///private*", "db://other*"], "labels": {"reads_private": ["x://*"]}}
    }
    async with spawned([python_with_sdk(), str(program)]) as direct:
        await direct.initialize()
        listed = [item["uri"] for item in (await direct.request("resources/list"))["resources"]]
        assert [await is_read(direct, uri) for uri in listed] == [True] * len(LISTED)
    for keys in ({}, {"flows": "refuse"}):
        async with hub(tmp_path, servers, list_wait=60, **keys) as client:
            assert [item["uri"] for item in (await client.request("resources/list"))["resources"]] == listed
            assert [await is_read(client, uri) for uri in listed] == [True] * len(LISTED)


@pytest.mark.anyio
async def test_a_listed_uri_is_known_in_its_normal_form_and_sent_as_it_came(tmp_path: Path) -> None:
    record = tmp_path / "record"
    listed = ["file:///My Notes/ä.txt", "file:///caf%c3%a9", "FILE:///x"]
    async with hub(tmp_path, {"s": fake("--resources", json.dumps(listed), "--record", str(record))}) as client:
        await client.request("resources/list")
        for uri in ("file:///My%20Notes/%C3%A4.txt", "file:///caf%C3%A9", "file:///x"):
            await is_read(client, uri)
            assert json.dumps(uri)[1:-1] in record.read_text(), uri
        for unknown in ("file:///./x", "file:///y/../x", "file:///%78", "file:///X"):
            before = record.read_text().count('"resources/read"')
            assert not await is_read(client, unknown)
            assert record.read_text().count('"resources/read"') == before


@given(st.text(max_size=40))
@settings(max_examples=4 * EXAMPLES)
def test_the_normal_form_of_a_uri_is_its_own_normal_form(text: str) -> None:
    normal = names.normal_uri(f"docs://{text}")
    assert names.normal_uri(normal) == normal


@pytest.mark.anyio
@pytest.mark.parametrize("blacklist", [[], ["s/write_*"]])
async def test_a_long_completion_is_not_kept_and_holds_no_other_task_up(blacklist: list[str]) -> None:
    access = Access(config_of({"servers": {"s": {"command": "s"}}, "blacklist": blacklist}))
    call = call_of(Route("s", TEMPLATES, "db://{table}/{key}"))
    long, turns = "a" * 2_000_000, 0
    call.params = {"argument": {"name": "key", "value": ""}, "context": {"arguments": {"table": long}}}

    async def answer(call: Call) -> Json:
        return {"completion": {"values": [f"{number}" for number in range(100)]}}

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.ensure_future(count_turns())
    tracemalloc.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await access(call, answer)
        assert tracemalloc.get_traced_memory()[0] < len(long)
        assert turns > 1
    finally:
        tracemalloc.stop()
        other.cancel()
