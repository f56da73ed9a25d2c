"""The policy, the transport and the key that docs/extending.md and CONTRIBUTING.md add work as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import mcp_hub
import tests
from mcp_hub.transport import LinkLost
from mcp_hub.transport.peer import Peer
from tests.fakes.client import PATIENCE, fake, write_config
from tests.fakes.offers import nothing_offered

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()


def code_of(file: str) -> str:
    """The text of a file that docs/extending.md shows in full."""
    match = re.search(rf"`{re.escape(file)}`[^\n]*\n\n```python\n(.*?)```", TEXT, re.DOTALL)
    assert match is not None
    return match[1]


def section(title: str) -> str:
    match = re.search(rf"^## {title}\n(.*?)^## ", TEXT, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)


def package_with(tmp_path: Path, file: str | None, table: str, title: str) -> Path:
    """A copy of the package, perhaps with a new file, and with the lines that a section adds to one other file."""
    root = tmp_path / "copy"
    shutil.copytree(Path(mcp_hub.__file__).parent, root / "mcp_hub", ignore=shutil.ignore_patterns("__pycache__"))
    if file is not None:
        (root / file).write_text(code_of(file))
    text = (root / table).read_text()
    for block in blocks(title, "diff"):
        before = "".join(line[1:] for line in block.splitlines(keepends=True) if line[0] == " ")
        after = "".join(line[1:] for line in block.splitlines(keepends=True))
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    (root / table).write_text(text)
    return root


CALLS_A_HIDDEN_TOOL = """
import asyncio, sys
from mcp_hub.catalog import Route
from mcp_hub.errors import UnknownName
from mcp_hub.hub.composition import read_config
from mcp_hub.hub import Engine
from mcp_hub.policy import Call
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS

async def main():
    params = {"name": "echo", "arguments": {"text": "hello"}}
    async with Engine(read_config(sys.argv[1]).config) as hub:
        try:
            await hub.act(
                Call(TOOLS.act_method, "up__echo", Route("up", TOOLS, "echo"), params, "handshake", Envelope())
            )
        except UnknownName as error:
            print(f"{error.policy} {error.refuses}: {error}")

asyncio.run(main())
"""


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with a copy of the package, and without what is set for the pytest that runs this test."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_example_policy_needs_one_file_and_one_line_and_its_key_is_read(tmp_path: Path) -> None:
    root = package_with(tmp_path, "mcp_hub/policy/hidden.py", "mcp_hub/policy/chain.py", "Add a policy")
    (written,) = (yaml.safe_load(block) for block in blocks("Add a policy", "yaml"))
    entry = {**written["servers"]["up"], **fake()}
    config = str(write_config(tmp_path, {"up": entry}))
    listed = run(root, "-m", "mcp_hub", "tools", "--json", "--config", config)
    names = [tool["name"] for tool in json.loads(listed.stdout)]
    assert names, listed.stderr
    assert "up__echo" not in names
    called = run(root, "-c", CALLS_A_HIDDEN_TOOL, config)
    assert called.stdout == "hidden True: Unknown tool: up__echo\n", called.stderr


def test_the_documented_policy_test_passes_with_the_policy_and_fails_without_it(tmp_path: Path) -> None:
    root = package_with(tmp_path, "mcp_hub/policy/hidden.py", "mcp_hub/policy/chain.py", "Add a policy")
    test = root / "tests/policy/access/test_hidden.py"
    test.parent.mkdir(parents=True)
    for name in ("__init__.py", "conftest.py", "tiers.py", "fakes"):
        source = Path(tests.__file__).with_name(name)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / "tests" / name)
    test.write_text(code_of("tests/policy/access/test_hidden.py"))
    own = ("--basetemp", str(tmp_path / "temporary"))  # in the common one it would delete what former runs have left
    arguments = ("-m", "pytest", "-c", os.devnull, "--rootdir", str(root), *own, "-q", str(test))
    done = run(root, *arguments)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    chain = root / "mcp_hub/policy/chain.py"
    chain.write_text(chain.read_text().replace("    Hidden,\n", "", 1))
    assert "1 failed" in run(root, *arguments).stdout


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"hiden": {"tools": ["echo"]}}, "servers.up.hiden is not known; did you mean 'hidden'?"),
        ({"hidden": {"tols": ["echo"]}}, "servers.up.hidden.tols: is not known; did you mean 'tools'?"),
        ({"hidden": {"tools": 3}}, "servers.up.hidden.tools: must be a list"),
    ],
)
def test_the_key_of_the_example_policy_is_validated_like_any_other(tmp_path: Path, entry: Any, said: str) -> None:
    root = package_with(tmp_path, "mcp_hub/policy/hidden.py", "mcp_hub/policy/chain.py", "Add a policy")
    config = str(write_config(tmp_path, {"up": {**fake(), **entry}}))
    checked = run(root, "-m", "mcp_hub", "check", "--config", config)
    assert said in checked.stdout + checked.stderr


SERVES_FROM_MEMORY = """
import asyncio, sys
from mcp_hub.hub.composition import read_config
from mcp_hub.hub import Engine
from mcp_hub.protocol.kinds import TOOLS

