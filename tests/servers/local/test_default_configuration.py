"""The files a new user starts with: they work as they are, and every commented entry is ready to use."""

import re
from pathlib import Path

from mcp_hub.hub.composition import read_config

ROOT = Path(__file__).parents[3]
ENVIRON = {"HOME": "/home/someone", "GITHUB_TOKEN": "a-token-for-this-test", "PATH": "/usr/bin"}


def uncommented() -> str:
    active, servers, commented = (ROOT / "servers.yaml").read_text().partition("servers:\n")
    # What begins with a capital letter is a remark on an active entry.
    return active + servers + re.sub(r"^  # (?=[a-z# ])", "  ", commented, flags=re.M)


def test_the_default_configuration_enables_only_servers_without_requirements() -> None:
    loaded = read_config(ROOT / "servers.yaml", ENVIRON)
    assert loaded.warnings == ()
    web, local = loaded.config.servers
    assert (web.id, web.builtin) == ("web", "web")
    assert (local.id, local.tools_dir) == ("local", ROOT / "tools")


def test_every_commented_entry_is_ready_to_use(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    path = tmp_path / "servers.yaml"
    path.write_text(uncommented())
    path.chmod(0o600)
    loaded = read_config(path, ENVIRON)
    assert loaded.warnings == ()
    ids = [server.id for server in loaded.config.servers]
    assert {"filesystem", "memory", "everything", "time", "fetch", "git", "playwright", "context7", "github"} <= set(
        ids
    )
    assert [server.id for server in loaded.config.servers if not server.enabled] == []


def test_every_package_of_a_commented_entry_is_pinned() -> None:
    for line in uncommented().splitlines():
        if "args:" in line:
            assert re.search(r"@\d|==\d", line), line
