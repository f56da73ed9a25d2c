"""The catalog cache: its files are private, each belongs to one entry, and no failure of it stops a hub."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_hub.config.builtin_servers import Skill
from mcp_hub.config.credentials import OAuthSettings
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.entry_rules import Filter, HealthSettings, PostProcessStep, ToolRules
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.models import Deadlines, FileRoot, Server
from mcp_hub.policy.retry import RetrySettings
from mcp_hub.upstream import catalog_cache
from mcp_hub.upstream.catalog_cache import CachedCatalog, CatalogCache

LISTS: dict[str, list[Any]] = {
    "tools": [{"name": "t", "n": 10**25}],
    "resources": [],
    "templates": [],
    "prompts": [],
    "skills": [],
}
CATALOG = CachedCatalog("modern", "2026-07-28", {"tools": {}}, "be kind", {"name": "x"}, LISTS)


def entry(**changes: Any) -> Server:
    values = {"id": "s", "transport": "stdio", "command": "x", "namespace": "s", "env": {"KEY": "secret"}}
    return Server.model_validate({**values, **changes})


def saved(directory: Path) -> tuple[CatalogCache, Path]:
    store = CatalogCache(directory)
    store.save(entry(), CATALOG)
    (file,) = directory.glob("*.json")
    return store, file


def test_a_saved_catalog_is_loaded_by_another_run(tmp_path: Path) -> None:
    store, _ = saved(tmp_path / "c")
    assert store.load(entry()) == CATALOG
    assert CatalogCache(tmp_path / "c").load(entry()) == CATALOG


def test_directory_and_files_are_for_their_owner_only(tmp_path: Path) -> None:
    saved(tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o600}
    assert not any("secret" in path.name or b"secret" in path.read_bytes() for path in (tmp_path / "c").iterdir())


@pytest.mark.parametrize("change", [{"command": "y"}, {"env": {"KEY": "other"}}, {"args": ("a",)}, {"cwd": "/x"}])
def test_another_entry_does_not_find_the_cached_catalog(tmp_path: Path, change: dict[str, Any]) -> None:
    store, _ = saved(tmp_path / "c")
    assert store.load(entry(**change)) is None


def test_an_entry_without_keep_catalog_is_neither_saved_nor_loaded(tmp_path: Path) -> None:
    store = CatalogCache(tmp_path / "c")
    store.save(entry(keep_catalog=False), CATALOG)
    assert not (tmp_path / "c").exists()
    assert store.load(entry(keep_catalog=False)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"{}", b'{"format":1}', b'{"format":99}',
        json.dumps({"format": 1, "era": "odd", "protocol_version": "x", "capabilities": {}, "instructions": None,
                    "server_info": {}, "lists": LISTS}).encode(),
        json.dumps({"format": 1, "era": "modern", "protocol_version": "x", "capabilities": {}, "instructions": None,
                    "server_info": {}, "lists": {"tools": 5}}).encode(),
    ],
)  # fmt: skip
def test_a_malformed_cache_file_is_ignored(tmp_path: Path, data: bytes) -> None:
    store, file = saved(tmp_path / "c")
    file.write_bytes(data)
    assert store.load(entry()) is None


def test_a_cache_file_that_others_can_read_is_ignored(tmp_path: Path) -> None:
    store, file = saved(tmp_path / "c")
    file.chmod(0o644)
    assert store.load(entry()) is None


def test_a_cache_file_of_another_user_is_ignored(tmp_path: Path) -> None:
    store, file = saved(tmp_path / "c")
    if os.getuid() == 0:
        os.chown(file, 12345, 12345)
        assert store.load(entry()) is None
    else:
        assert file.stat().st_uid == os.getuid()


def test_a_cache_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    store, file = saved(tmp_path / "c")
    target = tmp_path / "target"
    target.write_bytes(file.read_bytes())
    target.chmod(0o600)
    file.unlink()
    file.symlink_to(target)
    assert store.load(entry()) is None


def test_a_directory_in_place_of_a_cache_file_is_kept_and_leaks_no_descriptor(tmp_path: Path) -> None:
    store, file = saved(tmp_path / "c")
    file.unlink()
    file.mkdir()
    lowest = os.dup(0)
    os.close(lowest)
    for _ in range(3):
        assert store.load(entry()) is None
        store.save(entry(), CATALOG)
    descriptor = os.dup(0)
    os.close(descriptor)
    assert descriptor == lowest, "a descriptor is still open"
    assert file.is_dir()
    assert len(list((tmp_path / "c").iterdir())) == 2


OTHER_VALUES: dict[str, Any] = {
    "id": "t", "transport": "auto", "command": "y", "args": ("a",), "env": {"KEY": SecretStr("other")},
    "cwd": Path("elsewhere"), "url": "http://x/", "headers": {"A": SecretStr("b")}, "tools_dir": Path("tools"),
    "enabled": False, "session": "call",
    "max_sessions": 7, "era": "modern", "keep_catalog": False, "deadlines": Deadlines(list=5), "max_frame": 5,
    "max_questions": 7, "builtin": "web", "browser": True, "allow": ("roots",),
    "profile": Path("profile"), "headless": False, "executable": Path("chromium"),
    "policy": "deny", "roots": (FileRoot(at="/a/", path=Path("a"), mode="ro"),),
    "functions": "f", "native": SecretStr("[]"),
    "skills": (Skill(name="s", description="d", directory=Path("s")),),
    "oauth": OAuthSettings(client_id="c", client_secret=SecretStr("s")),
    "egress": EgressSettings(client_cert="hub.pem"),
}  # fmt: skip
OF_THE_HUB: dict[str, Any] = {
    "namespace": "n", "required": True, "lazy": True, "allow_over_network": True, "disabled_reason": "why",
    "secrets": (SecretStr("secret"),),
    "tags": ("a",), "filters": {"tools": Filter(deny=("x",))}, "tools": {"x": ToolRules(name="y")},
    "validate_arguments": "off", "max_result_bytes": 5, "postprocess": (PostProcessStep(step="truncate"),),
    "settings": {"retry": RetrySettings(attempts=5)},
    "idle": 5.0,
    "health": HealthSettings(ping=1.0),
}  # fmt: skip


@pytest.mark.parametrize("field", OF_THE_HUB)
def test_an_entry_that_differs_in_what_only_the_hub_does_finds_the_cached_catalog(tmp_path: Path, field: str) -> None:
    store, _ = saved(tmp_path / "c")
    assert OF_THE_HUB[field] != getattr(entry(), field)
    assert store.load(entry().model_copy(update={field: OF_THE_HUB[field]})) == CATALOG


@pytest.mark.parametrize("field", [field for field in Server.model_fields if field not in OF_THE_HUB])
def test_an_entry_that_differs_in_any_other_field_does_not_find_it(tmp_path: Path, field: str) -> None:
    store, _ = saved(tmp_path / "c")
    # The values are not validated: an invalid combination must make a difference, too.
    assert OTHER_VALUES[field] != getattr(entry(), field)
    assert store.load(entry().model_copy(update={field: OTHER_VALUES[field]})) is None
    assert store.load(entry()) == CATALOG


def test_what_a_client_with_few_capabilities_is_listed_replaces_nothing_of_others(tmp_path: Path) -> None:
    store, few = CatalogCache(tmp_path / "c"), msgspec.structs.replace(CATALOG, instructions="for few")
    store.save(entry(), few, {"roots": {}})
    assert store.load(entry(), {"sampling": {}}) == few, "better than nothing"
    store.forget(entry())
    assert store.load(entry(), {"roots": {}}) is None
    store.save(entry(), CATALOG)
    store.save(entry(), few, {"roots": {}})
    assert store.load(entry(), {"roots": {}}) == few
    assert store.load(entry(), {"sampling": {}}) == store.load(entry()) == CATALOG


def test_a_cache_directory_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir(mode=0o755)
    store = CatalogCache(tmp_path / "c")
    store.save(entry(), CATALOG)
    assert list((tmp_path / "c").iterdir()) == []
    assert store.load(entry()) is None


def test_an_unwritable_directory_costs_only_the_cached_catalog(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = CatalogCache(tmp_path / "file" / "c")
    store.save(entry(), CATALOG)
    assert store.load(entry()) is None


def test_processes_that_save_at_the_same_time_share_one_key(tmp_path: Path) -> None:
    stores = [CatalogCache(tmp_path / "c") for _ in range(16)]
    threads = [threading.Thread(target=store.save, args=(entry(), CATALOG)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list((tmp_path / "c").glob("*.json"))) == 1
    assert [path.name for path in (tmp_path / "c").iterdir() if path.name.startswith(".")] == []
    assert CatalogCache(tmp_path / "c").load(entry()) == CATALOG


@pytest.mark.anyio
async def test_catalogs_of_former_entries_are_deleted_when_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_cache, "MAX_FILES", 2)
    store = CatalogCache(tmp_path / "c")
    entries = [entry(env={"TOKEN": f"token {number}"}) for number in range(4)]
    known: set[Path] = set()
    for number, changed in enumerate(entries):
        store.save(changed, CATALOG)
        (path,) = {*(tmp_path / "c").glob("*.json")} - known
        os.utime(path, (number, number))
        known.add(path)
    await store.close()
    assert [store.load(changed) is not None for changed in entries] == [False, False, True, True]
