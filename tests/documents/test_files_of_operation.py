"""The files and lines of docs/operate.md in the programs that they are for: systemd, logrotate, tar."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from mcp_hub.cli import main
from mcp_hub.config.models import Server
from mcp_hub.oauth.token_store import SignIn, TokenStore
from mcp_hub.observability.records import RecordWriter
from tests.fakes.client import HUB, PATIENCE, fake, spawned

DOCS: Final = Path(__file__).parents[2] / "docs"
EXAMPLES: Final = DOCS / "examples"
MOST_EXPOSED: Final = 20
"""Tenths of the exposure level that docs/operate.md promises to stay below; 100 is everything."""
REMOTE: Final = Server(id="remote", transport="http", url="https://remote.example/mcp", namespace="remote")


def run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env, cwd=cwd)


def program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert path is not None, f"{name} is missing: run scripts/peers"
    return path


def test_systemd_accepts_the_unit_and_rates_its_exposure_low(tmp_path: Path) -> None:
    hub = Path(sys.executable).with_name("mcp-hub")
    unit = tmp_path / "mcp-hub.service"
    unit.write_text((EXAMPLES / "mcp-hub.service").read_text().replace("/opt/mcp-hub/bin/mcp-hub", str(hub)))
    verified = run(program("systemd-analyze"), "verify", "--man=no", str(unit))
    assert (verified.returncode, verified.stderr) == (0, "")
    rating = run(
        program("systemd-analyze"), "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", str(unit)
    )
    assert rating.returncode == 0, rating.stdout[-400:]


def test_the_command_of_the_systemd_unit_is_accepted_by_the_hub() -> None:
    command = re.search(r"^ExecStart=\S+ (.*)$", (EXAMPLES / "mcp-hub.service").read_text(), re.MULTILINE)
    assert command is not None
    with pytest.raises(SystemExit) as raised:
        main([*command[1].split(), "--help"])
    assert raised.value.code == 0


def test_call_records_continue_in_a_new_file_after_logrotate(tmp_path: Path) -> None:
    log = tmp_path / "log" / "calls.jsonl"
    text = (EXAMPLES / "logrotate.conf").read_text().replace("/var/log/mcp-hub/calls.jsonl", str(log))
    if os.geteuid() == 0:
        text = text.replace("su mcp-hub mcp-hub", "su root root")
    else:
        text = text.replace("    su mcp-hub mcp-hub\n", "")
    file = tmp_path / "logrotate.conf"
    file.write_text(text)
    file.chmod(0o644)
    with RecordWriter(log, stderr=False) as records:
        records.write({"call": "before"})
        assert records.flush(PATIENCE)
        rotated = run(program("logrotate"), "--force", "--state", str(tmp_path / "state"), str(file))
        assert (rotated.returncode, rotated.stderr) == (0, "")
        records.write({"call": "after"})
        assert records.flush(PATIENCE)
    moved = log.with_name("calls.jsonl.1")
    assert json.loads(moved.read_text())["call"] == "before"
    assert json.loads(log.read_text())["call"] == "after"
    assert log.stat().st_mode & 0o777 == 0o600


def lines(name: str) -> str:
    """The lines of the page that are marked with a name."""
    match = re.search(rf"```sh {name}\n(.*?)```", (DOCS / "operate.md").read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def at_home(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    # Elsewhere the file of servers in the working directory would count, not that of the user.
    return run(*command, env={**environ, "HOME": str(home)}, cwd=home)


async def listed(home: Path) -> list[str]:
    """The tools that a hub at a home serves over stdio."""
    folders = {"DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
    env = {f"XDG_{name}_HOME": str(home / folder) for name, folder in folders.items()}
    command = [*HUB, "serve", "--config", str(home / ".config/mcp-hub/servers.json")]
    async with spawned(command, env={**env, "HOME": str(home)}) as client:
        await client.initialize()
        return await client.tool_names()


def hub(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return at_home(home, sys.executable, "-m", "mcp_hub", *arguments)


@pytest.mark.anyio
async def test_a_restored_backup_has_tokens_pins_groups_and_catalogs_under_another_home(tmp_path: Path) -> None:
    old_home, new_home, hangs = tmp_path / "one", tmp_path / "other", tmp_path / "hangs"
    up = fake("--hang-if", str(hangs))
    config = old_home / ".config" / "mcp-hub"
    config.mkdir(parents=True, mode=0o700)
    (config / "servers.json").write_text(
        json.dumps({"servers": {"up": up}, "state_file": "groups.json", "groups": {"few": {"tools": ["up/echo"]}}})
    )
    (config / "servers.json").chmod(0o600)
    (config / "groups.json").write_text('{"format": 1, "groups": {"few": true}}')
    (config / "groups.json").chmod(0o600)
    pinned = hub(old_home, "pin", "--yes")
    assert pinned.returncode == 0, pinned.stdout + pinned.stderr
    TokenStore(old_home / ".local/share/mcp-hub/tokens").save(REMOTE, SignIn(tokens={"access_token": "kept"}))
    names = await listed(old_home)
    assert "up__echo" in names

    saved = at_home(old_home, "sh", "-c", lines("backup"))
    assert (saved.returncode, saved.stderr) == (0, "")
    new_home.mkdir()
    shutil.copy2(old_home / "mcp-hub-state.tar.gz", new_home)
    shutil.rmtree(old_home)
    restored = at_home(new_home, "sh", "-c", lines("restore"))
    assert (restored.returncode, restored.stderr) == (0, "")

    sign_in = TokenStore(new_home / ".local/share/mcp-hub/tokens").load(REMOTE)
    assert sign_in is not None
    assert sign_in.access_token == "kept"
    assert json.loads((new_home / ".config/mcp-hub/groups.json").read_text())["groups"] == {"few": True}
    assert list(json.loads((new_home / ".config/mcp-hub/servers.pins.json").read_text())["servers"]) == ["up"]
    again = hub(new_home, "pin")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "echo" not in again.stdout, "nothing has changed, so there is nothing to pin"
    checked = hub(new_home, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    hangs.touch()
    assert await listed(new_home) == names
