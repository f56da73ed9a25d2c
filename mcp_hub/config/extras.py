"""The extras of the distribution: what needs them, whether they are installed, and the command that installs them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Literal

DISTRIBUTION: Final = "mcp-hub-gateway"
Extra = Literal["web", "browser", "oauth", "verify", "keyring", "otel"]
_PACKAGES: Final[Mapping[Extra, tuple[str, ...]]] = {
    "web": ("aiohttp", "markitdown"),
    "browser": ("playwright",),
    # mcp_types comes with mcp 2: beside AgentScope there is an older one.
    "oauth": ("aiohttp", "httpx2", "mcp", "mcp_types"),
    "verify": ("fastmcp", "httpx2"),
    "keyring": ("keyring",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
"""Extra -> the packages of it that are imported."""
OF_BUILTINS: Final[Mapping[str, Extra]] = {"web": "web", "native": "web", "browser": "browser"}
"""Built-in server -> the extra that it needs. The others need none."""


def missing(extra: Extra) -> str | None:
    """Returns what to tell the user if an extra is not installed, else None. It imports nothing of the extra."""
    if all(_is_there(package) for package in _PACKAGES[extra]):
        return None
    return f"it needs the extra '{extra}', which is not installed; run: pip install '{DISTRIBUTION}[{extra}]'"


def _is_there(package: str) -> bool:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    # A directory of that name in the working directory is a package without a file, not the package of the extra.
    return spec is not None and spec.origin is not None
