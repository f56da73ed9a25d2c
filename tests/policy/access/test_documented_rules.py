"""What docs/rules.md shows is a configuration that loads, and the rules about resources do what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.hub.composition import load_config
from tests.fakes.client import RpcError, hub
from tests.policy.access.test_rules_about_resources import READER

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES, ids=[", ".join(keys) for keys in EXAMPLES])
def test_an_example_loads_as_a_configuration(
    example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_ADDRESS", "me@example.org")
    path = tmp_path / "servers.yaml"
    path.write_text(yaml.safe_dump({"servers": {}, **example}))
    path.chmod(0o600)
    load_config(path)


@pytest.mark.anyio
async def test_rules_about_resources_behave_as_documented(tmp_path: Path) -> None:
    documented = next(example for example in EXAMPLES if "blacklist" in example)
    reader = {"command": sys.executable, "args": [READER, "file"]}
    search = {key: value for key, value in documented["servers"]["search"].items() if key != "command"}
    servers = {"docs": reader, "search": {**reader, **search}, "files": reader}
    async with hub(tmp_path, servers, blacklist=documented["blacklist"], list_wait=30) as client:

        async def is_served(server: str, path: str) -> bool:
            try:
                await client.request("resources/read", {"uri": f"mcp-hub://{server}/file:///{path}"})
            except RpcError:
                return False
            return True

        await client.request("resources/list")
        for path in ("{}", "/{}", "./{}", "x/../{}", "%2e/{}"):
            is_certain = path in ("{}", "/{}")
            assert not await is_served("docs", path.format("private/s.txt")), path
            assert await is_served("docs", path.format("public/p.txt")) is is_certain
            assert await is_served("docs", path.format("etc/passwd")) is is_certain
            assert not await is_served("search", path.format("etc/passwd"))
            assert await is_served("search", path.format("private/s.txt")) is is_certain
            assert await is_served("files", path.format("private/s.txt"))
    async with hub(tmp_path, servers, blacklist=["file:///private*"], list_wait=30) as client:
        await client.request("resources/list")
        for server in servers:
            assert not await is_served(server, "private/s.txt")
            assert await is_served(server, "public/p.txt")
