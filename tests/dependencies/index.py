"""A package index on loopback (PEP 503) that writes down what it is asked for, and wheels made for it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.fakes.client import PATIENCE


def wheel(
    directory: Path, name: str, version: str, requires: Sequence[str] = (), extras: Mapping[str, str] | None = None
) -> Path:
    """A wheel with one empty module. `extras` has what each of them requires."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    for extra, required in (extras or {}).items():
        metadata += [f"Provides-Extra: {extra}", f'Requires-Dist: {required}; extra == "{extra}"']
    files = {
        f"{module}.py": "",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{at},sha256={_digest(text.encode())},{len(text)}" for at, text in files.items()]
    path = directory / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for at, text in {**files, f"{info}/RECORD": "\n".join([*record, f"{info}/RECORD,,", ""])}.items():
            archive.writestr(at, text)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def package(wheel: Path) -> str:
    """The name of its package, as an index spells it."""
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()


@dataclass
class Index:
    """Packages by wheel; `requested_files` has the names of the files that were requested."""

    wheels: Sequence[Path]
    url: str = ""
    requested_files: list[str] = field(default_factory=list)

    def page(self, name: str) -> bytes | None:
        """The links of one package."""
        wheels = [path for path in self.wheels if package(path) == name]
        hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
        links = [f'<a href="/files/{file}#sha256={digest}">{file}</a>' for file, digest in hashes.items()]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if links else None

    def file(self, name: str) -> bytes | None:
        """The bytes of one file."""
        self.requested_files.append(name)
        return next((path.read_bytes() for path in self.wheels if path.name == name), None)

    def environ(self, directory: Path) -> dict[str, str]:
        """What makes pip ask this index, and nothing and nobody else."""
        return {
            "PIP_INDEX_URL": f"{self.url}/simple/",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_CACHE_DIR": str(directory / "cache"),
            "PIP_NO_COMPILE": "1",
        }


@contextlib.contextmanager
def indexing(wheels: Sequence[Path]) -> Iterator[Index]:
    """An index of these wheels."""
    index = Index(wheels)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, name = unquote(self.path).strip("/").partition("/")
            body = index.page(name) if kind == "simple" else index.file(name)
            self.send_response(404 if body is None else 200)
            self.send_header("content-type", "text/html" if kind == "simple" else "application/octet-stream")
            self.send_header("content-length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET  # uv asks for the size first

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)
