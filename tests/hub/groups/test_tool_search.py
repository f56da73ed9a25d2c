"""`hub_search`: by words at once, by meaning as soon as its process is ready, within a bounded answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.catalog.token_estimate import estimate_tokens, estimate_tool_tokens
from mcp_hub.hub.groups.active_groups import definitions
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import PATIENCE, StdioClient, fake, hub
from tests.fakes.processes import below
from tests.hub.groups.hearing import code
from tests.search.models import write_model

pytestmark = pytest.mark.anyio

LISTED = [
    ("get_forecast", "Returns the weather of the next days in a city."),
    ("send_mail", "Delivers an e-mail to somebody."),
    ("resize_image", "Scales a picture to a width and a height."),
    ("query_table", "Runs a SELECT statement on the database."),
    *((f"filler_{number}", f"Does the thing of number {number}.") for number in range(40)),
]
NO_WORD = "will it rain and be sunny tomorrow"
"""A query that has no word of `get_forecast`."""


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"place": {"type": "string"}, **properties}, "required": ["place"]}
    return {"name": name, "description": description, "inputSchema": schema}


@asynccontextmanager
async def searching(
    directory: Path, *, modern: bool = False, keep_catalog: bool = True, **root: Any
) -> AsyncIterator[StdioClient]:
    lists = directory / "lists.json"
    lists.write_text(json.dumps({"tools": [tool(*row) for row in LISTED]}))
    world = fake("--lists", str(lists), "--name", "world", keep_catalog=keep_catalog)
    servers = {"world": world, "b": fake("--name", "b")}
    async with hub(directory, servers, modern=modern, meta_tools=True, **root) as client:
        yield client


async def search(client: StdioClient, query: str, **options: Any) -> str:
    return await client.text("hub_search", {"query": query, **options})


async def found_by_meaning(client: StdioClient, query: str, name: str) -> str:
    """The answer as soon as a tool without a word of the query is the first in it."""
    async with asyncio.timeout(PATIENCE):
        while f"\n- {name}" not in "\n".join((answer := await search(client, query)).splitlines()[:2]):
            pass
    return answer


def process_of(client: StdioClient) -> psutil.Process | None:
    return next(iter(below(client.process.pid, "search")), None)


@pytest.mark.parametrize("modern", [False, True])
async def test_search_uses_keywords_until_the_embedding_process_is_ready(tmp_path: Path, modern: bool) -> None:
    async with searching(tmp_path, modern=modern) as client:
        await client.tool_names()
        assert process_of(client) is None  # nobody has searched
        first = await search(client, "forecast of a city")
        assert first.splitlines()[1] == "- world__get_forecast(place: string)"
        answer = await found_by_meaning(client, NO_WORD, "world__get_forecast")
        assert "Returns the weather of the next days in a city." in answer
        process = process_of(client)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        assert "- world__send_mail(place: string)" in await search(client, "send a mail")  # by words alone
        await found_by_meaning(client, NO_WORD, "world__get_forecast")  # by another process


async def test_a_client_that_never_listed_can_call_a_found_tool(tmp_path: Path) -> None:
    async with searching(tmp_path) as client:
        assert "- b__add(a?: number, b?: number)" in await search(client, "add numbers")
        assert await client.text("b__add", {"a": 1, "b": 2}) == "3"


async def test_a_search_result_has_twenty_lines_and_signatures_for_the_best_three(tmp_path: Path) -> None:
    async with searching(tmp_path) as client:
        brief = await search(client, "thing of number")
        assert brief.startswith("20 of ")
        assert sum(line.startswith("- ") for line in brief.splitlines()) == 20
        assert sum("(place: string)" in line for line in brief.splitlines()) == 3
        assert estimate_tokens(brief) <= 1200
        assert (
            sum("(place: string)" in line for line in (await search(client, "thing", detail="signature")).splitlines())
            == 10
        )
        full = json.loads(await search(client, "forecast", detail="full"))
        assert full["tools"][0]["inputSchema"]["required"] == ["place"]
        assert (await search(client, "numbers", server="b")).count("world__") == 0
        for arguments in ({"server": "nowhere"}, {"server": 5}, {"detail": "long"}, {"detail": 1}):
            assert code(await client.call("hub_search", {"query": "x", **arguments})) == "invalid_parameters"


async def test_search_uses_a_configured_embedding_model(tmp_path: Path) -> None:
    write_model(tmp_path / "model", {"zork": [1.0, 0.0, 0.0], "picture": [1.0, 0.0, 0.1], "mail": [0.0, 1.0, 0.0]})
    async with searching(tmp_path, search={"model": "model"}) as client:
        await found_by_meaning(client, "zork", "world__resize_image")


async def test_search_without_a_usable_model_uses_keywords(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with searching(tmp_path, search={"model": "empty"}) as client:
        for _ in range(3):
            assert "- world__send_mail(place: string)" in await search(client, "send a mail")


async def test_vectors_are_cached_beside_the_catalogs_in_private_files(tmp_path: Path) -> None:
    async with searching(tmp_path) as client:
        await found_by_meaning(client, NO_WORD, "world__get_forecast")
    (file,) = (tmp_path / "cache").glob("vectors-*")
    assert file.stat().st_mode & 0o777 == 0o600
    content, modified_at = file.read_bytes(), file.stat().st_mtime_ns
    assert b"forecast" not in content
    async with searching(tmp_path) as client:
        await found_by_meaning(client, NO_WORD, "world__get_forecast")
    assert file.stat().st_mtime_ns == modified_at  # nothing was new


async def test_no_vectors_are_cached_for_a_server_without_a_cached_catalog(tmp_path: Path) -> None:
    async with searching(tmp_path, keep_catalog=False) as client:
        await found_by_meaning(client, NO_WORD, "world__get_forecast")
    (file,) = (tmp_path / "cache").glob("vectors-*")
    number_of_b = len(file.read_bytes()) // (16 + 2 * 256)
    assert 0 < number_of_b < len(LISTED)


async def test_the_search_tools_description_counts_visible_tools_and_follows_the_catalog(
    tmp_path: Path,
) -> None:
    lists = tmp_path / "lists.json"
    says = "# World\n\n## Use\nbe kind\n\nand more"
    lists.write_text(json.dumps({"tools": [tool("changed", "x"), tool("secret", "x")], "instructions": says}))
    world = fake("--lists", str(lists), disable_tools=["secret"])

    async def listed(client: StdioClient) -> str:
        return str({wire["name"]: wire for wire in (await client.request("tools/list"))["tools"]}["hub_search"])

    async with hub(tmp_path, {"world": world}, expose="search") as client:
        assert "It searches 1 tool of 1 server: world (1): be kind." in await listed(client)  # below its headings
        lists.write_text(json.dumps({"tools": [tool("changed", "x"), tool("secret", "x"), tool("more", "x")]}))
        await client.call("world__changed", {"place": "x"})
        await client.notified("notifications/tools/list_changed")
        assert "It searches 2 tools of 1 server: world (2)" in await listed(client)


def catalog(servers: dict[str, int], about: dict[str, str]) -> Catalog:
    def source(server: str, count: int) -> CatalogSource:
        wires = [tool(f"get_thing_{number}", "x") for number in range(count)]
        items = tuple(Item(Route(server, TOOLS, wire["name"]), wire["name"], wire) for wire in wires)
        return CatalogSource(server, server, items)

    built = Catalog.build([source(*entry) for entry in servers.items()])
    built.about = lambda server: about.get(server, "")
    return built


def search_description(view: Catalog) -> str:
    return str(
        next(wire for wire in definitions((), ("hub_search",), view) if wire["name"] == "hub_search")["description"]
    )


def test_the_search_tools_description_names_the_servers_it_searches() -> None:
    text = search_description(
        catalog({"small": 1, "large": 3}, {"small": "Sends mail. Much more.", "other": "Secret."})
    )
    assert text.endswith("It searches 4 tools of 2 servers: large (3): thing; small (1): Sends mail.")
    assert "Secret" not in text
    assert search_description(catalog({}, {})) == search_description(Catalog.build(()))


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_the_search_tools_description_has_at_most_400_tokens(count: int) -> None:
    names = {f"a-server-with-a-long-name-{number}": 1 + number % 3 for number in range(count)}
    view = catalog(names, dict.fromkeys(names, "Does this and that with a great many things. And more."))
    for second_tool in ("hub_call", "hub_run"):
        (wire,) = (wire for wire in definitions((), ("hub_search", second_tool), view) if wire["name"] == "hub_search")
        assert estimate_tool_tokens(wire) <= 400
    assert f" of {count} server" in wire["description"]
    assert ("more." in wire["description"]) == (count > 20)
