"""The hub behind real balancers: each runs the very file of docs/examples, with other ports and paths.

What is replaced is in `Balancer.file`: the addresses `0.0.0.0:443` (in the Caddyfile `0.0.0.0` and `:443`),
`127.0.0.1:8808` and `127.0.0.1:8809`, and the folder `/etc/ssl/`. docs/balancers.md says the same to its reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.downstream.network.visitor import network_hub
from tests.fakes.client import PATIENCE, StdioClient, free_port

EXAMPLES: Final = Path(__file__).parents[3] / "docs" / "examples"
NAME: Final = "hub.example"
CLIENT: Final = "127.0.0.2"
"""The address that clients come from, which is not that of the balancer."""
TOKENS: Final = {f"guest{number}": f"guest{number}-" + "0123456789abcdef" * 2 for number in range(16)}
"""So many clients that no balancer gives all of them to one hub."""
Kind = Literal["nginx", "haproxy", "caddy"]
KINDS: Final[tuple[Kind, ...]] = ("nginx", "haproxy", "caddy")

FILES: Final = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "caddy": "Caddyfile"}
AROUND_NGINX: Final = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
worker_processes 1;
worker_rlimit_nofile 10000;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {file};
}}
user root;
"""
"""What the nginx.conf of the system has around the file, without its paths."""


def program(name: str) -> str:
    """The path of a program of Debian; it fails for one that is missing."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert path is not None, f"{name} is missing: run scripts/peers"
    return path


def certify(folder: Path) -> ssl.SSLContext:
    """Writes a certificate for NAME and returns the context of clients that trust it."""
    pem, key = folder / f"{NAME}.pem", folder / f"{NAME}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         str(key), "-out", str(pem),
         "-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"],
        check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    context = ssl.create_default_context(cafile=str(pem))
    (folder / f"{NAME}.pem").write_text(pem.read_text() + key.read_text())  # HAProxy wants both in one
    return context


@dataclass
class Balancer:
    """A running balancer, and the hubs behind it."""

    kind: Kind
    folder: Path
    hubs: tuple[int, int]
    port: int
    client_context: ssl.SSLContext
    process: asyncio.subprocess.Process | None = None
    stderr: bytearray = field(default_factory=bytearray)

    @property
    def file(self) -> str:
        """The file of docs/examples with the ports and paths of this machine."""
        text = (EXAMPLES / FILES[self.kind]).read_text()
        replaced = {
            "127.0.0.1:8808": f"127.0.0.1:{self.hubs[0]}",
            "127.0.0.1:8809": f"127.0.0.1:{self.hubs[1]}",
            "/etc/ssl/": f"{self.folder}/",
            **(
                {"default_bind 0.0.0.0": "default_bind 127.0.0.1", f"{NAME}:443": f"{NAME}:{self.port}"}
                if self.kind == "caddy"
                else {"0.0.0.0:443": f"127.0.0.1:{self.port}"}
            ),
        }
        for old, new in replaced.items():
            assert old in text, f"{FILES[self.kind]} has no {old}"
            text = text.replace(old, new)
        return text

    def write(self, text: str) -> None:
        (self.folder / FILES[self.kind]).write_text(text)

    @property
    def command(self) -> list[str]:
        path = self.folder / FILES[self.kind]
        if self.kind == "nginx":
            wrapper = self.folder / "around.conf"
            wrapper.write_text(AROUND_NGINX.format(folder=self.folder, file=path))
            return [program("nginx"), "-p", str(self.folder), "-c", str(wrapper)]
        if self.kind == "haproxy":
            return [program("haproxy"), "-db", "-f", str(path)]
        return [program("caddy"), "run", "--config", str(path), "--adapter", "caddyfile"]

    def take_out(self, hub: int) -> None:
        """Tells nginx, which asks no hub for its health, that one is about to stop, as docs/balancers.md says."""
        assert self.process is not None
        server = f"server 127.0.0.1:{self.hubs[hub]}"
        self.write(self.file.replace(server + " ", server + " down "))
        self.process.send_signal(signal.SIGHUP)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.client_context, server_hostname=NAME, local_addr=(CLIENT, 0)
        )


@contextlib.asynccontextmanager
async def balancing(kind: Kind, folder: Path, hubs: Sequence[int]) -> AsyncIterator[Balancer]:
    """The balancer in front of the hubs on these ports; with one hub the other port is closed."""
    folder.mkdir(exist_ok=True)
    ports = (hubs[0], hubs[1] if len(hubs) > 1 else free_port())
    balancer = Balancer(kind, folder, ports, free_port(), certify(folder))
    balancer.write(balancer.file)
    environ = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    balancer.process = process = await asyncio.create_subprocess_exec(
        *balancer.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ
    )
    assert process.stderr is not None
    reader = asyncio.create_task(_collect(process.stderr, balancer.stderr))
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                assert process.returncode is None, balancer.stderr.decode()
                with contextlib.suppress(OSError):
                    _, writer = await balancer.connect()
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield balancer
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await process.wait()
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(PATIENCE):
            await process.wait()
            await reader


async def _collect(stream: asyncio.StreamReader, buffer: bytearray) -> None:
    while piece := await stream.read(4096):
        buffer += piece


@contextlib.asynccontextmanager
async def balanced_hub(folder: Path, servers: dict[str, Any], **root: Any) -> AsyncIterator[tuple[StdioClient, int]]:
    """A hub with the settings of docs/examples/balanced.yaml, and its port."""
    listen = {
        "public_host": NAME,
        "trusted_proxies": ["127.0.0.1"],
        "shutdown_delay": "5s",
        "principals": {name: {"token": token} for name, token in TOKENS.items()},
    }
    async with network_hub(folder, servers, listen, **root) as (process, base):
        yield process, int(base.rpartition(":")[2])
