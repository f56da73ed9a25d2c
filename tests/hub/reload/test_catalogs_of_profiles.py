"""What is kept for a profile ends with it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.callers import a_principal
from tests.fakes.client import fake, write_config

pytestmark = pytest.mark.anyio


async def test_no_catalog_is_built_for_a_profile_that_a_reload_has_removed(tmp_path: Path) -> None:
    profiles = {"echoing": {"tools": ["a/echo"]}, "adding": {"tools": ["a/add"]}}
    config = read_config(write_config(tmp_path, {"a": fake()}, profiles=profiles), {}).config
    async with Engine(config) as hub:
        await hub.settled_catalog()
        callers = [a_principal(name, name) for name in profiles]
        assert [(await hub.catalogs.settled_for(caller)).names(TOOLS) for caller in callers] == [
            ("a__echo",),
            ("a__add",),
        ]
        await hub.renew(msgspec.structs.replace(config, profiles=config.profiles[:1]))
        await hub.catalogs.wait_until_built()
        assert set(hub.catalogs._profile_catalogs) == {"echoing"}
