"""The layers of ARCHITECTURE.md, read from the imports themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_hub
from tests.syntax import parsed

ROOT = Path(mcp_hub.__file__).parent

PURE = {"errors", "era", "names", "kinds", "text", "catalog", "merge", "routing_headers", "version"} | {
    "address_rules",
    "asking",
    "extended_schemas",
    "extensions",
    "instructions",
    "formats",
    "known_uris",
    "log_levels",
    "long_results",
    "loosening",
    "metrics",
    "native_tools",
    "openmetrics",
    "pinning",
    "principals",
    "raw_text_policy",
    "redaction",
    "resource_uris",
    "screening",
    "search_results",
    "spellings",
    "tasks",
    "titles",
    "url_rules",
    "urls",
    "virtual_paths",
}
"""Import nothing above themselves and do no I/O."""

ALLOWED = {
    "pure": set(),
    "config": {"pure", "file_stamps", "private_files"},
    "wire": {"pure", "config"},
    "private_files": set(),
    "kept": {"pure", "config", "wire", "private_files"},
    "credentials": {"pure", "config", "wire", "private_files"},
    "policy": {"pure", "config", "stalls"},
    "skills": {"pure", "config", "wire"},
    "upstream": {"pure", "config", "wire", "kept", "credentials", "skills", "stalls"},
    "local": {"pure", "wire", "private_files"},
    "builtin": {"pure", "config", "wire", "local"},
    "records": {"pure"},
    "chain": {"pure", "config", "policy"},
    "tracing": {"pure", "config", "policy"},
    "pin_file": {"pure", "config", "file_stamps"},
    "bridge": {"pure"},
    "own_servers": {"pure", "config", "policy", "upstream", "builtin"},
    "catalogs": {"pure", "upstream", "stalls"},
    "relay": {"pure", "policy", "upstream", "bridge", "stalls"},
    "file_stamps": {"pure"},
    "generation": {"pure", "config", "policy", "upstream", "chain", "own_servers", "pin_file", "tracing"},
    "generations": {"pure", "config", "wire", "kept", "policy", "upstream", "chain", "own_servers", "relay"}
    | {"generation", "file_stamps", "pin_file", "private_files", "credentials", "tracing"},
    "groups": {"pure", "config", "policy", "catalogs", "private_files"},
    "flagging": {"policy"},
    "hub": {
        "pure",
        "config",
        "wire",
        "kept",
        "policy",
        "upstream",
        "catalogs",
        "chain",
        "flagging",
        "generation",
        "generations",
    }
    | {"groups", "skills"},
    "serve": {"pure", "config", "wire", "policy", "catalogs", "hub"},
    "status": {"pure", "upstream", "hub"},
    "status_socket": {"private_files"},
    "stalls": set(),
    "cli": {"pure", "config", "wire", "kept", "policy", "upstream", "hub", "serve", "builtin", "records"}
    | {"status", "status_socket", "stalls", "pin_file", "credentials"},
    "toolkit": {"pure", "config", "wire", "kept", "policy", "upstream", "hub", "groups", "local", "records", "serve"},
    "__init__": {"pure", "config", "local", "toolkit"},
    "__main__": {"cli"},
}
"""Which layers a layer may import besides itself."""

FORBIDDEN_IN_PURE = {"asyncio", "socket", "subprocess", "os", "pathlib", "time", "random", "threading", "aiohttp"}


def layer(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return "__init__"
    return "pure" if parts[1] in PURE else parts[1]


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ["mcp_hub", *path.relative_to(ROOT).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


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


@pytest.mark.parametrize("module", sorted(modules()))
def test_every_module_imports_only_the_layers_below_it(module: str) -> None:
    own = layer(module)
    known = modules()
    targets = {name for name in imported(modules()[module]) if name in known and name != "mcp_hub"}
    above = {name for name in targets if layer(name) != own and layer(name) not in ALLOWED[own]}
    # Data that frames.py defines (Message, Raw, encode) is the wire's vocabulary, not its I/O.
    assert not above - {"mcp_hub.wire", "mcp_hub.wire.frames"}, f"{module} reaches up to {sorted(above)}"


@pytest.mark.parametrize("module", sorted(name for name in modules() if layer(name) == "pure"))
def test_pure_modules_do_no_input_or_output(module: str) -> None:
    assert not {name.split(".")[0] for name in imported(modules()[module])} & FORBIDDEN_IN_PURE


def test_nothing_heavy_is_imported_on_the_way_to_the_first_answer_over_stdio() -> None:
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
    program = (
        "import sys\n"
        "import mcp_hub.cli.serve, mcp_hub.serve.stdio, mcp_hub.wire.stdio\n"
        f"print(*[name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_requests_to_servers_over_http_import_no_library_but_the_parser() -> None:
    heavy = ["aiohttp", "httpx2", "anyio", "uvicorn", "certifi", "pydantic"]
    program = (
        "import asyncio, sys\n"
        "from mcp_hub.config.models import Server\n"
        "from mcp_hub.wire.http_client import HttpLink\n"
        "from mcp_hub.wire.link import LinkError\n"
        "from mcp_hub.wire.sse_client import SseLink\n"
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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == ([], "")
