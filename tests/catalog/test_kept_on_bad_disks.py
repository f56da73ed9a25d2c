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
from mcp_hub.upstream import kept
from mcp_hub.upstream.kept import Kept, KeptCatalogs

SERVER = Server(id="s", transport="stdio", command="x", namespace="s")


def catalog(*tools: Any) -> Kept:
    lists: dict[str, list[Any]] = {kind.name: [] for kind in KINDS}
    return Kept("handshake", "2025-11-25", {}, None, {}, {**lists, "tools": list(tools)})


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


def test_a_full_disk_leaves_what_was_kept_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeptCatalogs(tmp_path / "c")
    store.save(SERVER, catalog("old"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", FullDisk)
        store.save(SERVER, catalog("new"))
    assert files(tmp_path / "c") == ["catalog", "key"]
    assert store.load(SERVER) == catalog("old")


def test_a_disk_full_from_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", FullDisk)
        KeptCatalogs(tmp_path / "c").save(SERVER, catalog())
    assert files(tmp_path / "c") == []
    assert KeptCatalogs(tmp_path / "c").load(SERVER) is None


def test_what_is_kept_is_read_without_writing_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    KeptCatalogs(tmp_path / "c").save(SERVER, catalog("t"))
    monkeypatch.setattr(private_files, "_create", full)
    store = KeptCatalogs(tmp_path / "c")
    assert store.load(SERVER) == catalog("t")
    store.save(SERVER, catalog("other"))
    assert store.load(SERVER) == catalog("t")


def test_a_disk_without_hard_links_keeps_catalogs_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    KeptCatalogs(tmp_path / "c").save(SERVER, catalog("t"))
    assert KeptCatalogs(tmp_path / "c").load(SERVER) == catalog("t")
    assert files(tmp_path / "c") == ["catalog", "key"]


def test_a_catalog_that_cannot_be_written_or_is_too_large_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    store = KeptCatalogs(tmp_path / "c")
    with caplog.at_level(logging.WARNING):
        store.save(SERVER, catalog(deep))
        monkeypatch.setattr(kept, "MAX_SIZE", 1000)
        store.save(SERVER, catalog("x" * 1000))
    assert len(caplog.records) == 2
    assert store.load(SERVER) is None


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeptCatalogs(tmp_path / "c")
    store.save(SERVER, catalog("x" * 1000))
    monkeypatch.setattr(kept, "MAX_SIZE", 1000)
    assert store.load(SERVER) is None


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_key_that_is_none_is_not_used_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c").mkdir(mode=0o700)
    key = tmp_path / "c" / "key"
    key.write_bytes(content)
    key.chmod(0o600)
    store = KeptCatalogs(tmp_path / "c")
    store.save(SERVER, catalog())
    assert store.load(SERVER) is None
    assert (files(tmp_path / "c"), key.read_bytes()) == (["key"], content)


def test_a_key_others_can_read_keeps_nothing(tmp_path: Path) -> None:
    KeptCatalogs(tmp_path / "c").save(SERVER, catalog("t"))
    (tmp_path / "c" / "key").chmod(0o640)
    assert KeptCatalogs(tmp_path / "c").load(SERVER) is None


@pytest.mark.parametrize("place", ["catalog", "key"])
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(tmp_path: Path, place: str) -> None:
    KeptCatalogs(tmp_path / "c").save(SERVER, catalog("t"))
    (path,) = (tmp_path / "c").glob("*.json" if place == "catalog" else "key")
    path.unlink()
    os.mkfifo(path, 0o600)
    assert KeptCatalogs(tmp_path / "c").load(SERVER) is None


def test_a_linked_directory_is_not_used(tmp_path: Path) -> None:
    KeptCatalogs(tmp_path / "real").save(SERVER, catalog("t"))
    (tmp_path / "c").symlink_to(tmp_path / "real")
    assert KeptCatalogs(tmp_path / "c").load(SERVER) is None


def test_a_changed_secret_and_another_key_find_nothing(tmp_path: Path) -> None:
    def server(token: str) -> Server:
        values = {"id": "s", "transport": "http", "url": "https://x/", "namespace": "s", "headers": {"T": token}}
        return Server.model_validate(values)

    store = KeptCatalogs(tmp_path / "c")
    store.save(server("one"), catalog("t"))
    assert store.load(server("one")) == catalog("t")
    assert store.load(server("two")) is None
    (tmp_path / "c" / "key").unlink()
    assert KeptCatalogs(tmp_path / "c").load(server("one")) is None


def test_nothing_kept_is_no_news_and_a_damaged_file_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = KeptCatalogs(tmp_path / "c")
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
        KeptCatalogs(directory).save(SERVER, catalog(mark * 100_000))


def test_processes_that_save_at_the_same_time_leave_one_complete_catalog(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    savers = [context.Process(target=save_often, args=(tmp_path / "c", mark)) for mark in "ab"]
    for saver in savers:
        saver.start()
    reader, seen = KeptCatalogs(tmp_path / "c"), []
    while any(saver.is_alive() for saver in savers):
        found = reader.load(SERVER)
        if found is not None:
            seen.append(found)
    for saver in savers:
        saver.join()
    assert [saver.exitcode for saver in savers] == [0, 0]
    whole = [catalog(mark * 100_000) for mark in "ab"]
    assert all(found in whole for found in [*seen, reader.load(SERVER)])
    assert files(tmp_path / "c") == ["catalog", "key"]
