"""Templates of real FastMCP and SDK servers: what they take directly is read through the hub, and rules hold on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import RpcError, StdioClient, fake, hub, spawned
from tests.fakes.forks import python_with_sdk

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("template_server.py"))
TEXTS = {
    "fastmcp": {
        "file:///one.txt": "path one.txt",
        "file:///a/b/c.txt": "path a/b/c.txt",
        "file:///a%20b/%C3%A9.txt": "path a b/é.txt",
        "file:///a/b.txt?x=1": "path a/b.txt",
        "file:///a/b.txt#here": "path a/b.txt",
        "docs://a/b": "page a b",
        "docs://a/b%2Fc": "page a b/c",
        "docs://a/b?x=1": "page a b",
        "search://pages": "search - -",
        "search://pages?q=x": "search x -",
        "search://pages?lang=de&q=x%20y": "search x y de",
        "search://pages?q=x&more=1#there": "search x -",
        "tree://r/in/a/b": "tree r a/b",
        "menu://caf%C3%A9/soup": "menu soup",
        "menu://caf%c3%a9/soup": "menu soup",
        "menu://café/soup": "menu soup",
    },
    "sdk": {
        "file:///one.txt": "path one.txt",
        "file:///a/b/c.txt": "path a/b/c.txt",
        "docs://a/b": "page a b",
        "docs://a/b%2Fc": "page a b/c",
        "search://pages": "search - -",
        "search://pages?lang=de&q=x": "search x de",
        "search://pages?q=x#there": "search x -",
        "tree://all/a/b/c": "tree a b c",
        "tree://all": "tree ",
        "image://photo.png": "image photo png",
        "point://at;x=1;y=2": "point 1 2",
        "book://one#two": "book two",
    },
}
NOWHERE = ("docs://a", "docs://a/b/c", "search://other?q=x", "nothing://x", "xfile:///a")


def entry(library: str, **keys: Any) -> dict[str, Any]:
    return {"command": python_with_sdk(), "args": [SERVER, library], **keys}


async def read(client: StdioClient, uri: str) -> str | None:
    """The text of a resource; None if the answer is an error."""
    try:
        (content,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    except RpcError:
        return None
    return str(content["text"])


@pytest.fixture(params=sorted(TEXTS))
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def client(library: str, tmp_path: Path) -> AsyncIterator[StdioClient]:
    async with hub(tmp_path, {"s": entry(library)}, list_wait=60) as client:
        await client.request("resources/templates/list")
        yield client


async def test_a_template_accepts_the_same_uris_directly_and_through_the_hub(library: str, client: StdioClient) -> None:
    async with spawned([python_with_sdk(), SERVER, library]) as direct:
        await direct.initialize()
        for uri, text in TEXTS[library].items():
            assert (await read(direct, uri), await read(client, uri)) == (text, text), uri
            assert await read(client, f"mcp-hub://s/{uri}") == text, uri
        for uri in NOWHERE:
            assert (await read(direct, uri), await read(client, uri)) == (None, None), uri


async def test_rules_apply_to_uris_of_permissive_templates(library: str, tmp_path: Path) -> None:
    files = FILES[library]
    servers = {
        "denied": entry(library, disable_resources=["file:///private*", "docs://*/secret", "search://pages?q=secret*"]),
        "allowed": entry(library, enable_resources=["file:///public/*", "search://pages?lang=de*"]),
        "without": entry(library, disable_resources=[files]),
        "only": entry(library, enable_resources=["docs://{section}/{name}"]),
    }
    private = ("private/s.txt", "./private/s.txt", "/private/s.txt", "%70rivate/s.txt", "private%2Fs.txt")
    tails = ("", "?x=1", "#x", "/", "?/../public/p.txt")
    async with hub(tmp_path, servers, list_wait=60) as client:

        async def read_from(server: str, uri: str) -> str | None:
            return await read(client, f"mcp-hub://{server}/{uri}")

        templates = (await client.request("resources/templates/list"))["resourceTemplates"]
        listed = [item["uriTemplate"].removeprefix("mcp-hub://") for item in templates]
        assert f"allowed/{files}" in listed  # what it makes is judged one by one
        assert not {f"without/{files}", f"only/{files}", "allowed/docs://{section}/{name}"} & set(listed)
        for server in ("denied", "allowed"):
            assert await read_from(server, "file:///public/p.txt") == "path public/p.txt"
            for path in private:
                for tail in tails:
                    assert await read_from(server, f"file:///{path}{tail}") is None, path + tail
            assert await read_from(server, "docs://a/secret") is None
            assert await read_from(server, "search://pages?lang=de&q=secret") is None
        assert await read_from("denied", "docs://a/b") == "page a b"
        assert await read_from("allowed", "docs://a/b") is None
        assert await read_from("denied", "search://pages?q=open") == "search open -"
        assert await read_from("allowed", "search://pages?lang=de") == "search - de"
        for server in ("without", "only"):
            assert await read_from(server, "file:///a.txt") is None
            assert await read_from(server, "docs://a/b") == "page a b"
        assert await read_from("only", "search://pages") is None


FILES = {"fastmcp": "file:///{path*}", "sdk": "file:///{+path}"}


@pytest.mark.parametrize("order", [("first", "second", "exact"), ("exact", "second", "first")])
async def test_the_server_with_the_most_specific_template_reads_a_uri_and_the_first_among_equals(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    templates = {"first": "file:///{+path}", "second": "file:///{path*}", "exact": "file:///docs/{path*}"}
    servers = {
        name: fake("--name", name, "--template", templates[name], "--record", str(tmp_path / name)) for name in order
    }
    async with hub(tmp_path, servers, list_wait=60) as client:
        await client.request("resources/templates/list")
        for uri in ("file:///docs/a/b", "file:///docs/a?x=1", "file:///other/a"):
            assert await read(client, uri) == f"text of {uri}"
    read_counts = {name: (tmp_path / name).read_text().count('"resources/read"') for name in order}
    general = next(name for name in order if name != "exact")
    assert read_counts == {"first": 0, "second": 0, "exact": 2, general: 1}
