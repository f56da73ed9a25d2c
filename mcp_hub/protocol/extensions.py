"""The extensions of the protocol that pass through the hub; of others nobody is told, for nothing of theirs would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_hub.protocol.asking import Json, askable
from mcp_hub.protocol.era import Era

UI: Final = "io.modelcontextprotocol/ui"
"""Apps: resources `ui://...` that show tools."""
TASKS: Final = "io.modelcontextprotocol/tasks"
"""Calls that go on after their request was answered."""

PASSED: Final[Mapping[Era, tuple[str, ...]]] = {"handshake": (UI,), "modern": (UI, TASKS)}
"""The extensions of peers that both speak an era."""


def settings(capabilities: Mapping[str, Any], name: str) -> Json | None:
    """What a peer says of an extension in its capabilities; None if it does not have it."""
    declared = capabilities.get("extensions")
    found = declared.get(name) if isinstance(declared, dict) else None
    return found if isinstance(found, dict) else None


def told(capabilities: Mapping[str, Any], era: Era) -> Json:
    """What a server is told of a client's capabilities: what passes through the hub where both sides speak `era`."""
    passed = {name: found for name in PASSED[era] if (found := settings(capabilities, name)) is not None}
    return {**askable(capabilities), **({"extensions": passed} if passed else {})}


def advertised(servers: Iterable[tuple[Era, Mapping[str, Any]]], era: Era) -> Json:
    """Of the servers' extensions (era and capabilities of each) those that a client of `era` can use."""
    found: Json = {}
    for spoken, capabilities in servers:
        for name in PASSED[era]:
            said = settings(capabilities, name) if name in PASSED[spoken] else None
            if said is not None:
                found.setdefault(name, said)
    return found
