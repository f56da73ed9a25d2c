"""Skills as resources and in the instructions, for whoever may read them and nobody else."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.hub.composition import read_config
from mcp_hub.servers.skill_server import MAX_FILE, read_file
from tests.cli.test_commands import run
from tests.config.discovery.written import write
from tests.fakes.client import PATIENCE, RpcError, hub, write_config

pytestmark = pytest.mark.anyio


def skill(directory: Path, name: str, description: str = "What it is for.", **files: str) -> Path:
    """A skill and its other files."""
    write(directory, "SKILL.md", f"---\nname: {name}\ndescription: {description}\n---\n# How\nDo it like {name}.\n")
    for file, content in files.items():
        write(directory, file.replace("__", "/"), content)
    return directory


def open_descriptors() -> set[int]:
    descriptors = set()
    for descriptor in range(256):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            descriptors.add(descriptor)
    return descriptors


async def refused(client: Any, uri: str) -> int:
    with pytest.raises(RpcError) as caught:
        await client.request("resources/read", {"uri": uri})
    return int(caught.value.error["code"])


@pytest.mark.parametrize("modern", [False, True])
async def test_skills_are_listed_read_and_described_as_the_access_rules_allow(tmp_path: Path, modern: bool) -> None:
    """A004-23."""
    skill(tmp_path / "skills/pdf", "pdf", "Fill in forms.", scripts__fill_py="print()")
    (tmp_path / "skills/pdf/logo.png").write_bytes(b"\x89PNG\xff")
    write(tmp_path / "skills/pdf", ".env", "SECRET=1")
    outside = write(tmp_path, "outside.txt", "not of the skill")
    (tmp_path / "skills/pdf/link.txt").symlink_to(outside)
    skill(tmp_path / "private", "private", "Secret words.")
    root: dict[str, Any] = {
        "list_wait": PATIENCE,
        "skills": ["skills", "private"],
        "blacklist": ["skills/skill://private/*"],
    }
    async with hub(tmp_path, {}, modern=modern, handshake=False, **root) as client:
        answer = await client.request("server/discover") if modern else await client.initialize()
        assert "- pdf: Fill in forms. (skill://pdf/SKILL.md)" in answer["instructions"]
        assert "Secret words" not in answer["instructions"]
        listed = (await client.request("resources/list"))["resources"]
        assert {resource["uri"]: resource["mimeType"] for resource in listed} == {
            "skill://pdf/SKILL.md": "text/markdown",
            "skill://pdf/logo.png": "image/png",
            "skill://pdf/scripts/fill_py": "text/plain",
        }
        (read,) = (await client.request("resources/read", {"uri": "skill://pdf/SKILL.md"}))["contents"]
        assert read["text"].endswith("# How\nDo it like pdf.\n")
        (logo,) = (await client.request("resources/read", {"uri": "skill://pdf/logo.png"}))["contents"]
        assert base64.b64decode(logo["blob"]) == b"\x89PNG\xff"
        absent = await refused(client, "skill://pdf/nothing.md")
        for uri in (
            "private/SKILL.md",
            "pdf/link.txt",
            "pdf/.env",
            "pdf/../../outside.txt",
            "pdf/%2e%2e/x",
        ):
            assert await refused(client, f"skill://{uri}") == absent
        assert await refused(client, "skill://pdf/scripts") == -32602  # a directory is known, and no resource


async def test_a_skill_file_replaced_by_a_link_is_not_read(tmp_path: Path) -> None:
    directory = skill(tmp_path / "s", "s", folder__inner="inside", plain="inside")
    write(tmp_path, "elsewhere/inner", "outside")
    assert read_file(directory, "folder/inner") == b"inside"
    (directory / "folder").rename(tmp_path / "away")
    (directory / "folder").symlink_to(tmp_path / "elsewhere")
    (directory / "plain").unlink()
    (directory / "plain").symlink_to(tmp_path / "elsewhere/inner")
    os.mkfifo(directory / "pipe")
    for file in ("folder/inner", "plain", "pipe", "folder"):
        with pytest.raises(OSError, match=r"."):
            read_file(directory, file)
    (directory / "large").write_bytes(b"x" * (MAX_FILE + 1))
    with pytest.raises(ValueError, match="larger"):
        read_file(directory, "large")


def test_reading_a_skill_file_replaced_by_a_directory_leaves_nothing_open(tmp_path: Path) -> None:
    directory = skill(tmp_path / "s", "s")
    (directory / "folder").mkdir()
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(OSError, match="not a file"):
            read_file(directory, "folder")
    assert open_descriptors() == before


@pytest.mark.parametrize(
    "content",
    ["# no front matter\n", "---\nname: a\n---\n", "---\nname: [\n---\n", "---\ndescription: d\nname: ''\n---\n"],
)
def test_a_directory_without_a_valid_skill_is_reported_and_the_others_are_served(tmp_path: Path, content: str) -> None:
    skill(tmp_path / "good", "good")
    skill(tmp_path / "again", "good")
    write(tmp_path, "bad/SKILL.md", content)
    write(tmp_path, "outside.md", "---\nname: outside\ndescription: d\n---\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/SKILL.md").symlink_to(tmp_path / "outside.md")
    path = write_config(tmp_path, {}, skills=["bad", "good", "again", "nowhere", "linked"])
    loaded = read_config(path, {"HOME": str(tmp_path)})
    assert [entry.name for entry in loaded.config.servers[0].skills] == ["good"]
    assert [line.split(": ")[1] for line in loaded.left_out] == ["skills[0]", "skills[3]", "skills[4]"]
    assert [(duplicate.what, duplicate.kept, duplicate.dropped) for duplicate in loaded.duplicates] == [
        ("skill", "good", "again")
    ]
    assert run("check", "--config", str(path)).returncode == 1


async def test_added_and_changed_skills_take_effect_while_the_hub_runs(tmp_path: Path) -> None:
    skill(tmp_path / "skills/one", "one")
    async with hub(tmp_path, {}, skills="skills", list_wait=PATIENCE) as client:
        assert [resource["uri"] for resource in (await client.request("resources/list"))["resources"]] == [
            "skill://one/SKILL.md"
        ]
        skill(tmp_path / "skills/two", "two")
        await client.notified("notifications/resources/list_changed")
        (read,) = (await client.request("resources/read", {"uri": "skill://two/SKILL.md"}))["contents"]
        assert read["text"].endswith("Do it like two.\n")