def answer(message):
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "greeter", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]},
    }
    if "id" not in message:
        return None
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in results:
        return {**head, "result": results[message["method"]]}
    return {**head, "error": {"code": -32601, "message": "Method not found"}}

async def main():
    config = read_config(sys.argv[1]).config
    from mcp_hub.transport.memory_link import SERVERS
    SERVERS["greeter"] = answer
    async with Engine(config) as hub:
        print(config.servers[0].transport, *(await hub.settled_catalog()).names(TOOLS))

asyncio.run(main())
"""


def test_the_example_transport_needs_one_file_and_one_line_and_an_entry_selects_it(tmp_path: Path) -> None:
    root = package_with(tmp_path, "mcp_hub/transport/memory_link.py", "mcp_hub/config/dialect.py", "Add a transport")
    (written,) = (yaml.safe_load(block) for block in blocks("Add a transport", "yaml"))
    config = str(write_config(tmp_path, {"up": written["servers"]["up"]}))
    served = run(root, "-c", SERVES_FROM_MEMORY, config)
    assert served.stdout == "memory up__greet\n", served.stderr
    wrong = str(write_config(tmp_path, {"up": {"transport": "memory", "url": "http://greeter"}}))
    checked = run(root, "-m", "mcp_hub", "check", "--config", wrong)
    assert "url: must be a URL that begins with memory://" in checked.stdout + checked.stderr


async def test_the_example_transport_carries_requests_until_it_is_closed() -> None:
    names: dict[str, Any] = {"__name__": "mcp_hub.transport.memory_link"}
    exec(compile(code_of("mcp_hub/transport/memory_link.py"), "memory_link.py", "exec"), names)
    link = names["MemoryLink"](
        lambda message: {"jsonrpc": "2.0", "id": message["id"], "result": {"said": message["params"]}}
    )
    peer = Peer(link, notified=lambda *_: None, requested=nothing_offered, lost=lambda _: None)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LinkLost):
            await peer.request("ask", {"word": "early"})
        await link.open(peer)
        assert await peer.request("ask", {"word": "hello"}) == {"said": {"word": "hello"}}
        await peer.close()
        with pytest.raises(LinkLost):
            await peer.request("ask", {"word": "late"})


LOOKS_FOR_THE_KEY = """
import json, sys
from pathlib import Path
from mcp_hub.config.discovery import read_executed
from mcp_hub.downstream.page.config_view import ENTRY_RULES
from mcp_hub.hub.composition import read_config
from tests.documents import reference_keys

path = Path(sys.argv[1])
before, servers = read_executed(path).digest, read_config(path).config.servers
path.write_text(path.read_text().replace("true", "false"))
rows = [row[0] for _, rows in reference_keys.of_entry() for row in rows if "quiet" in row[0]]
spelled = [spellings for key, spellings in reference_keys.spellings() if "quiet" in key]
print(json.dumps({
    "values": {server.id: server.quiet for server in servers},
    "reconnects": servers[0].connection != read_config(path).config.servers[0].connection,
    "page": sorted({"quiet", "silent"} & ENTRY_RULES),
    "asks for trust again": read_executed(path).digest != before,
    "reference": [*rows, *spelled],
    "defaults": "`quiet`" in reference_keys.MEANINGS["defaults"],
}))
"""


def test_the_key_that_contributing_adds_in_one_place_is_known_wherever_keys_are(tmp_path: Path) -> None:
    root = package_with(tmp_path, None, "mcp_hub/config/models.py", "Add a key of an entry")
    (root / "tests").symlink_to(ROOT / "tests")
    servers = {"up": {"command": "x", "silent": True}, "other": {"command": "x"}, "third": {"command": "x", "quiet": 0}}
    looked = run(root, "-c", LOOKS_FOR_THE_KEY, str(write_config(tmp_path, servers, defaults={"quiet": "yes"})))
    assert json.loads(looked.stdout or "{}") == {
        "values": {"up": True, "other": True, "third": False},
        "reconnects": False,
        "page": ["quiet", "silent"],
        "asks for trust again": False,
        "reference": ["`quiet`", "`silent`"],
        "defaults": True,
    }, looked.stderr
    wrong = str(write_config(tmp_path, {"a": {"command": "x", "quiet": "loud"}, "b": {"command": "x", "quiett": True}}))
    checked = run(root, "-m", "mcp_hub", "check", "--config", wrong)
    assert checked.returncode != 0
    assert "quiet: must be true or false" in checked.stdout + checked.stderr
    assert "did you mean 'quiet'?" in checked.stdout + checked.stderr
