"""Chromium: finds it, starts it so that its only way out is the proxy, and locks the profile it uses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from mcp_hub import codes
from mcp_hub.errors import HubError
from mcp_hub.security.private_files import expand_home
from mcp_hub.servers.builtin.scratch import lock
from mcp_hub.servers.local.tool_results import ToolRefused

if TYPE_CHECKING:
    from playwright.async_api import Playwright


_LOCK: Final = ".mcp-hub-lock"
_ASK_WAIT: Final = 1.0
_KILL_WAIT: Final = 1.0
_POLL: Final = 0.02
_HAS_PROC: Final = Path("/proc/self/stat").exists()
_PREFERENCES: Final[dict[str, Any]] = {
    "autofill": {"enabled": False, "profile_enabled": False, "credit_card_enabled": False},
    "credentials_enable_service": False,
    "search": {"suggest_enabled": False},
    "alternate_error_pages": {"enabled": False},
}
"""Preferences of a new profile. They keep Chromium from sending what users type to anybody but the page."""
_FLAGS: Final[dict[str, Any]] = {
    "browser": {"enabled_labs_experiments": ["webui-omnibox-popup@2", "webui-omnibox-aim-popup@2"]}
}
"""The choices at chrome://flags in a new profile. They keep Chromium from loading the lists below its address bar as
pages, which takes a process and half the time of a start. As command-line switches they would override Playwright's."""


class BrowserProfile:
    """A profile directory, locked for one browser.

    Raises ToolRefused if it cannot be used or another browser uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = expand_home(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
                raise ToolRefused("tool_error", f"The profile {path} belongs to another user: set browser.profile.")
            lock_file = lock(path / _LOCK)
        except OSError as error:
            message = f"The profile {path} cannot be used: {error.strerror}. Set browser.profile to another directory."
            raise ToolRefused("tool_error", message) from None
        if lock_file is None:
            raise _in_use_refusal(path, "another session of the hub")
        self._lock: IO[bytes] = lock_file
        pid = _running_chromium(path)
        if pid is not None:
            lock_file.close()
            raise _in_use_refusal(path, f"the browser with process id {pid}")
        self._process: int | None = None
        self._started: str | None = None
        self._write_preferences()

    def _write_preferences(self) -> None:
        file = self.path / "Default" / "Preferences"
        if not file.parent.exists():
            file.parent.mkdir(mode=0o700)
            file.write_text(json.dumps(_PREFERENCES))
            (self.path / "Local State").write_text(json.dumps(_FLAGS))

    def release(self) -> None:
        """Unlocks the profile once its browser has ended. A browser that has not ended after a second is killed."""
        for kill in (False, True):
            deadline = time.monotonic() + _KILL_WAIT
            while time.monotonic() < deadline and self._is_running():
                if kill and self._process is not None:
                    with contextlib.suppress(OSError):
                        os.kill(self._process, getattr(signal, "SIGKILL", signal.SIGTERM))
                time.sleep(_POLL)
        self._lock.close()

    def opened(self) -> None:
        """Reads the process id of the browser that was just started in this profile from Chromium's own lock."""
        self._process = _lock_owner(self.path)
        self._started = _start_of(self._process)

    def _is_running(self) -> bool:
        """Returns whether the browser still runs. Once it has ended, its process id may be that of any process."""
        if self._process is not None and not _HAS_PROC:
            return _running_chromium(self.path) == self._process
        return self._started is not None and _start_of(self._process) == self._started


def _in_use_refusal(path: Path, holder: str) -> ToolRefused:
    return ToolRefused(
        "tool_error",
        f"The profile {path} is in use by {holder}: close that one first, or leave browser.profile unset to browse "
        "without a profile that is kept.",
    )


def _running_chromium(path: Path) -> int | None:
    """Returns the process id of another Chromium that uses the profile, or None.

    Such a Chromium listens on a socket in the profile, and its lock, a symbolic link, names its process.
    """
    if sys.platform == "win32":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ASK_WAIT)
        try:
            probe.connect(os.path.realpath(path / "SingletonSocket"))
        except OSError:
            return None  # nobody listens: a browser that was killed has left the socket behind
    return _lock_owner(path)


def _lock_owner(path: Path) -> int | None:
    if sys.platform == "win32":  # there it is a file without a number, and signal 0 would interrupt a console
        return None
    try:
        number = os.readlink(path / "SingletonLock").rpartition("-")[2]  # noqa: PTH115 - a link that leads nowhere
    except OSError:
        return None
    return int(number) if number.isdigit() else None


def _start_of(process: int | None) -> str | None:
    """Returns when a process was started, in ticks; None if it has ended, or if the system has no /proc."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return state[19] if state[0] != "Z" else None
    except (OSError, IndexError):
        return None


READY_HOST: Final = "mcp-hub.invalid"
"""Host name for which the proxy itself answers."""

LAUNCH_WAIT: Final = 30.0
"""Seconds for Chromium to start, which takes about one on an idle machine."""

VARIABLE: Final = "MCP_HUB_CHROMIUM"
"""The environment variable that names the browser to start."""

_NAMES: Final = (
    "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge-stable",
    "microsoft-edge", "msedge",
)  # fmt: skip
_USUAL_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "darwin": (
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    ),
    "win32": (
        r"C:\Program Files\Google\Chrome\Application\chrome.exe",
        r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
        r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
        r"C:\Program Files\Microsoft\Edge\Application\msedge.exe",
    ),
    "linux": ("/usr/lib/chromium/chromium", "/opt/google/chrome/chrome", "/opt/microsoft/msedge/msedge"),
}
_INSTALLED: Final = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium-*/chrome-win*/chrome.exe",
)
"""Where Playwright's installer puts Chromium, relative to its own directory."""

