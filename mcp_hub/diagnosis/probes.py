"""Probes of the machine, each with a timeout: versions of programs, listening ports, clocks of servers."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from mcp_hub.clients import Machine

T = TypeVar("T")
A = TypeVar("A")

ANSWER_WAIT: Final = 10.0
"""Seconds for a program to print its version."""
CONNECT_WAIT: Final = 5.0
MAX_WORKERS: Final = 8
MAX_OUTPUT: Final = 4000

_DESKTOP_PATHS: Final[Mapping[str, str]] = {
    "macos": "/usr/bin:/bin:/usr/sbin:/sbin",
    "linux": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


def of_desktop(machine: Machine) -> dict[str, str]:
    """Returns the environment of a program that a desktop application starts: PATH without what shells add."""
    path = _DESKTOP_PATHS.get(machine.system)
    return dict(machine.environ) if path is None else {**machine.environ, "PATH": path}


def in_parallel(ask: Callable[[A], T], about: Sequence[A]) -> list[T]:
    """Returns `ask(one)` for each of `about`, in order; at most `MAX_WORKERS` are asked at a time."""
    if not about:
        return []
    with ThreadPoolExecutor(min(MAX_WORKERS, len(about))) as pool:
        return list(pool.map(ask, about))


def first_line(argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Returns the first line that a program prints, such as its version; None if it fails or takes too long."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError:
        return None
    with process:
        try:
            output, _ = process.communicate(timeout=ANSWER_WAIT)
        except subprocess.TimeoutExpired:
            _end(process)
            return None
    lines = output[:MAX_OUTPUT].decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines and process.returncode == 0 else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program and what it has started."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, 9)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=1)


def port_problem(host: str, port: int) -> OSError | None:
    """Returns why no program could listen at an address now; None if one could. Nothing is left listening."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]") or "0.0.0.0", port))
            probe.listen(1)
        except OSError as error:
            return error
    return None


def holder_of(port: int) -> str | None:
    """Returns the program that listens on a port, with its process id; None if that cannot be found out."""
    inodes = _listening_inodes(port)
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            if any(_target(link) in inodes for link in (process / "fd").iterdir()):
                argv = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                return f"{' '.join(argv[:3]).strip()} (process {process.name})"
        except OSError:
            continue  # it has ended, or is another user's
    return None


def _target(link: Path) -> str:
    """Returns the target of a symbolic link, which need not exist; "" if the link is gone."""
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return ""


def _listening_inodes(port: int) -> set[str]:
    """Returns `socket:[INODE]`, as in /proc/PID/fd, of each socket that listens on a port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    return inodes


def clock_offset(url: str) -> float | None:
    """Returns by how many seconds the clock of this machine is ahead of a web server's; None if it does not say.

    The request has no credentials, and no certificate is checked: with a wrong clock none is valid.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_WAIT, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_WAIT)
    with contextlib.closing(connection):
        try:
            connection.request("HEAD", "/")
            date = connection.getresponse().getheader("Date")
            server_time = email.utils.parsedate_to_datetime(date or "").timestamp()
        except (OSError, http.client.HTTPException, ValueError):
            return None
    return time.time() - server_time
