"""The official interface on loopback, a directory of files, and the bundled list."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_hub.registry import RegistryError, inputs_of, origin_client
from mcp_hub.registry.launch import entry_of, needed_program
from mcp_hub.registry.sources import FileRegistry, HttpRegistry, Seed, registry_of
from tests.loops import anyio_backend  # noqa: F401
from tests.registry.loopback import PAGE, Handler, Loopback, answer, listing, npm, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with serving() as running:
        yield running


async def test_a_search_reads_all_pages(loopback: Loopback) -> None:
    names = [f"io.github.owner/files-{number}" for number in range(2 * PAGE + 1)]
    loopback.add(*(listing(name, packages=[npm()]) for name in names), listing("io.github.owner/other"))
    result = await HttpRegistry(loopback.base).search("files")
    assert [item.name for item in result.listings] == names
    assert result.problems == ()
    assert len(loopback.asked) == 3
    assert all("version=latest" in path for path in loopback.asked)


async def test_a_server_is_found_by_its_name_and_by_its_version(loopback: Loopback) -> None:
    loopback.add(listing("io.github.o/s", "1.0.0"), listing("io.github.o/s", "2.0.0"))
    registry = HttpRegistry(loopback.base + "/")
    latest, older = await registry.find("io.github.o/s"), await registry.find("io.github.o/s", "1.0.0")
    assert latest is not None
    assert older is not None
    assert (latest.version, older.version) == ("2.0.0", "1.0.0")
    assert await registry.find("io.github.o/none") is None
    assert loopback.asked[0] == "/v0.1/servers/io.github.o%2Fs/versions/latest"


async def test_a_registry_base_url_keeps_its_path(loopback: Loopback) -> None:
    loopback.paths["/mirror/v0.1/servers/io.github.o%2Fs/versions/latest"] = json.dumps(
        answer(listing("io.github.o/s"), "deprecated")
    ).encode()
    match = await HttpRegistry(f"{loopback.base}/mirror").find("io.github.o/s")
    assert match is not None
    assert match.status == "deprecated"


async def test_only_the_latest_version_of_a_server_is_found(loopback: Loopback) -> None:
    loopback.answers = [
        answer(listing("io.github.o/s", "1.0.0"), latest=False),
        answer(listing("io.github.o/s", "1.10.0")),
        answer(listing("io.github.o/s", "1.9.0")),
    ]
    result = await HttpRegistry(loopback.base).search("o/s")
    assert [item.version for item in result.listings] == ["1.10.0"]


async def test_a_repeated_page_ends_the_search(loopback: Loopback) -> None:
    page = {"servers": [answer(listing("io.github.o/s"))], "metadata": {"nextCursor": "same"}}
    loopback.paths["/v0.1/servers"] = json.dumps(page).encode()
    result = await HttpRegistry(loopback.base).search("s")
    assert [item.name for item in result.listings] == ["io.github.o/s"]
    assert "same page again" in result.problems[0]
    assert len(loopback.asked) == 2


async def test_endless_pages_of_a_search_are_bounded(loopback: Loopback) -> None:
    def endless(request: Handler) -> None:
        page = {"servers": [], "metadata": {"nextCursor": str(len(loopback.asked))}}
        request.reply(200, json.dumps(page).encode())

    loopback.paths["/v0.1/servers"] = endless
    result = await HttpRegistry(loopback.base).search("s")
    assert len(loopback.asked) == 10
    assert "a longer word finds fewer" in result.problems[0]


async def test_a_redirect_to_another_origin_is_not_followed(loopback: Loopback) -> None:
    with serving() as peer:
        peer.add(listing("io.github.o/s"))
        loopback.paths["/v0.1/servers"] = lambda request: request.reply(302, b"", Location=f"{peer.base}/v0.1/servers")
        with pytest.raises(RegistryError, match="not followed"):
            await HttpRegistry(loopback.base).search("s")
        assert peer.asked == []


@pytest.mark.parametrize(
    "body",
    [b"<html>no</html>", b"[1]", b'{"servers": {}}', b"", b"\xff\xfe", b'{"servers": [', b"[" * 100_000, b"null"],
    ids=["html", "list", "object", "empty", "bytes", "cut", "deep", "null"],
)
async def test_a_response_that_is_not_of_a_registry_is_refused(loopback: Loopback, body: bytes) -> None:
    loopback.paths["/v0.1/servers"] = body
    with pytest.raises(RegistryError):
        await HttpRegistry(loopback.base).search("s")


async def test_a_large_answer_is_not_read_to_its_end(loopback: Loopback) -> None:
    def large(request: Handler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(1 << 40))
        request.end_headers()
        try:
            while not loopback.stopping.is_set():
                request.wfile.write(b" " * 65536)
        except OSError:
            request.close_connection = True

    loopback.paths["/v0.1/servers"] = large
    with pytest.raises(RegistryError, match="larger than"):
        await HttpRegistry(loopback.base).search("s")


async def test_a_slow_registry_response_times_out(loopback: Loopback) -> None:
    def slow(request: Handler) -> None:
        loopback.stopping.wait(60)
        request.close_connection = True

    loopback.paths["/v0.1/servers"] = slow
    async with origin_client.JsonClient(loopback.base, "the registry", answer=0.1) as client:
        with pytest.raises(RegistryError, match="no answer from"):
            await client.get("v0.1", "servers")


@pytest.mark.parametrize("status", [401, 429, 500, 204])
async def test_an_http_error_status_of_a_registry_is_reported(loopback: Loopback, status: int) -> None:
    loopback.paths["/v0.1/servers"] = lambda request: request.reply(status, b"")
    with pytest.raises(RegistryError, match=f"HTTP {status}"):
        await HttpRegistry(loopback.base).search("s")


async def test_an_answer_about_another_server_is_refused(loopback: Loopback) -> None:
    loopback.paths["/v0.1/servers/io.github.o%2Fs/versions/latest"] = json.dumps(
        answer(listing("io.github.evil/s"))
    ).encode()
    with pytest.raises(RegistryError, match="another server"):
        await HttpRegistry(loopback.base).find("io.github.o/s")


async def test_an_answer_of_another_version_is_refused(loopback: Loopback) -> None:
    loopback.paths["/v0.1/servers/io.github.o%2Fs/versions/1.0.0"] = json.dumps(
        answer(listing("io.github.o/s", "6.6.6"))
    ).encode()
    with pytest.raises(RegistryError, match=r"answered 6\.6\.6"):
        await HttpRegistry(loopback.base).find("io.github.o/s", "1.0.0")


@pytest.mark.parametrize("base", ["http://registry.example", "ftp://127.0.0.1", "https://", "http://10.0.0.1/x"])
def test_a_registry_url_must_be_https_or_loopback(base: str, tmp_path: Path) -> None:
    with pytest.raises(RegistryError):
        registry_of({"MCP_HUB_REGISTRY": base}, tmp_path)


def test_a_password_in_the_address_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(RegistryError) as caught:
        registry_of({"MCP_HUB_REGISTRY": "http://me:pa55word@registry.example"}, tmp_path)
    assert "pa55word" not in str(caught.value)
    assert "pa55word" not in HttpRegistry("https://me:pa55word@registry.example").label


async def test_a_directory_of_listings_serves_as_a_registry(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(listing("io.github.o/one", packages=[npm()])))
    several = {"servers": [answer(listing("io.github.o/two", version)) for version in ("1.2.0", "1.10.0", "1.9.0")]}
    (tmp_path / "two.json").write_text(json.dumps(several))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "ignored.txt").write_text("{")
    registry = registry_of({"MCP_HUB_REGISTRY": str(tmp_path)}, tmp_path)
    assert isinstance(registry, FileRegistry)
    result = await registry.search("O/")
    assert [(item.name, item.version) for item in result.listings] == [
        ("io.github.o/one", "1.0.0"),
        ("io.github.o/two", "1.10.0"),
    ]
    assert "broken.json is not JSON" in result.problems[0]
    older = await registry.find("io.github.o/two", "1.2.0")
    assert older is not None
    assert older.version == "1.2.0"
    assert await registry.find("io.github.o/three") is None


def test_a_missing_registry_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="neither a directory"):
        registry_of({"MCP_HUB_REGISTRY": str(tmp_path / "none")}, tmp_path)


async def test_every_server_of_the_bundled_list_makes_a_pinned_entry() -> None:
    listings = (await Seed().search("")).listings
    names = {item.short_name for item in listings}
    assert names >= {"time", "fetch", "git", "filesystem", "memory", "everything", "sequential-thinking", "sqlite"}
    for item in listings:
        assert item.refused == ()
        for offer in item.offers:
            entry = entry_of(offer, {i.name: "value" for i in inputs_of(offer) if i.required})
            assert entry.get("command") == needed_program(offer)
            assert "url" in entry or any(f"@{item.version}" in argument for argument in entry["args"])


async def test_the_bundled_list_is_found_by_short_and_by_whole_name() -> None:
    short, full = await Seed().find("time"), await Seed().find("io.github.modelcontextprotocol/time")
    assert short is not None
    assert short == full
    assert await Seed().find("tim") is None
