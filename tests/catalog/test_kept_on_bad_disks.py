"""Keeping a catalog never fails a start: full, read-only, odd and shared disks."""

import errno
import json
import logging
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.models import Server
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.security import private_files
from mcp_hub.upstream import catalog_cache
from mcp_hub.upstream.catalog_cache import CachedCatalog, CatalogCache

SERVER = Server(id="s", transport="stdio", command="x", namespace="s")


def catalog(*tools: Any) -> CachedCatalog:
    lists: dict[str, list[Any]] = {kind.name: [] for kind in KINDS}
    return CachedCatalog("handshake", "2025-11-25", {}, None, {}, {**lists, "tools": list(tools)})


def files(directory: Path) -> list[str]:
    return sorted("catalog" if path.suffix else path.name for path in directory.iterdir())


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


class FullDisk:
    """A file that takes nothing."""

    def __init__(self, descriptor: int, *_: Any) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    write = full


def test_a_full_disk_leaves_the_older_catalog_and_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CatalogCache(tmp_path / "c")
    store.save(SERVER, catalog("old"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", FullDisk)
        store.save(SERVER, catalog("new"))
    assert files(tmp_path / "c") == ["catalog", "key"]
    assert store.load(SERVER) == catalog("old")


def test_a_disk_full_from_the_start_gets_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", FullDisk)
        CatalogCache(tmp_path / "c").save(SERVER, catalog())
    assert files(tmp_path / "c") == []
    assert CatalogCache(tmp_path / "c").load(SERVER) is None


def test_a_cached_catalog_is_read_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CatalogCache(tmp_path / "c").save(SERVER, catalog("t"))
    monkeypatch.setattr(private_files, "_create", full)
    store = CatalogCache(tmp_path / "c")
    assert store.load(SERVER) == catalog("t")
    store.save(SERVER, catalog("other"))
    assert store.load(SERVER) == catalog("t")


def test_catalogs_are_cached_on_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    CatalogCache(tmp_path / "c").save(SERVER, catalog("t"))
    assert CatalogCache(tmp_path / "c").load(SERVER) == catalog("t")
    assert files(tmp_path / "c") == ["catalog", "key"]


def test_a_catalog_that_cannot_be_written_or_is_too_large_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    store = CatalogCache(tmp_path / "c")
    with caplog.at_level(logging.WARNING):
        store.save(SERVER, catalog(deep))
        monkeypatch.setattr(catalog_cache, "MAX_SIZE", 1000)
        store.save(SERVER, catalog("x" * 1000))
    assert len(caplog.records) == 2
    assert store.load(SERVER) is None


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CatalogCache(tmp_path / "c")
    store.save(SERVER, catalog("x" * 1000))
    monkeypatch.setattr(catalog_cache, "MAX_SIZE", 1000)
    assert store.load(SERVER) is None


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_an_invalid_key_file_is_neither_used_nor_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c").mkdir(mode=0o700)
    key = tmp_path / "c" / "key"
    key.write_bytes(content)
    key.chmod(0o600)
    store = CatalogCache(tmp_path / "c")
    store.save(SERVER, catalog())
    assert store.load(SERVER) is None
    assert (files(tmp_path / "c"), key.read_bytes()) == (["key"], content)


def test_nothing_is_cached_under_a_key_that_others_can_read(tmp_path: Path) -> None:
    CatalogCache(tmp_path / "c").save(SERVER, catalog("t"))
    (tmp_path / "c" / "key").chmod(0o640)
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    CatalogCache(tmp_path / "c").save(SERVER, catalog("another"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before
    assert CatalogCache(tmp_path / "c").load(SERVER) is None


@pytest.mark.parametrize("place", ["catalog", "key"])
def test_a_pipe_in_place_of_a_cache_file_does_not_block(tmp_path: Path, place: str) -> None:
    CatalogCache(tmp_path / "c").save(SERVER, catalog("t"))
    (path,) = (tmp_path / "c").glob("*.json" if place == "catalog" else "key")
    path.unlink()
    os.mkfifo(path, 0o600)
    assert CatalogCache(tmp_path / "c").load(SERVER) is None


def test_a_linked_directory_is_not_used(tmp_path: Path) -> None:
    CatalogCache(tmp_path / "real").save(SERVER, catalog("t"))
    (tmp_path / "c").symlink_to(tmp_path / "real")
    assert CatalogCache(tmp_path / "c").load(SERVER) is None


def test_a_changed_secret_or_key_does_not_find_the_cached_catalog(tmp_path: Path) -> None:
    def server(token: str) -> Server:
        values = {"id": "s", "transport": "http", "url": "https://x/", "namespace": "s", "headers": {"T": token}}
        return Server.model_validate(values)

    store = CatalogCache(tmp_path / "c")
    store.save(server("one"), catalog("t"))
    assert store.load(server("one")) == catalog("t")
    assert store.load(server("two")) is None
    (tmp_path / "c" / "key").unlink()
    assert CatalogCache(tmp_path / "c").load(server("one")) is None


def test_a_missing_cache_file_is_not_reported_and_a_damaged_one_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CatalogCache(tmp_path / "c")
    with caplog.at_level(logging.WARNING):
        assert store.load(SERVER) is None
        assert caplog.records == []
        store.save(SERVER, catalog("t"))
        (file,) = (tmp_path / "c").glob("*.json")
        value = json.loads(file.read_bytes())
        file.write_text(json.dumps({**value, "lists": {**value["lists"], "prompts": None}}))
        assert store.load(SERVER) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def save_often(directory: Path, mark: str) -> None:
    for _ in range(20):
        CatalogCache(directory).save(SERVER, catalog(mark * 100_000))


def test_processes_that_save_at_the_same_time_leave_one_complete_catalog(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    savers = [context.Process(target=save_often, args=(tmp_path / "c", mark)) for mark in "ab"]
    for saver in savers:
        saver.start()
    reader, entries = CatalogCache(tmp_path / "c"), []
    while any(saver.is_alive() for saver in savers):
        entry = reader.load(SERVER)
        if entry is not None:
            entries.append(entry)
    for saver in savers:
        saver.join()
    assert [saver.exitcode for saver in savers] == [0, 0]
    complete = [catalog(mark * 100_000) for mark in "ab"]
    assert all(entry in complete for entry in [*entries, reader.load(SERVER)])
    assert files(tmp_path / "c") == ["catalog", "key"]
