"""The wheel in empty environments: the base alone, with each extra, with all, and beside other people's packages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.dependencies.environments import PLAIN, ROOT, Environment, Maker
from tests.downstream.network.issuer import AUDIENCE, issuing
from tests.downstream.network.visitor import visiting
from tests.fakes.client import PATIENCE, StdioClient, fake, spawned, write_config
from tests.oauth.authority import CLIENT, SECRET, authority
from tests.oauth.file_keyring import BACKEND
from tests.observability.spans.collector import collecting
from tests.servers.scrape.site import serving

pytestmark = pytest.mark.anyio

MAX_BYTES = 75_400_000
"""Bytes of the files of the base. On a disk with blocks of 4 KiB they take a twelfth more."""
OPTIONAL = (
    "mcp",
    "fastmcp",
    "markitdown",
    "openpyxl",
    "pptx",
    "playwright",
    "keyring",
    "httpx2",
    "opentelemetry.sdk",
    "wordllama",
)
CHARTER = ("mcp", "fastmcp", "anyio", "pydantic", "markitdown", "playwright", "pytest")
EXTRAS = ("web", "browser", "oauth", "verify", "keyring", "otel", "search")
NATIVE = {"name": "rest", "api_url": "http://127.0.0.1:1/x", "description": "One request."}
OAUTH = {"url": "http://127.0.0.1:1/mcp", "auth": "oauth"}


def install(extra: str) -> str:
    """The command that installs it."""
    return f"pip install 'mcp-hub-gateway[{extra}]'"


def commands(text: str) -> set[str]:
    return set(re.findall(r"pip install '[^']*'", text))


@pytest.fixture(scope="module")
def base(maker: Maker) -> Environment:
    return maker.base()


@contextlib.asynccontextmanager
async def serves(
    environment: Environment, config: Path, env: dict[str, str] | None = None
) -> AsyncIterator[StdioClient]:
    """A client of the hub that is installed there."""
    async with spawned([environment.hub, "serve", "--config", str(config)], env={**PLAIN, **(env or {})}) as client:
        await client.initialize()
        yield client


async def assert_it_serves(environment: Environment, directory: Path) -> None:
    """It is imported, serves over stdio and over HTTP, and calls servers over both."""
    done = environment.run("python", "-c", "import mcp_hub; print(mcp_hub.__file__, mcp_hub.Hub, mcp_hub.ToolManager)")
    assert done.stdout.startswith(str(environment.directory)), done.stderr
    inner, outer = directory / "inner", directory / "outer"
    inner.mkdir()
    outer.mkdir()
    network = [environment.hub, "serve", "--http", "--port", "0", "--config", str(write_config(inner, {"up": fake()}))]
    async with spawned(network, env=PLAIN) as listener:
        await listener.until(lambda: b"Serving" in listener.stderr)
        match = re.search(rb"http://127\.0\.0\.1:\d+/mcp", listener.stderr)
        assert match is not None
        servers = {"up": fake(), "far": {"url": match[0].decode(), "namespace": "far"}}
        async with serves(environment, write_config(outer, servers)) as client:
            assert await client.text("up__echo", {"text": "near"}) == "near"
            assert await client.text("far__up__echo", {"text": "far"}) == "far"
        assert b"pip install" not in client.stderr + listener.stderr
        listener.process.terminate()


def test_the_base_installation_has_no_packages_of_extras(base: Environment) -> None:
    assert base.installed([*OPTIONAL, "aiohttp"]) == []
    files = [path for path in base.site_packages.rglob("*") if path.is_file()]
    assert any(path.suffix == ".pyc" for path in files)
    # Not blocks of the disk: how many a file has depends on when the file system writes it. And not the path of the
    # environment, which is in each file of bytecode: how long it is depends on who runs the test.
    prefix = f"{base.site_packages}/".encode()
    sizes = [len(path.read_bytes().replace(prefix, b"")) for path in files]
    assert sum(sizes) <= MAX_BYTES


async def test_the_base_serves_and_calls_without_mentioning_extras(base: Environment, tmp_path: Path) -> None:
    await assert_it_serves(base, tmp_path)


async def test_search_without_its_extra_uses_keywords(base: Environment, tmp_path: Path) -> None:
    async with serves(base, write_config(tmp_path, {"up": fake()}, meta_tools=True)) as client:
        for _ in range(3):
            assert "- up__add(" in await client.text("hub_search", {"query": "add"})
            assert "No tool was found" in await client.text("hub_search", {"query": "take a nap"})
        assert b"pip install" not in client.stderr


def test_both_commands_are_installed_as_uvx_and_pipx_run_the_distribution_name(base: Environment) -> None:
    for command in ("mcp-hub", "mcp-hub-gateway"):
        assert base.run(command, "--version").stdout.startswith("mcp-hub "), command


# What each extra is for, in a configuration: (servers, root keys). The first line of `check` about it has the command.
NEEDING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "builtin: web": ("web", {"it": {"builtin": "web"}}, {}),
    "builtin: browser": ("browser", {"it": {"builtin": "browser"}}, {}),
    "auth: oauth": ("oauth", {"it": OAUTH}, {}),
    "${keyring:}": ("keyring", {"it": fake(env={"A": "${keyring:service/user}"})}, {}),
    "token_store": ("keyring", {}, {"token_store": "keyring"}),
    "tracing": ("otel", {}, {"tracing": {"enabled": True}}),
    "fallback": ("web", {}, {"fallback": {"tools": ["scrape_website"]}}),
    "search": ("search", {}, {"search": {"model": "model"}}),
}


@pytest.mark.parametrize("what", NEEDING)
async def test_check_and_the_log_print_the_command_that_installs_a_missing_extra(
    base: Environment, tmp_path: Path, what: str
) -> None:
    extra, servers, root = NEEDING[what]
    config = write_config(tmp_path, {"up": fake(), **servers}, **root)
    done = base.run("mcp-hub", "check", "--config", config)
    assert done.returncode == 0, done.stderr
    assert commands(done.stdout + done.stderr) == {install(extra)}
    if servers:
        assert re.search(r"^it\s+disabled", done.stdout, re.MULTILINE), done.stdout
    async with serves(base, config) as client:
        assert await client.text("up__echo", {"text": "served"}) == "served"
        assert [name for name in await client.tool_names() if not name.startswith("up__")] == []
    assert commands(client.stderr.decode()) == {install(extra)}


async def test_native_tools_need_no_extra(base: Environment, tmp_path: Path) -> None:
    native = tmp_path / "tools" / "native"
    native.mkdir(parents=True)
    (native / "rest.json").write_text(json.dumps(NATIVE))
    config = write_config(tmp_path, {"up": fake()}, tools_dir="tools")
    done = base.run("mcp-hub", "check", "--config", config)
    assert commands(done.stdout) == set(), done.stdout
    async with serves(base, config) as client:
        assert "rest" in " ".join(await client.tool_names())


@pytest.mark.parametrize("command", [["check"], ["serve", "--http", "--port", "0"]])
def test_a_verifier_without_its_packages_is_refused_at_startup(
    base: Environment, tmp_path: Path, command: list[str]
) -> None:
    jwt = {"issuer": "https://a.example", "audience": ["x"], "jwks_uri": "https://a.example/keys"}
    config = write_config(tmp_path, {"up": fake()}, listen={"verify": {"jwt": jwt}})
    done = base.run("mcp-hub", *command, "--config", config)
    assert done.returncode == 2
    assert commands(done.stderr) == {install("verify")}


@pytest.mark.parametrize("command", [["login", "it"], ["logout", "it"]])
def test_commands_that_need_an_extra_print_how_to_install_it(
    base: Environment, tmp_path: Path, command: list[str]
) -> None:
    config = write_config(tmp_path, {"it": OAUTH})
    done = base.run("mcp-hub", *command, "--config", config)
    assert done.returncode == 2
    assert commands(done.stderr) == {install("oauth")}


@pytest.mark.parametrize("command", [[], ["install"]])
def test_the_browser_command_prints_how_to_install_its_driver(base: Environment, command: list[str]) -> None:
    done = base.run("mcp-hub", "browser", *command)
    assert done.returncode == 1
    assert commands(done.stderr) == {install("browser")}


def test_a_built_in_server_without_its_extra_exits_with_the_install_command(base: Environment) -> None:
    done = base.run("python", "-m", "mcp_hub.servers", "web")
    assert done.returncode == 1
    assert commands(done.stderr) == {install("web")}


async def test_a_result_says_why_the_hub_cannot_fetch_a_page_itself(base: Environment, tmp_path: Path) -> None:
    lists = {"tools": [{"name": "scrape_website", "inputSchema": {"type": "object"}}]}
    (tmp_path / "lists.json").write_text(json.dumps(lists))
    switch = tmp_path / "hang"
    servers = {"up": fake("--lists", str(tmp_path / "lists.json"), "--hang-if", str(switch), namespace="")}
    async with serves(base, write_config(tmp_path, servers)) as client:
        assert await client.tool_names() == ["scrape_website"]
    assert b"pip install" not in client.stderr  # the default is silent until somebody needs it
    config = write_config(tmp_path, servers, fallback={"timeout": 1})
    async with serves(base, config) as client:
        await client.tool_names()
        switch.touch()
        result = await client.call("scrape_website", {"url": "http://127.0.0.1:1/"})
    assert result["_meta"]["mcp-hub/error"]["code"] == "timeout"
    assert commands(result["content"][0]["text"]) == {install("web")}


def test_servers_yaml_reports_the_missing_extra_of_its_entry_in_the_base(base: Environment) -> None:
    done = base.run("mcp-hub", "check", "--config", ROOT / "servers.yaml")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^local\s+ok", done.stdout, re.MULTILINE), done.stdout
    assert commands(done.stdout) == {install("web")}


async def uses_web(environment: Environment, directory: Path) -> None:
    async with serving() as site:
        page = site.put("/page", "<html><body><h1>Here</h1></body></html>", "text/html")
        empty = site.put("/empty", "<html><body><script>run()</script></body></html>", "text/html")
        config = write_config(directory, {"web": {"builtin": "web"}}, web={"allow_addresses": ["127.0.0.1"]})
        async with serves(environment, config) as client:
            assert await client.text("web__scrape_website", {"url": page}) == "# Here"
            text = await client.text("web__scrape_website", {"url": empty})
            assert commands(text) == {install("browser")}


async def uses_browser(environment: Environment, directory: Path) -> None:
    assert "browser: " in environment.run("mcp-hub", "browser").stdout
    async with serving() as site:
        page = site.put("/page", "<html><title>Shown</title><body>x</body></html>", "text/html")
        config = write_config(directory, {"b": {"builtin": "browser"}}, web={"allow_addresses": ["127.0.0.1"]})
        async with serves(environment, config) as client:
            assert "Title: Shown" in await client.text("b__browser_navigate", {"url": page})


async def uses_oauth(environment: Environment, directory: Path) -> None:
    async with authority() as server:
        auth = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": SECRET, "scopes": "read"}
        config = write_config(directory, {"a": {"url": server.url, "auth": auth}}, token_dir=str(directory / "tokens"))
        async with serves(environment, config) as client:
            assert await client.text("a__whoami") == "read"


async def uses_verify(environment: Environment, directory: Path) -> None:
    async with issuing() as issuer:
        jwt = {"issuer": issuer.url, "audience": [AUDIENCE], "jwks_uri": f"{issuer.url}/keys"}
        config = write_config(directory, {"up": fake()}, listen={"verify": {"jwt": jwt}})
        argv = [environment.hub, "serve", "--http", "--port", "0", "--config", str(config)]
        async with spawned(argv, env=PLAIN) as process:
            await process.until(lambda: b"Serving" in process.stderr)
            match = re.search(rb"(http://127\.0\.0\.1:\d+)/mcp", process.stderr)
            assert match is not None
            base = match[1].decode()
            async with httpx2.AsyncClient(base_url=base) as http:
                assert (await http.post("/mcp", json={})).status_code == 401
            async with visiting(base, "modern", issuer.token()) as visitor:
                assert await visitor.text("up__echo", {"text": "let in"}) == "let in"
            process.process.terminate()


async def uses_keyring(environment: Environment, directory: Path) -> None:
    ring_file = directory / "kept.json"
    ring_file.write_text(json.dumps({"service\nuser": "out of the keyring"}))
    (directory / "file_keyring.py").write_text((ROOT / "tests/oauth/file_keyring.py").read_text())
    backend = BACKEND.removeprefix("tests.oauth.")
    env = {"PYTHONPATH": str(directory), "PYTHON_KEYRING_BACKEND": backend, "TEST_KEYRING": str(ring_file)}
    config = write_config(directory, {"up": fake(env={"A": "${keyring:service/user}"})})
    async with serves(environment, config, env) as client:
        assert json.loads(await client.text("up__environ"))["A"] == "out of the keyring"


async def uses_otel(environment: Environment, directory: Path) -> None:
    with collecting() as collector:
        config = write_config(directory, {"up": fake()}, tracing=collector.url)
        done = environment.run("mcp-hub", "check", "--config", config)
        assert commands(done.stdout + done.stderr) == set()
        async with serves(environment, config) as client:
            assert await client.text("up__echo", {"text": "traced"}) == "traced"
        assert "execute_tool up__echo" in {span.name for span in collector.wait(1)}


async def uses_search(environment: Environment, directory: Path) -> None:
    async with serves(environment, write_config(directory, {"up": fake()}, meta_tools=True)) as client:
        async with asyncio.timeout(PATIENCE):
            while "- up__sleep(" not in await client.text("hub_search", {"query": "take a nap"}):
                pass


USES: dict[str, Callable[[Environment, Path], Any]] = {
    "web": uses_web,
    "browser": uses_browser,
    "oauth": uses_oauth,
    "verify": uses_verify,
    "keyring": uses_keyring,
    "otel": uses_otel,
    "search": uses_search,
}


@pytest.mark.parametrize("extra", EXTRAS)
async def test_with_an_extra_installed_its_feature_works(maker: Maker, tmp_path: Path, extra: str) -> None:
    environment = maker.with_extras(extra)
    await USES[extra](environment, tmp_path)


async def test_with_all_extras_nothing_is_missing(maker: Maker, tmp_path: Path) -> None:
    environment = maker.with_extras("all")
    assert environment.installed([*OPTIONAL, *CHARTER]) == [*OPTIONAL, *CHARTER]
    await assert_it_serves(environment, tmp_path)
    done = environment.run("mcp-hub", "check", "--config", ROOT / "servers.yaml")
    assert (done.returncode, commands(done.stdout + done.stderr)) == (0, set())
    assert re.search(r"^web\s+ok", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(
    ("peer", "package", "version"),
    [
        ("agentscope1", "agentscope", "1.0.10"),
        ("agentscope1_newest", "agentscope", "1.0.21"),
        ("agentscope2", "agentscope", "2.0.11"),
        ("agently", "agently", "4.1.4.10"),
        ("langchain", "langchain_core", "1.8.3"),
    ],
)
async def test_the_base_installs_next_to_a_framework_and_serves_within_its_program(
    maker: Maker, tmp_path: Path, peer: str, package: str, version: str
) -> None:
    environment = maker.beside(peer)
    await assert_it_serves(environment, tmp_path)
    config = write_config(tmp_path, {"up": fake()})
    program = (
        "import asyncio, importlib.metadata, sys\n"
        f"import {package}\n"
        "from mcp_hub import Hub\n"
        "async def main():\n"
        "    async with Hub.from_config(sys.argv[1]) as hub:\n"
        "        result = await hub.call('up', 'echo', {'text': 'in one program'})\n"
        "        print(result['content'][0]['text'])\n"
        f"print(importlib.metadata.version({package!r}))\n"
        "asyncio.run(main())\n"
    )
    done = environment.run("python", "-c", program, config)
    assert {version, "in one program"} <= {*done.stdout.splitlines()}, done.stderr
