"""The files of the live page, which are part of the package, and the headers that confine what they may do."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest

DIRECTORY: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
KINDS: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
}
"""Media types by suffix; a file of another suffix is not served."""

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    b"trusted-types 'none'"
)
DENIED: Final = (
    *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "geolocation", "gyroscope"),
    *("hid", "idle-detection", "magnetometer", "microphone", "midi", "payment", "publickey-credentials-get"),
    *("screen-wake-lock", "serial", "usb", "xr-spatial-tracking"),
)
"""Features of a browser that the page never needs."""
CONFINED: Final = [
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in DENIED).encode()),
    (b"x-frame-options", b"DENY"),
]
"""Headers of every answer under `/ui`."""


class StaticFile(msgspec.Struct, frozen=True):
    """One file of the page."""

    body: bytes
    kind: bytes
    etag: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Returns all files of the page by name. They are read once."""
    files = {}
    for path in sorted(DIRECTORY.iterdir()) if DIRECTORY.is_dir() else ():
        if path.is_file() and path.suffix in KINDS:
            body = path.read_bytes()
            files[path.name] = StaticFile(body, KINDS[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')
    return files


async def send_file(request: HttpRequest, reply: HttpReply, name: str) -> bool:
    """Answers with a file of the page; returns False if there is none of that name."""
    file = static_files().get(name)
    if file is None:
        return False
    headers = [*CONFINED, (b"etag", file.etag.encode()), (b"cache-control", b"no-cache")]
    etags = [etag.strip() for value in request.values(b"if-none-match") for etag in value.split(",")]
    if any(etag.removeprefix("W/") == file.etag for etag in etags):
        await reply.send(304, headers=headers)
    else:
        await reply.send(200, file.body, file.kind, headers)
    return True
