"""Which browser is started, and getting one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from aiohttp import web

from mcp_hub.servers.builtin import chromium
from mcp_hub.servers.builtin.pages import web_address
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import HUB, PATIENCE
from tests.servers.scrape.site import serving


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_setting_overrides_the_variable_which_overrides_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable = program(tmp_path / "named"), program(tmp_path / "variable")
    on_path = program(tmp_path / "bin" / "google-chrome")
    placed = program(tmp_path / "placed")
    installed = program(tmp_path / "home" / "browsers" / "chromium-1200" / "chrome-linux64" / "chrome")
    program(tmp_path / "home" / "browsers" / "chromium-999" / "chrome-linux64" / "chrome")
    monkeypatch.setitem(chromium._USUAL_PATHS, "linux", (str(placed),))
    monkeypatch.setattr(chromium.sys, "platform", "linux")
    environ = {
        "PATH": str(tmp_path / "bin"),
        "MCP_HUB_CHROMIUM": str(variable),
        "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "home" / "browsers"),
    }
    home = tmp_path / "home"
    assert chromium.find(str(named), environ, home) == named
    assert chromium.find(None, environ, home) == variable
    del environ["MCP_HUB_CHROMIUM"]
    assert chromium.find(None, environ, home) == on_path
    environ["PATH"] = str(tmp_path)
    assert chromium.find(None, environ, home) == placed
    placed.unlink()
    assert chromium.find(None, environ, home) == installed
    environ["PLAYWRIGHT_BROWSERS_PATH"] = str(tmp_path / "empty")
    with pytest.raises(chromium.NoChromium, match="mcp-hub browser install"):
        chromium.find(None, environ, home)


def test_a_named_browser_that_does_not_exist_is_an_error_without_fallback(tmp_path: Path) -> None:
    with pytest.raises(chromium.NoChromium, match=r"browser\.executable"):
        chromium.find(str(tmp_path / "missing"), dict(os.environ), tmp_path)
    with pytest.raises(chromium.NoChromium, match="MCP_HUB_CHROMIUM"):
        chromium.find(None, {**os.environ, "MCP_HUB_CHROMIUM": str(tmp_path)}, tmp_path)


def run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd), **environ}
    env.pop("MCP_HUB_CONFIG", None)
    return subprocess.run(
        [*HUB, "browser", *arguments], capture_output=True, text=True, timeout=PATIENCE, cwd=cwd, env=env
    )


def test_status_says_which_browser_is_used(tmp_path: Path) -> None:
    executable = program(tmp_path / "my-chromium")
    done = run(cwd=tmp_path, MCP_HUB_CHROMIUM=str(executable))
    assert (done.returncode, done.stdout) == (0, f"browser: {executable}\n")
    done = run("status", cwd=tmp_path, MCP_HUB_CHROMIUM=str(tmp_path / "missing"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "MCP_HUB_CHROMIUM" in done.stderr


def test_status_shows_the_executable_of_each_configured_browser(tmp_path: Path) -> None:
    executable = program(tmp_path / "mine")
    config = tmp_path / "servers.yaml"
    config.write_text(f"servers:\n  surf: {{builtin: browser, executable: {executable}}}\n  web: {{builtin: web}}\n")
    config.chmod(0o600)
    assert run(cwd=tmp_path).stdout == f"surf: {executable}\n"
    facts = json.loads(run("status", "--json", cwd=tmp_path).stdout)
    assert facts["browsers"] == [{"server": "surf", "executable": str(executable)}]
    assert run("install", "--json", cwd=tmp_path).returncode == 2
    executable.unlink()
    assert run("status", "--config", str(config), cwd=tmp_path).returncode == 1


class Everywhere(dict[str, Any]):
    """The same answer at every path."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, key: str, default: Any = None) -> Any:
        return self._answer


@pytest.mark.anyio
async def test_install_downloads_a_browser_and_reports_a_failed_download(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("chrome-linux64/chrome", "chrome-linux/chrome", "ffmpeg-linux"):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, "#!/bin/sh\n")
    async with serving() as site:

        async def answer(request: web.Request) -> web.Response:
            return web.Response(body=packed.getvalue(), content_type="application/zip")

        def install(directory: str) -> subprocess.CompletedProcess[str]:
            path = str(tmp_path / directory)
            return run("install", cwd=tmp_path, PLAYWRIGHT_BROWSERS_PATH=path, PLAYWRIGHT_DOWNLOAD_HOST=site.url()[:-1])

        failed = await anyio.to_thread.run_sync(install, "failed")
        assert failed.returncode == 1
        assert "browser.executable" in failed.stderr
        site.answers = Everywhere(answer)
        done = await anyio.to_thread.run_sync(install, "browsers")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "browsers").glob("chromium-*/chrome-*/chrome"))
    assert str(tmp_path / "browsers") in done.stdout


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://example.org/a b", "https://example.org/a b"),
        (" HTTP://example.org ", "HTTP://example.org"),
        ("example.org/x", "https://example.org/x"),
        ("localhost:8000/x", "https://localhost:8000/x"),
        ("about:blank", "about:blank"),
    ],
)
def test_a_url_without_a_scheme_is_a_web_page(written: str, meant: str) -> None:
    assert web_address(written) == meant


@pytest.mark.parametrize("written", ["http:example.org", "chrome:version", "mailto:a@b", "C:\\x", "blob:http://x/1"])
def test_urls_with_other_schemes_are_refused(written: str) -> None:
    with pytest.raises(ToolRefused) as refused:
        web_address(written)
    assert refused.value.code == "invalid_parameters"
