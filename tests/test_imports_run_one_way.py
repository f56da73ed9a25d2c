"""The layers of ARCHITECTURE.md, read from the imports themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_hub
from tests.fakes.client import fake, spawned, write_config
from tests.syntax import parsed

ROOT = Path(mcp_hub.__file__).parent

ROOMS = [
    "__main__",
    "cli",
    "diagnosis",
    "library",
    "downstream",
    "hub",
    "policy",
    "upstream",
    "servers",
    "search",
    "schema",
    "catalog",
    "oauth",
    "observability",
    "store",
    "registry",
    "transport",
    "clients",
    "editing",
    "config",
    "security",
    "protocol",
    "text",
    "errors",
    "codes",
    "version",
]
"""From the top down: a module imports from its own room and from those below it."""

PURE = (
    "mcp_hub.catalog",
    "mcp_hub.codes",
    "mcp_hub.config.native_tools",
    "mcp_hub.errors",
    "mcp_hub.hub.self_description",
    "mcp_hub.library.formats",
    "mcp_hub.observability.call_metrics",
    "mcp_hub.policy.guard",
    "mcp_hub.policy.long_results",
    "mcp_hub.protocol",
    "mcp_hub.schema.lenient_schema",
    "mcp_hub.schema.schema_edits",
    "mcp_hub.search",
    "mcp_hub.security",
    "mcp_hub.text",
    "mcp_hub.version",
)
"""Packages and modules that do no I/O."""
PURE_INITS = ("mcp_hub.transport.http1",)
"""Packages of which only the module `__init__` does none."""
ALLOWED = {
    "mcp_hub.protocol.frames": {"asyncio", "time"},
    "mcp_hub.protocol.questions": {"asyncio"},
    "mcp_hub.search.embedding": {"pathlib"},
    "mcp_hub.security.private_files": {"asyncio", "os", "pathlib", "time"},
}
"""What these use all the same: files, a task for each answer of a server, the time and memory of large frames."""
FORBIDDEN_IN_PURE = {"asyncio", "socket", "subprocess", "os", "pathlib", "time", "random", "threading", "aiohttp"}


def room(module: str) -> str:
    return module.split(".")[1]


def modules() -> dict[str, Path]:
    paths = {}
    for path in ROOT.rglob("*.py"):
        parts = ["mcp_hub", *path.relative_to(ROOT).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        paths[".".join(parts)] = path
    return paths


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path} imports relatively"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_every_module_imports_only_lower_packages() -> None:
    paths = modules()
    del paths["mcp_hub"]
    upwards = [
        f"{module} imports {name}"
        for module, path in paths.items()
        for name in imported(path) & paths.keys()
        if ROOMS.index(room(name)) < ROOMS.index(room(module))
    ]
    assert upwards == []


def test_the_root_has_at_most_six_modules_and_every_package_is_in_the_table() -> None:
    names = {path.stem if path.is_file() else path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert names - {"__init__", "py"} == set(ROOMS)
    assert len([path for path in ROOT.iterdir() if path.is_file() and path.suffix == ".py"]) <= 6


def test_pure_modules_do_no_input_or_output() -> None:
    pure = {module: path for module, path in modules().items() if module.startswith(PURE) or module in PURE_INITS}
    impure = [
        f"{module} imports {name}"
        for module, path in pure.items()
        for name in {imported_name.split(".")[0] for imported_name in imported(path)} & FORBIDDEN_IN_PURE
        if name not in ALLOWED.get(module, ())
    ]
    assert pure
    assert impure == []


@pytest.mark.anyio
async def test_nothing_heavy_is_imported_on_the_way_to_the_first_answer_over_stdio(tmp_path: Path) -> None:
    heavy = [
        "mcp",
        "mcp_types",
        "fastmcp",
        "aiohttp",
        "httpx2",
        "keyring",
        "uvicorn",
        "rich",
        "starlette",
        "markitdown",
        "opentelemetry",
        "playwright",
        "pydantic",
    ]
    imported_file = tmp_path / "imported"
    program = (
        "import atexit, pathlib, sys\n"
        "from mcp_hub.cli import main\n"
        f"names = lambda: ' '.join(sorted({{name.partition('.')[0] for name in sys.modules}}))\n"
        f"atexit.register(lambda: pathlib.Path({str(imported_file)!r}).write_text(names()))\n"
        "sys.exit(main())"
    )
    config = write_config(tmp_path, {"up": fake()})
    async with spawned([sys.executable, "-c", program, "serve", "--config", str(config)]) as client:
        assert await client.text("up__echo", {"text": "first"}) == "first"
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.exited() == 0
    assert "mcp_hub" in imported_file.read_text().split()
    assert not {*heavy} & {*imported_file.read_text().split()}


def test_requests_to_servers_over_http_import_no_library_but_the_parser() -> None:
    heavy = ["aiohttp", "httpx2", "anyio", "uvicorn", "certifi", "pydantic"]
    program = (
        "import asyncio, sys\n"
        "from mcp_hub.config.models import Server\n"
        "from mcp_hub.transport.http_link import HttpLink\n"
        "from mcp_hub.transport import LinkError\n"
        "from mcp_hub.transport.sse_link import SseLink\n"
        "async def main():\n"
        "    for transport, kind in (('http', HttpLink), ('sse', SseLink)):\n"
        "        url = 'https://127.0.0.1:1/mcp'\n"
        "        link = kind(Server(id='up', transport=transport, url=url, namespace='up'))\n"
        "        try:\n"
        "            await link.open(None)\n"
        "            await link.send({'jsonrpc': '2.0', 'method': 'a'})\n"
        "        except LinkError as error:\n"
        "            assert not error.executed, error\n"
        "        else:\n"
        "            raise AssertionError\n"
        "        await link.close()\n"
        "asyncio.run(main())\n"
        f"print(*[name for name in {heavy!r} if name in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (completed.stdout.split(), completed.stderr) == ([], "")
