"""Runs commands in this process, and reads the codes that they report."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mcp_hub.cli import main


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def codes(self) -> set[str]:
        """The codes in brackets, as they stand behind a message."""
        return set(re.findall(r"\[(HUB-\d{3})\]", self.out + self.err))


def said(*arguments: str) -> Said:
    """Runs a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def findings(config: Path | None, *arguments: str) -> list[dict[str, Any]]:
    """Returns what `doctor` finds."""
    named = [] if config is None else ["--config", str(config)]
    facts = json.loads(said("doctor", "--json", *named, *arguments).out)
    return [finding for section in facts["sections"] for finding in section["findings"]]


def reported_codes(config: Path | None, *arguments: str) -> set[str]:
    """Returns the codes that `doctor` reports."""
    return {finding["code"] for finding in findings(config, *arguments) if finding["code"] is not None}


def checked(config: Path, *arguments: str) -> set[str]:
    """Returns the codes that `check` reports."""
    return said("check", "--config", str(config), *arguments).codes


def written(directory: Path, text: str | bytes, name: str = "servers.yaml") -> Path:
    """Writes a configuration that is this user's alone."""
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)
    return path


def configured(directory: Path, servers: dict[str, Any], **root: Any) -> Path:
    """Writes a configuration with these servers."""
    return written(directory, json.dumps({"servers": servers, **root}), "servers.json")


def script(directory: Path, name: str, text: str) -> str:
    """Writes an executable file and returns its path."""
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@contextlib.contextmanager
def answering(answer: bytes, tls: dict[str, str] | None = None) -> Iterator[str]:
    """Answers every connection on a port of loopback with these bytes, and returns the URL. `{port}` is the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls is not None else None
    if context is not None and tls is not None:
        context.load_cert_chain(tls["cert"], tls["key"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    accepted.settimeout(10)
                    with accepted, contextlib.suppress(OSError):
                        speaking = accepted if context is None else context.wrap_socket(accepted, server_side=True)
                        speaking.recv(65536)
                        speaking.sendall(answer.replace(b"{port}", str(port).encode()))
                        speaking.shutdown(socket.SHUT_WR)
                        speaking.recv(65536)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{port}/mcp"
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def http(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Returns the bytes of an answer."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *lines, "", ""])
    return head.encode() + body


def unused_port() -> int:
    """Returns a port that refuses connections: it is bound, so that no other test gets it, and nobody listens on it."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    atexit.register(sock.close)
    port: int = sock.getsockname()[1]
    return port
