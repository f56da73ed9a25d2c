"""nginx, haproxy and caddy in front of the listener: it sees no request that the proxy has not sent as one.

The proxy adds a header to each request that it passes on. A request without that header was hidden in another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.http1.listener import Listener
from mcp_hub.transport.http1.server_connection import ServerConnection
from tests.fakes.client import PATIENCE, free_port
from tests.transport import corpora

pytestmark = pytest.mark.anyio

AT_ONCE = 128
LAST = 32
MARK = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"
NGINX = """
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_timeout 1s; client_header_timeout 1s;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  upstream hub {{ server 127.0.0.1:{hub}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://hub; proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off;
      proxy_set_header Connection ""; proxy_set_header X-Front 1;
    }}
  }}
}}
"""
HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 1s
  timeout server 1s
  timeout http-request 1s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  http-request set-header X-Front 1
  default_backend hub
backend hub
  server hub 127.0.0.1:{hub}
"""
CADDY = """
{{
  admin off
  auto_https off
  servers {{
    timeouts {{
      read_body 1s
      read_header 1s
    }}
  }}
}}
http://:{port} {{
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:{hub} {{
    header_up X-Front 1
    flush_interval -1
  }}
}}
"""
PROXIES = {
    "nginx": (NGINX, ["-c", "{file}", "-p", "{directory}"]),
    "haproxy": (HAPROXY, ["-q", "-f", "{file}"]),
    "caddy": (CADDY, ["run", "--adapter", "caddyfile", "--config", "{file}"]),
}


@dataclass
class Seen:
    """What the listener was asked: the target of each request, and whether the proxy had sent it."""

    requests: list[tuple[bytes, bool]] = field(default_factory=list)

    async def __call__(self, request: HttpRequest, reply: HttpReply) -> None:
        self.requests.append((request.head.target, request.head.values(b"x-front") == ["1"]))
        with contextlib.suppress(ClientGone):
            await request.body(1 << 20)
        await reply.send(200, b"ok")


@contextlib.asynccontextmanager
async def behind(name: str, directory: Path) -> AsyncIterator[tuple[int, Seen]]:
    """A listener behind the proxy of this name: the proxy's port, and what the listener sees."""
    record, loop = Seen(), asyncio.get_running_loop()
    listener = Listener(record, 4 * AT_ONCE)
    server = await loop.create_server(partial(ServerConnection, listener), "127.0.0.1", 0)
    text, arguments = PROXIES[name]
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, f"{name} is not installed: run scripts/peers"
    port, file = free_port(), directory / "proxy.conf"
    facts = {"port": port, "hub": server.sockets[0].getsockname()[1], "directory": directory, "file": file}
    file.write_text(text.format(**facts))
    log = (directory / "said").open("wb")
    process = await asyncio.create_subprocess_exec(
        program,
        *[argument.format(**facts) for argument in arguments],
        stdout=log,
        stderr=log,
        env={**os.environ, "HOME": str(directory)},
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while b" 200 " not in await exchange(port, MARK % b"ready"):
                assert process.returncode is None, (directory / "said").read_text()
        yield port, record
    finally:
        if process.returncode is None:
            process.terminate()
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        log.close()
        server.close()
        for slot in list(listener.open):
            slot.holder.abort()
        await server.wait_closed()


async def exchange(port: int, text: bytes) -> bytes:
    """Returns the first response of the proxy, which itself ends incomplete requests."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    answer = b""
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(text)
            while not re.search(rb"\r\n\r\n", answer) and (piece := await reader.read(65536)):
                answer += piece
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return answer


@pytest.mark.parametrize("name", PROXIES)
async def test_no_request_is_smuggled_past_a_proxy_to_the_listener(name: str, tmp_path: Path) -> None:
    texts = [text for corpus in corpora.HIDING for _, text in corpora.hiding(corpus)]
    texts += [
        case.text
        for corpus in ("llhttp", "gunicorn", "h11")
        for case in corpora.cases(corpus)
        if case.side == "request"
    ]
    async with behind(name, tmp_path) as (port, record):
        for start in range(0, len(texts), AT_ONCE):
            await asyncio.gather(*(exchange(port, text) for text in texts[start : start + AT_ONCE]))
        for _ in range(LAST):  # behind everything that a connection to the listener was sent
            assert b" 200 " in await exchange(port, MARK % b"last")
    assert [request for request in record.requests if not request[1]] == []
    assert len(record.requests) > 4 * LAST
