"""Starts Debian's squid and tinyproxy on loopback, each with its own configuration files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.client import PATIENCE, free_port

USER, PASSWORD = "me", "pass-w0rd"
NAME = "mcp.intranet.example"
"""A host name that only squid can resolve."""


@dataclass
class DebianProxy:
    """A running proxy."""

    port: int
    log: Path
    process: asyncio.subprocess.Process

    def url(self, credentials: str = f"{USER}:pass-w0rd@", scheme: str = "http") -> str:
        return f"{scheme}://{credentials}127.0.0.1:{self.port}"

    async def logged(self, text: str) -> None:
        """Waits until its log contains `text`: the proxy logs a tunnel when the tunnel has ended."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.log.read_text():
                await asyncio.sleep(0.05)

    async def die(self) -> None:
        """Kills the proxy, with every connection through it."""
        if self.process.returncode is None:
            self.process.kill()
        async with asyncio.timeout(PATIENCE):
            await self.process.wait()


def program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert path is not None, f"{name} is missing: run scripts/peers"
    return path


async def _answers(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert process.returncode is None, log.read_text() if log.exists() else "it ended"
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


@contextlib.asynccontextmanager
async def _running(argv: Sequence[str], port: int, log: Path) -> AsyncIterator[DebianProxy]:
    quiet = asyncio.subprocess.DEVNULL
    # Squid does not run as root.
    user = "proxy" if os.getuid() == 0 else None
    process = await asyncio.create_subprocess_exec(*argv, stdin=quiet, stdout=quiet, stderr=quiet, user=user)
    proxy = DebianProxy(port, log, process)
    try:
        await _answers(port, process, log)
        yield proxy
    finally:
        await proxy.die()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """A directory that belongs to the user of the proxies."""
    with tempfile.TemporaryDirectory(prefix="mcp-hub-proxy-") as name:
        directory = Path(name)
        yield directory


def _hand_over(directory: Path) -> None:
    if os.getuid() == 0:
        for path in (directory, *directory.iterdir()):
            shutil.chown(path, "proxy")


@contextlib.asynccontextmanager
async def squid(idle: str = "1 hour", tls: tuple[Path, Path] | None = None) -> AsyncIterator[DebianProxy]:
    """Runs squid, which requires credentials. `idle`: how long a tunnel may be idle. `tls`: its certificate and key."""
    with _directory() as directory:
        hashed = subprocess.run(
            ["openssl", "passwd", "-1", PASSWORD], capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout.strip()
        (directory / "users").write_text(f"{USER}:{hashed}\n")
        (directory / "hosts").write_text(f"127.0.0.1 localhost {NAME}\n")
        port, kind, tls_options = free_port(), "http_port", ""
        if tls is not None:
            cert, key = (shutil.copy(file, directory / file.name) for file in tls)
            kind, tls_options = "https_port", f" tls-cert={cert} tls-key={key}"
        settings = directory / "squid.conf"
        settings.write_text(f"""
            {kind} 127.0.0.1:{port}{tls_options}
            pid_filename {directory}/squid.pid
            cache_log {directory}/cache.log
            access_log stdio:{directory}/access.log
            hosts_file {directory}/hosts
            coredump_dir {directory}
            cache deny all
            shutdown_lifetime 0 seconds
            read_timeout {idle}
            auth_param basic program /usr/lib/squid/basic_ncsa_auth {directory}/users
            acl known proxy_auth REQUIRED
            http_access allow known
            http_access deny all
        """)
        _hand_over(directory)
        service = f"mcphub{port}"
        argv = [program("squid"), "-N", "-n", service, "-f", str(settings)]
        try:
            async with _running(argv, port, directory / "cache.log") as proxy:
                proxy.log = directory / "access.log"
                yield proxy
        finally:
            for shared in Path("/dev/shm").glob(f"{service}-*"):  # a killed proxy leaves it behind
                shared.unlink()


@contextlib.asynccontextmanager
async def tinyproxy() -> AsyncIterator[DebianProxy]:
    """Runs tinyproxy, which requires credentials."""
    with _directory() as directory:
        port = free_port()
        settings = directory / "tinyproxy.conf"
        lines = [f"Port {port}", "Listen 127.0.0.1", "Timeout 600", "MaxClients 50", f"BasicAuth {USER} {PASSWORD}"]
        settings.write_text("\n".join([*lines, f'LogFile "{directory}/log"', "LogLevel Connect", ""]))
        _hand_over(directory)
        async with _running([program("tinyproxy"), "-d", "-c", str(settings)], port, directory / "log") as proxy:
            yield proxy
