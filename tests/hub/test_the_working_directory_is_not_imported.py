"""A client starts the hub in whatever directory is open there: nothing of it is executed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.client import HUB_BY_EXEC, PATIENCE, StdioClient, write_config

pytestmark = pytest.mark.anyio


async def test_files_of_the_working_directory_do_not_run_in_the_children_of_the_hub(tmp_path: Path) -> None:
    project, tools = tmp_path / "project", tmp_path / "tools"
    project.mkdir()
    tools.mkdir()
    (tools / "own.py").write_text("from mcp_hub import tool\n@tool\ndef own() -> str:\n    return 'own'\n")
    ran = tmp_path / "ran"
    for module in ("concurrent", "docstring_parser", "aiohttp", "markitdown", "yarl", "decimal"):
        (project / f"{module}.py").write_text(f"open({str(ran)!r}, 'a').write({module!r})\n")
    config = write_config(tmp_path, {"local": {"tools_dir": str(tools)}, "web": {"builtin": "web"}})
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        HUB_BY_EXEC[0], "-P", *HUB_BY_EXEC[1:], "serve", "--config", str(config),
        stdin=pipe, stdout=pipe, stderr=pipe, limit=2**24, cwd=project, start_new_session=True,
    )  # fmt: skip
    client = StdioClient(process)
    try:
        async with asyncio.timeout(PATIENCE):
            await client.initialize()
            assert await client.text("local__own") == "own"
            refused = await client.call("web__scrape_website", {"url": "http://127.0.0.1:9/"})
            assert refused["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
    finally:
        await client.close()
    assert not ran.exists()
