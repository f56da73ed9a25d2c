"""Imports modules, or runs a command of the hub, as on another system.

    python -m tests.fakes.other_system win32 import
    python -m tests.fakes.other_system win32 run status --json

What the other system lacks is gone: modules of the standard library, and names of its other modules. The standard
library and installed packages are those of this system, imported before; only the project's modules see the other one.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.abc
import mmap
import os
import pathlib
import pkgutil
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

PROJECT: Final = "mcp_hub"
NO_MODULES: Final = {
    "win32": {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "posix", "readline", "uvloop"},
    "darwin": {"winreg"},
}
NO_NAMES: Final[dict[str, dict[ModuleType, str]]] = {
    "win32": {
        os: "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK P_PID SCHED_IDLE ST_RDONLY WEXITED WNOHANG WNOWAIT "
        "chown eventfd fchmod fchown fork forkpty getegid geteuid getgid getgroups getpgid getpgrp getsid getuid "
        "killpg lchown memfd_create mkfifo nice openpty pidfd_open posix_fallocate posix_spawn register_at_fork "
        "sched_getaffinity sched_setaffinity sendfile set_blocking setsid splice statvfs sysconf tcgetpgrp uname wait3 "
        "wait4 waitid",
        signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH alarm "
        "pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo",
        socket: "AF_UNIX AF_NETLINK SO_PEERCRED SO_REUSEPORT CMSG_LEN send_fds recv_fds socketpair_unix",
        asyncio: "open_unix_connection start_unix_server ThreadedChildWatcher PidfdChildWatcher SafeChildWatcher",
        mmap: "MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED MADV_HUGEPAGE MADV_DONTNEED PROT_READ PROT_WRITE",
        time: "clock_gettime pthread_getcpuclockid tzset",
    },
    "darwin": {
        os: "P_PIDFD eventfd memfd_create pidfd_open posix_fallocate sched_getaffinity sched_setaffinity splice "
        "copy_file_range getrandom waitid",
        socket: "AF_NETLINK SO_PEERCRED SO_BINDTODEVICE",
        mmap: "MADV_HUGEPAGE",
    },
}
"""What the documentation of Python says is not there, and what is."""


INSTALLED: Final = ("platformdirs", "rich.console", "rich.table", "rich.text", "watchfiles")
"""Packages that look at the system when they are imported, which the project does late."""


class RefusingLibrary:
    """A library of Windows of which every function fails."""

    def __init__(self, name: str, **options: object) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Callable[..., int]:
        def refuse(*arguments: object) -> int:
            return 1

        return refuse


class Hidden(importlib.abc.MetaPathFinder):
    """Finds no module that the other system lacks."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"there is no module {name!r} on {sys.platform}", name=name)
        return None


def _unavailable(*_: object) -> None:
    raise NotImplementedError


def imitate(system: str) -> None:
    """Makes this process look like one of `system` to modules that are imported from now on."""
    for name in [name for name in sys.modules if name.partition(".")[0] in {PROJECT, *NO_MODULES[system]}]:
        del sys.modules[name]
    sys.meta_path.insert(0, Hidden(NO_MODULES[system]))
    if system == "win32":
        unix, pair = socket.AF_UNIX, socket.socketpair
        socket.socketpair = lambda *_: pair(unix)  # type: ignore[assignment]  # what event loops wake themselves with
        asyncio.SelectorEventLoop.add_signal_handler = _unavailable  # type: ignore[assignment, method-assign]
        os.name = "nt"
        windows = types.ModuleType("msvcrt")
        windows.get_osfhandle = int  # type: ignore[attr-defined]
        sys.modules["msvcrt"] = windows
        ctypes.WinDLL = RefusingLibrary  # type: ignore[attr-defined]
        pathlib.Path.__new__.__globals__["WindowsPath"] = pathlib.PosixPath  # a path is one of this machine
    for module, names in NO_NAMES[system].items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = os.cpu_count  # as it is where there is no affinity
    sys.platform = system


def modules() -> list[str]:
    """Returns the names of all modules of the project but its programs, which run when they are imported."""
    project = importlib.import_module(PROJECT)
    names = (module.name for module in pkgutil.walk_packages(project.__path__, f"{PROJECT}."))
    return [name for name in names if not name.endswith(".__main__")]


def import_all(system: str) -> int:
    """Imports each module of the project as on the other system, and prints those that fail."""
    names = modules()
    for name in names:
        importlib.import_module(name)
    imitate(system)
    failed = 0
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    return min(failed, 1)


def run(system: str, arguments: Sequence[str]) -> int:
    """Runs a command of the hub as on the other system; returns its exit code."""
    for name in (*modules(), *INSTALLED):
        importlib.import_module(name)  # so that what it is made of is that of this system
    imitate(system)
    return importlib.import_module("mcp_hub.cli").main(list(arguments))


if __name__ == "__main__":
    _, system_name, command, *argv = sys.argv
    sys.exit(import_all(system_name) if command == "import" else run(system_name, argv))
