"""Skills of servers and of the hub itself, asked for by a real client: listed, got, verified, and kept from whom rules
keep their files."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import Skill, SkillsClientExtension
from mcp.shared.exceptions import MCPError

from tests.config.discovery.test_skills import skill
from tests.fakes.client import HUB, PATIENCE, RpcError, StdioClient, fake, hub, write_config
from tests.fakes.forks import python_with_sdk
from tests.peers.programs import HERE

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/skills"
SERVER = HERE / "servers" / "skill_server.py"


def serving(directory: Path, *page: str, **entry: Any) -> dict[str, Any]:
    """Returns the entry of a fastmcp server that serves the skills of a directory."""
    return {"command": python_with_sdk(), "args": [str(SERVER), str(directory), *page], **entry}


@contextlib.asynccontextmanager
async def client(command: list[str]) -> AsyncIterator[Client[Any]]:
    """A client of fastmcp that knows skills."""
    transport = StdioTransport(command[0], command[1:], keep_alive=False)
    async with Client(transport, mode="auto", extensions=[SkillsClientExtension()], timeout=PATIENCE) as opened:
        yield opened


@contextlib.asynccontextmanager
async def hub_client(directory: Path, servers: dict[str, Any], **root: Any) -> AsyncIterator[Client[Any]]:
    config = write_config(directory, servers, **{"list_wait": PATIENCE, **root})
    async with client([*HUB, "serve", "--config", str(config)]) as opened:
        yield opened


async def verified(opened: Client[Any], listed_skill: Skill) -> None:
    """Read every file of a skill and compare it with the manifest, as a host must."""
    assert listed_skill.resources != "dynamic"
    for file in listed_skill.resources:
        (content,) = await opened.read_resource(file.uri)
        data = base64.b64decode(content.blob) if hasattr(content, "blob") else content.text.encode()
        assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (file.size, file.digest)


async def unknown(opened: Client[Any], uri: str) -> bool:
    with pytest.raises(MCPError) as refused:
        await opened.get_skill(uri)
    return refused.value.error.code == -32602


def paths(skills: list[Skill]) -> list[str]:
    return [listed_skill.uri for listed_skill in skills]


async def test_the_skills_of_a_server_pass_unchanged(tmp_path: Path) -> None:
    skill(tmp_path / "s/pdf", "pdf", "Fill in forms.\nlicense: MIT\nversion: 1.10", references__forms_md="ünïcode\n")
    skill(tmp_path / "s/team/refunds", "refunds", scripts__pay_py="print()")
    async with client([python_with_sdk(), str(SERVER), str(tmp_path / "s")]) as direct:
        expected = await direct.list_skills()
    assert len(expected) == 2
    async with hub_client(tmp_path, {"a": serving(tmp_path / "s", "1")}) as opened:
        assert (await opened.list_skills_mcp()).skills == expected
        assert [await opened.get_skill(listed_skill.uri) for listed_skill in expected] == expected
        for listed_skill in expected:
            await verified(opened, listed_skill)
        assert await unknown(opened, "skill://pdf/references/forms_md")
        assert await unknown(opened, "skill://nobody/SKILL.md")


async def test_the_hubs_own_skills_have_manifests_and_follow_their_files(tmp_path: Path) -> None:
    skill(tmp_path / "skills/pdf", "pdf", "Fill in forms.\nversion: 1.10", references__forms_md="old\n")
    skill(tmp_path / "skills/loud", "LOUD WORDS")
    async with hub_client(tmp_path, {}, skills="skills") as opened:
        assert opened.server_capabilities is not None
        assert opened.server_capabilities.extensions == {EXTENSION: {"directoryRead": True}}
        (listed_skill,) = await opened.list_skills()  # a skill that no client accepts is served as resources only
        assert listed_skill.frontmatter.root == {"name": "pdf", "description": "Fill in forms.", "version": 1.1}
        assert await opened.get_skill(listed_skill.uri) == listed_skill
        await verified(opened, listed_skill)
        (tmp_path / "skills/pdf/references/forms_md").write_text("a new text\n")
        changed = await opened.get_skill(listed_skill.uri)
        assert changed != listed_skill
        await verified(opened, changed)
        assert await unknown(opened, "skill://none/SKILL.md")


async def test_a_changed_file_of_the_hubs_own_skill_changes_the_list(tmp_path: Path) -> None:
    skill(tmp_path / "skills/pdf", "pdf", notes="old")
    async with hub(tmp_path, {}, modern=True, skills="skills", list_wait=PATIENCE) as opened:
        listening = opened.start("subscriptions/listen", {"notifications": {"resourcesListChanged": True}})
        await opened.notified("notifications/subscriptions/acknowledged")
        (before,) = (await opened.request("skills/list"))["skills"]
        (tmp_path / "skills/pdf/notes").write_text("newer")
        await opened.notified("notifications/resources/list_changed")
        (after,) = (await opened.request("skills/list"))["skills"]
        assert not listening.done()
    assert before["resources"][0] == after["resources"][0]
    assert after["resources"][1] == {
        "uri": "skill://pdf/notes",
        "digest": f"sha256:{hashlib.sha256(b'newer').hexdigest()}",
        "size": 5,
    }


PREFIXED = "mcp-hub://b/skill://pdf/SKILL.md"


async def test_equal_skills_of_two_servers_are_both_served_if_on_conflict_allows(tmp_path: Path) -> None:
    skill(tmp_path / "a/pdf", "pdf", "Of a.", both="of a")
    skill(tmp_path / "b/pdf", "pdf", "Of b.", both="of b", references__only="of b alone")
    servers = {name: serving(tmp_path / name) for name in "ab"}
    async with hub_client(tmp_path, servers, on_conflict="rename") as opened:
        listed = await opened.list_skills()
        assert paths(listed) == ["skill://pdf/SKILL.md", PREFIXED]
        for listed_skill in listed:
            assert listed_skill.frontmatter.description == ("Of b." if listed_skill.uri == PREFIXED else "Of a.")
            assert await opened.get_skill(listed_skill.uri) == listed_skill
            await verified(opened, listed_skill)


async def test_a_skill_file_keeps_its_uri_even_if_a_later_server_lists_it(tmp_path: Path) -> None:
    skill(tmp_path / "a/pdf", "pdf", "Of a.", notes="of a")
    skill(tmp_path / "b/pdf", "pdf", "Of b.", notes="of b")
    # The notes of the server come from a template, and the hub itself lists them.
    servers = {"a": serving(tmp_path / "a")}
    async with hub_client(tmp_path, servers, skills="b", on_conflict="rename") as opened:
        own, renamed = await opened.list_skills()
        assert [own.uri, renamed.uri] == ["skill://pdf/SKILL.md", "mcp-hub://skills/skill://pdf/SKILL.md"]
        await verified(opened, own)
        await verified(opened, renamed)


RULES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"blacklist": ["a/skill://private/*"]}, {}),
    ({"blacklist": ["a/skill://private/notes"]}, {}),
    ({}, {"disable_resources": ["skill://private/**"]}),
]


@pytest.mark.parametrize(("root", "entry"), RULES)
async def test_a_skill_with_a_refused_file_is_neither_listed_nor_got(
    tmp_path: Path, root: dict[str, Any], entry: dict[str, Any]
) -> None:
    skill(tmp_path / "s/pdf", "pdf")
    skill(tmp_path / "s/private", "private", notes="a secret")
    async with hub_client(tmp_path, {"a": serving(tmp_path / "s", **entry)}, **root) as opened:
        assert paths(await opened.list_skills()) == ["skill://pdf/SKILL.md"]
        assert await unknown(opened, "skill://private/SKILL.md")
        with pytest.raises(MCPError):
            await opened.read_resource("skill://private/notes")


async def test_a_skill_that_later_gets_a_refused_file_becomes_unknown(tmp_path: Path) -> None:
    skill(tmp_path / "s/pdf", "pdf")
    rule = ["a/skill://pdf/private/*"]
    async with hub_client(tmp_path, {"a": serving(tmp_path / "s")}, blacklist=rule) as opened:
        (listed_skill,) = await opened.list_skills()
        skill(tmp_path / "s/pdf", "pdf", private__key="a secret")
        assert await unknown(opened, listed_skill.uri)


async def test_a_profile_lists_only_skills_whose_files_it_allows(tmp_path: Path) -> None:
    skill(tmp_path / "s/pdf", "pdf", notes="x")
    skill(tmp_path / "s/other", "other")
    profiles = {"few": {"tools": ["a/skill://pdf/*"]}}
    config = write_config(tmp_path, {"a": serving(tmp_path / "s")}, profiles=profiles, list_wait=PATIENCE)
    async with client([*HUB, "serve", "--config", str(config), "--profile", "few"]) as opened:
        (listed_skill,) = await opened.list_skills()
        assert listed_skill.uri == "skill://pdf/SKILL.md"
        await verified(opened, listed_skill)
        assert await unknown(opened, "skill://other/SKILL.md")


async def test_an_unlisted_skill_can_be_fetched_if_its_file_is_readable(tmp_path: Path) -> None:
    skill(tmp_path / "s/pdf", "pdf")
    async with hub_client(tmp_path, {"a": serving(tmp_path / "s", keep_catalog=False)}) as opened:
        await opened.list_skills()
        (link,) = [template.uri_template for template in await opened.list_resource_templates()]
        assert link == "skill://pdf/{path*}"
        skill(tmp_path / "s/pdf/nested", "nested", notes="inside")
        fetched_skill = await opened.get_skill("skill://pdf/nested/SKILL.md")
        await verified(opened, fetched_skill)


async def test_a_skill_changed_without_notification_is_refreshed_after_a_list_request(tmp_path: Path) -> None:
    skill(tmp_path / "s/pdf", "pdf", notes="old")
    async with hub(tmp_path, {"a": serving(tmp_path / "s")}, modern=True, list_wait=PATIENCE) as opened:
        before = (await opened.request("skills/list"))["skills"]
        opened.start("subscriptions/listen", {"notifications": {"resourcesListChanged": True}})
        await opened.notified("notifications/subscriptions/acknowledged")
        (tmp_path / "s/pdf/notes").write_text("newer")
        assert (await opened.request("skills/list"))["skills"] == before
        await opened.notified("notifications/resources/list_changed")
        (after,) = (await opened.request("skills/list"))["skills"]
        assert [file["size"] for file in after["resources"]] == [before[0]["resources"][0]["size"], 5]


async def test_skills_are_listed_from_the_kept_catalog_without_starting_their_server(tmp_path: Path) -> None:
    skill(tmp_path / "s/pdf", "pdf")
    servers = {"a": serving(tmp_path / "s", lazy=True)}
    async with hub(tmp_path, servers, modern=True, list_wait=PATIENCE) as opened:
        before = await opened.request("skills/list")
        assert len(before["skills"]) == 1
    shutil.rmtree(tmp_path / "s/pdf")
    async with hub(tmp_path, servers, modern=True, list_wait=PATIENCE) as opened:
        assert await opened.request("skills/list") == before


async def test_a_handshake_client_gets_no_skills(tmp_path: Path) -> None:
    skill(tmp_path / "skills/pdf", "pdf")
    async with hub(tmp_path, {}, handshake=False, skills="skills", list_wait=PATIENCE) as opened:
        assert "extensions" not in (await opened.initialize())["capabilities"]
        for method, params in (("skills/list", {}), ("skills/get", {"uri": "skill://pdf/SKILL.md"})):
            with pytest.raises(RpcError) as refused:
                await opened.request(method, params)
            assert refused.value.code == -32601


async def test_all_pages_of_a_servers_skills_are_listed(tmp_path: Path) -> None:
    for number in range(12):
        skill(tmp_path / "s" / f"s{number}", f"s{number}")
    async with hub_client(tmp_path, {"a": serving(tmp_path / "s", "5")}) as opened:
        assert len(await opened.list_skills()) == 12


async def test_one_invalid_skill_leaves_the_others_of_its_server(tmp_path: Path) -> None:
    entries = {
        "good": {},
        "bad-digest": {"digest": "sha256:00"},
        "elsewhere": {"uri": "skill://other/SKILL.md"},
    }
    listed = []
    for name, wrong in entries.items():
        uri = f"skill://{name}/SKILL.md"
        file = {"uri": uri, "digest": f"sha256:{'0' * 64}", "size": 1, **wrong}
        front = {"name": name, "description": "d", "unknown": {"kept": [None]}}
        listed.append({"uri": uri, "frontmatter": front, "resources": [file], "_meta": {"x/y": 1}})
    script = tmp_path / "scripted.py"
    script.write_text(SCRIPTED.replace("LISTED", repr(listed)))
    async with hub(
        tmp_path, {"a": {"command": sys.executable, "args": [str(script)]}}, modern=True, list_wait=PATIENCE
    ) as opened:
        result = await opened.request("skills/list")
        assert result["skills"] == listed[:1]
        assert result["resultType"] == "complete"
        assert {"ttlMs", "cacheScope"} <= result.keys()
        assert (await opened.request("skills/get", {"uri": listed[0]["uri"]}))["skill"] == listed[0]


READ_DIRECTORY = "resources/directory/read"


async def children(opened: StdioClient, uri: str) -> list[str]:
    return [child["uri"] for child in (await opened.request(READ_DIRECTORY, {"uri": uri}))["resources"]]


async def test_a_directory_of_a_skill_is_read_at_its_server(tmp_path: Path) -> None:
    ours, equal = ["skill://pdf/SKILL.md", "skill://pdf/notes.md"], json.dumps(["skill://pdf/SKILL.md"])
    servers = {name: fake("--era", "modern", "--skills", equal) for name in ("a", "b")}
    async with hub(tmp_path, servers, modern=True, on_conflict="rename") as opened:
        await opened.request("skills/list")
        extensions = (await opened.request("server/discover"))["capabilities"]["extensions"]
        assert extensions[EXTENSION] == {"directoryRead": True}
        result = await opened.request(READ_DIRECTORY, {"uri": "skill://pdf", "cursor": "2"})
        assert [child["uri"] for child in result["resources"]] == ours
        assert (result["nextCursor"], result["resultType"]) == ("page of 2", "complete")
        assert await children(opened, "mcp-hub://b/skill://pdf") == [f"mcp-hub://b/{uri}" for uri in ours]
        for unknown_uri in ("skill://none", "skill://pd", "mcp-hub://c/skill://pdf"):
            with pytest.raises(RpcError) as refused:
                await opened.request(READ_DIRECTORY, {"uri": unknown_uri})
            assert refused.value.code == -32602
    async with hub(tmp_path, servers, on_conflict="rename") as opened:
        with pytest.raises(RpcError) as refused:
            await opened.request(READ_DIRECTORY, {"uri": "skill://pdf"})
        assert refused.value.code == -32601


@pytest.mark.parametrize("rule", [{"disable_resources": ["*/notes.md"]}, {"blacklist": [["a", "skill://*notes.md"]]}])
async def test_a_directory_shows_nothing_that_rules_hide(tmp_path: Path, rule: dict[str, Any]) -> None:
    root = {key: value for key, value in rule.items() if key == "blacklist"}
    entry = {key: value for key, value in rule.items() if key != "blacklist"}
    server = fake("--era", "modern", "--skills", json.dumps(["skill://pdf/SKILL.md", "skill://doc/SKILL.md"]), **entry)
    async with hub(tmp_path, {"a": server}, modern=True, **root) as opened:
        assert (await opened.request("skills/list"))["skills"] == []
        with pytest.raises(RpcError) as refused:
            await opened.request(READ_DIRECTORY, {"uri": "skill://pdf"})
        assert refused.value.code == -32602


async def test_a_directory_of_a_listed_skill_has_no_resource_that_rules_hide(tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    file = {"uri": "skill://pdf/SKILL.md", "digest": f"sha256:{'0' * 64}", "size": 1}
    front = {"name": "pdf", "description": "d"}
    lists.write_text(json.dumps({"skills": [{"uri": file["uri"], "frontmatter": front, "resources": [file]}]}))
    skills = json.dumps([file["uri"]])
    server = fake("--era", "modern", "--skills", skills, "--lists", str(lists), disable_resources=["*/notes.md"])
    async with hub(tmp_path, {"a": server}, modern=True) as opened:
        assert len((await opened.request("skills/list"))["skills"]) == 1
        assert await children(opened, "skill://pdf") == [file["uri"]]  # the server has notes.md there too


async def test_the_directories_of_the_hubs_own_skills_can_be_read(tmp_path: Path) -> None:
    skill(tmp_path / "skills/pdf", "pdf", notes="x", forms__a_b_md="y")
    async with hub(tmp_path, {}, modern=True, skills="skills") as opened:
        (listed,) = (await opened.request("skills/list"))["skills"]
        files = {file["uri"] for file in listed["resources"]}
        found = (await opened.request(READ_DIRECTORY, {"uri": "skill://pdf"}))["resources"]
        folders = [entry for entry in found if entry["mimeType"] == "inode/directory"]
        assert [(folder["uri"], folder["name"]) for folder in folders] == [("skill://pdf/forms", "forms")]
        below = await children(opened, "skill://pdf/forms")
        assert {entry["uri"] for entry in found if entry not in folders} | set(below) == files


SCRIPTED = """
import json, sys
EXTENSION = "io.modelcontextprotocol/skills"
KEY = "io.modelcontextprotocol/clientCapabilities"
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "none"}}
    if asked["method"] == "server/discover":
        has = {"resources": {}, "extensions": {EXTENSION: {"directoryRead": True}}}
        answer = {"result": {**COMPLETE, "supportedVersions": ["2026-07-28"], "capabilities": has}}
    elif asked["method"].startswith("skills/"):
        assert EXTENSION in asked["params"]["_meta"][KEY]["extensions"]
        found = {"skills": LISTED} if asked["method"] == "skills/list" else {"skill": LISTED[0]}
        answer = {"result": {**COMPLETE, **found}}
    elif asked["method"] == "resources/list":
        answer = {"result": {**COMPLETE, "resources": []}}
    elif asked["method"] == "resources/templates/list":
        answer = {"result": {**COMPLETE, "resourceTemplates": []}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""
