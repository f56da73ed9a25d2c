"""What stands before a request's body: checked, and encoded once for equal requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mcp_hub.transport.http1.content_coding import ACCEPTED
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from yarl import URL

KEPT: Final = 64
"""Heads that are kept; they differ by method, name of a tool and session."""
KEPT_SIZE: Final = 4096
"""Bytes of a head that is kept."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"[\x21-\x7e]+")
_NO_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def is_header(name: str, value: str) -> bool:
    """Whether a header can be sent: nothing in it that ends a line or is hidden."""
    return bool(_NAME.fullmatch(name)) and not _NO_VALUE.search(value)


class RequestHeads:
    """Heads of requests to one origin. Headers of a request win over `common`, and these over what is always said."""

    def __init__(self, origin: URL, common: Mapping[str, str]) -> None:
        always = {
            "Host": origin.host_port_subcomponent or "",
            "User-Agent": f"mcp-hub/{VERSION}",
            "Accept": "*/*",
            "Accept-Encoding": ACCEPTED,
        }
        self._common = _joined(always, common)
        self._kept: dict[tuple[object, ...], bytes] = {}

    def head(self, method: str, target: str, headers: Mapping[str, str], size: int | None) -> bytes:
        """The head of one request to `target`, a path with its query; `size` of its body in bytes, None: it has none.

        Raises ValueError for what would break it.
        """
        key = (method, target, *headers.items())
        begun = self._kept.get(key)
        if begun is None:
            begun = self._encoded(method, target, headers)
            if len(self._kept) >= KEPT:
                self._kept.clear()
            if len(begun) <= KEPT_SIZE:
                self._kept[key] = begun
        return begun + b"\r\n" if size is None else b"%bContent-Length: %d\r\n\r\n" % (begun, size)

    def _encoded(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        fields = _joined(self._common, headers)
        if not _TARGET.fullmatch(target) or not all(is_header(name, value) for name, value in fields.items()):
            raise ValueError("a header or an address that would break the request")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return ("\r\n".join(lines) + "\r\n").encode()


def _joined(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Both, the second's where they have the same name."""
    names = {name.lower() for name in second}
    return {**{name: value for name, value in first.items() if name.lower() not in names}, **second}
