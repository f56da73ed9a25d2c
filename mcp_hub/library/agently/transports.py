"""What `use_mcp` takes, as entries of a configuration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcp_hub.library.miroflow.by_server import entry_of

Json = dict[str, Any]

_SCRIPTS: Final = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}
_TAKEN: Final = (
    "a URL, the path of a .py or .js script, {'mcpServers': {...}}, StdioServerParameters, or a client transport with "
    "a url or a command"
)


def entries_of(transport: Any, headers: Mapping[str, str] | None = None) -> dict[str, tuple[Json, bool]]:
    """{name: (entry, whether it is meant literally)}; the name is "" where the transport has none.

    `headers` are sent to every server with a URL. Raises TypeError for what is no transport, ValueError for a script
    that is not there.
    """
    found = _entries(transport)
    for entry, _ in found.values():
        if headers and "url" in entry:
            entry["headers"] = {**(entry.get("headers") or {}), **headers}
    return found


def _entries(transport: Any) -> dict[str, tuple[Json, bool]]:
    if isinstance(transport, Mapping):
        servers = transport.get("mcpServers", transport.get("servers"))
        if isinstance(servers, Mapping) and servers:
            return {str(name): (dict(entry), False) for name, entry in servers.items()}
        if "url" in transport or "command" in transport:
            return {"": (dict(transport), False)}
        raise TypeError(f"a configuration for use_mcp has 'mcpServers'; transports are: {_TAKEN}")
    if isinstance(transport, str | Path) and not str(transport).startswith(("http://", "https://")):
        path = Path(transport).expanduser()
        if path.suffix not in _SCRIPTS:
            raise TypeError(f"{str(transport)!r} is no transport; transports are: {_TAKEN}")
        if not path.is_file():
            raise ValueError(f"there is no script {path}")
        return {"": ({"command": _SCRIPTS[path.suffix], "args": [str(path.resolve())]}, True)}
    url = getattr(transport, "url", None)
    if url is not None and not isinstance(transport, str):
        kind = "sse" if "sse" in type(transport).__name__.lower() else "http"
        headers = {str(key): str(value) for key, value in (getattr(transport, "headers", None) or {}).items()}
        return {"": ({"url": str(url), "transport": kind, "headers": headers}, True)}
    try:
        return {"": entry_of("use_mcp", transport)}
    except TypeError:
        raise TypeError(f"{type(transport).__name__} is no transport; transports are: {_TAKEN}") from None