_INHERITED: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "DISPLAY", "XAUTHORITY",
    "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "MCP_HUB_RUN", VARIABLE,
    "PLAYWRIGHT_BROWSERS_PATH", "PLAYWRIGHT_NODEJS_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA",
    "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "HOMEDRIVE", "HOMEPATH", "USERPROFILE",
    "USERNAME", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
})  # fmt: skip
_INHERITED_PREFIXES: Final = ("LC_", "XDG_")


class NoChromium(HubError):
    """There is no browser to start. `str()` says where it was looked for, and what to do."""


def find(executable: str | None, environ: Mapping[str, str], home: Path) -> Path:
    """Returns the browser to start.

    That is the setting `executable`, else $MCP_HUB_CHROMIUM, else one on PATH or in the usual places, else the one that
    `mcp-hub browser install` installed. Raises NoChromium if there is none.
    """
    for name, value in (("browser.executable", executable), (f"${VARIABLE}", environ.get(VARIABLE))):
        if value:
            path = shutil.which(str(expand_home(value)), path=environ.get("PATH", os.defpath))
            if path is None:
                text = f"{name} names {value}, which is not a program that can be started: correct the path"
                raise NoChromium(text, codes.BROWSER_MISSING)
            return Path(path)
    for candidate in _candidates(environ, home):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise NoChromium(
        "no Chromium, Chrome or Edge was found on PATH or in the usual places: run `mcp-hub browser install`, or name "
        "one as browser.executable in the configuration",
        codes.BROWSER_MISSING,
    )


def _candidates(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    path = os.pathsep.join(
        part for part in environ.get("PATH", os.defpath).split(os.pathsep) if Path(part).is_absolute()
    )
    for name in _NAMES:
        program = shutil.which(name, path=path) if path else None
        if program is not None:
            yield Path(program)
    yield from map(Path, _USUAL_PATHS.get(sys.platform, ()))
    directory = installed_below(environ, home)
    installed = [file for pattern in _INSTALLED for file in directory.glob(pattern)]
    yield from sorted(installed, key=lambda file: _build_number(file, directory), reverse=True)


def installed_below(environ: Mapping[str, str], home: Path) -> Path:
    """Returns the directory in which Playwright's installer keeps its browsers."""
    browsers_path = environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if browsers_path and browsers_path != "0":
        return Path(browsers_path)
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ms-playwright"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "ms-playwright"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "ms-playwright"


def _build_number(file: Path, directory: Path) -> int:
    number = file.relative_to(directory).parts[0].rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def narrow_environment() -> None:
    """Removes from this process's environment whatever neither Playwright's driver nor Chromium needs.

    The driver inherits the environment, and a page that breaks out of Chromium could read it there. MCP_HUB_RUN stays,
    as the hub finds processes that a run has left behind by it.
    """
    for name in list(os.environ):
        if name.upper() not in _INHERITED and name not in _INHERITED and not name.startswith(_INHERITED_PREFIXES):
            del os.environ[name]


def needs_no_sandbox() -> bool:
    """Returns whether Chromium must run without its own sandbox, as it refuses to start with one as root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def arguments(proxy_url: str) -> list[str]:
    """Returns the switches that make the proxy the only way out and stop Chromium's own requests to its maker."""
    return [
        f"--proxy-server={proxy_url}",
        "--proxy-bypass-list=<-loopback>",  # loopback goes through the proxy too
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # Chromium resolves no name but the proxy's
        "--disable-quic",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--dns-prefetch-disable",
        "--no-pings",
        "--disable-domain-reliability",
        "--disable-client-side-phishing-detection",
        "--safebrowsing-disable-auto-update",
        f"--gaia-url=http://{READY_HOST}/",  # by default it asks Google at each start who is logged in
    ]


async def start_driver() -> Playwright:
    """Starts Playwright's driver, a process of its own, with the narrowed environment."""
    narrow_environment()
    from playwright.async_api import async_playwright  # takes half a second

    return await async_playwright().start()


def options(executable: Path, proxy_url: str, headless: bool, downloads: Path) -> dict[str, Any]:
    """Returns the keyword arguments that both of Playwright's launch methods take."""
    return {
        "executable_path": executable,
        "headless": headless,
        "args": arguments(proxy_url),
        "chromium_sandbox": not needs_no_sandbox(),
        "env": dict(os.environ),
        "downloads_path": downloads,
        "timeout": LAUNCH_WAIT * 1000,
        "handle_sigint": False,
        "handle_sigterm": False,
        "handle_sighup": False,
    }
