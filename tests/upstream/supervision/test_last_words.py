"""The last words in an error are the server's own, and what it lacks is read from all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import said
from tests.fakes.client import hub, write_config
from tests.peers.argument_servers import SERVERS1
from tests.peers.programs import MCP1, NODE, installed

pytestmark = pytest.mark.anyio

DIES = """
import os, sys
{imports}
server = FastMCP("x")

@server.tool()
def fails() -> str:
    os._exit(3)

print("the index is damaged", file=sys.stderr, flush=True)
server.run({run})
"""
NODE_SERVER = """
const key = process.env.SEARCH_API_KEY;
function a(n) { if (n) return a(n - 1); if (!key) throw new Error("SEARCH_API_KEY is required"); }
a(12);
"""


@pytest.mark.parametrize(
    ("python", "imports", "run"),
    [
        (MCP1, "from mcp.server.fastmcp import FastMCP", ""),
        (SERVERS1 / "python", "from fastmcp import FastMCP", "show_banner=False"),
    ],
    ids=["the SDK's FastMCP", "FastMCP 3"],
)
async def test_the_probe_of_the_hub_does_not_replace_the_last_words_of_a_real_server(
    tmp_path: Path, python: Path, imports: str, run: str
) -> None:
    program = tmp_path / "server.py"
    program.write_text(DIES.format(imports=imports, run=run))
    entry = {"command": installed(python), "args": [str(program)], "retry": "off"}
    async with hub(tmp_path, {"up": entry}) as client:
        text = (await client.call("up__fails"))["content"][0]["text"]
    assert "the index is damaged" in text
    assert not any(echo in text for echo in ("server/discover", "Processing request", "errors.pydantic.dev"))


def test_a_server_keeps_its_own_validation_errors(tmp_path: Path) -> None:
    lines = ["1 validation error for Settings", "API_TOKEN", "  Field required [type=missing, input_value={}]"]
    program = f"import sys; sys.exit({chr(10).join(lines)!r})"
    out = said(
        "check", "--config", str(write_config(tmp_path, {"a": {"command": sys.executable, "args": ["-c", program]}}))
    )
    assert all(line.strip() in out.out + out.err for line in lines)


def test_a_variable_is_found_before_the_stack_of_a_program_of_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_API_KEY", "here-abcdef0123456789")
    entry = {"command": installed(NODE), "args": ["-e", NODE_SERVER]}
    path = write_config(tmp_path, {"a": entry})
    reported = said("check", "--config", str(path))
    assert codes.VARIABLE_NOT_PASSED in reported.codes
    assert "Error: SEARCH_API_KEY is required" in reported.out + reported.err
