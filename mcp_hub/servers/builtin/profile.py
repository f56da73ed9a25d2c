"""The directory a browser keeps cookies and logins in: one browser at a time, nobody else's to read."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import IO, Any, Final

from mcp_hub.servers.builtin.scratch import lock
from mcp_hub.servers.local.results import ToolRefused

_LOCK: Final = ".mcp-hub-lock"
_ASK_WAIT: Final = 1.0
_END_WAIT: Final = 1.0
_POLL: Final = 0.02
_PREFERENCES: Final[dict[str, Any]] = {
    "autofill": {"enabled": False, "profile_enabled": False, "credit_card_enabled": False},
    "credentials_enable_service": False,
    "search": {"suggest_enabled": False},
    "alternate_error_pages": {"enabled": False},
}
"""What a new profile begins with: what forms hold is not sent to anybody but the page."""


class Profile:
    """A profile in use. Raises ToolRefused if it cannot be used, or is used by another browser."""

    def __init__(self, path: Path) -> None:
        self.path = path = path.expanduser()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
                raise ToolRefused("tool_error", f"The profile {path} belongs to another user: set browser.profile.")
            held = lock(path / _LOCK)
        except OSError as error:
            what = f"The profile {path} cannot be used: {error.strerror}. Set browser.profile to another directory."
            raise ToolRefused("tool_error", what) from None
        if held is None:
            raise _in_use(path, "another session of the hub")
        self._lock: IO[bytes] = held
        pid = _chromium_in(path)
        if pid is not None:
            held.close()
            raise _in_use(path, f"the browser with process id {pid}")
        self._process: int | None = None
        self._begin()

    def _begin(self) -> None:
        file = self.path / "Default" / "Preferences"
        if not file.parent.exists():
            file.parent.mkdir(mode=0o700)
            file.write_text(json.dumps(_PREFERENCES))

    def release(self) -> None:
        """Let others use it, once the browser in it has ended; one that does not within a second is made to."""
        if (process := self._process) is not None:
            for number in (0, signal.SIGKILL):
                end = time.monotonic() + _END_WAIT
                while time.monotonic() < end and _signalled(process, number):
                    time.sleep(_POLL)
        self._lock.close()

    def opened(self) -> None:
        """A browser has started in it; its lock, a symbolic link, says which process that is."""
        self._process = _holder(self.path)


def _in_use(path: Path, by: str) -> ToolRefused:
    return ToolRefused(
        "tool_error",
        f"The profile {path} is in use by {by}: close that one first, or leave browser.profile unset to browse "
        "without a profile that is kept.",
    )


def _chromium_in(path: Path) -> int | None:
    """The process id of another Chromium that has the profile open: it listens on a socket, and its lock names it."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ASK_WAIT)
        try:
            asking.connect(os.path.realpath(path / "SingletonSocket"))
        except OSError:
            return None  # nobody there: what a browser that was killed has left
    return _holder(path)


def _holder(path: Path) -> int | None:
    try:
        number = os.readlink(path / "SingletonLock").rpartition("-")[2]  # noqa: PTH115 - a link that leads nowhere
    except OSError:
        return None
    return int(number) if number.isdigit() else None


def _signalled(process: int, number: int) -> bool:
    """Whether a process was there to be signalled; 0 only asks. One that nobody has reaped yet is not there."""
    try:
        os.kill(process, number)
    except OSError:
        return False
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return not Path("/proc/self").exists()
