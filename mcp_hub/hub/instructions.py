"""Instructions for clients: the hub's own sentence, then those of its servers, bounded in length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mcp_hub.config.models import Server

MAX_OF_ONE: Final = 4096
"""Characters of one server's instructions."""
MAX_OF_ALL: Final = 16_384
OWN: Final = (
    "These are the tools, resources and prompts of several servers. The part of a name before '__' is the server's. "
    "What the servers say of themselves follows."
)


def merged(said: Iterable[tuple[str, str | None]], notes: str = "") -> str | None:
    """Merges (server, its instructions) into one text, in their order; None if there are none.

    A text that is too long is cut, and servers whose text does not fit are named. The user's own `notes` come first
    and whole.
    """
    parts: list[str] = []
    left = MAX_OF_ALL
    silent: list[str] = []
    for server, text in said:
        if text is None or not text.strip():
            continue
        body = text.strip()
        if len(body) > MAX_OF_ONE:
            body = f"{body[:MAX_OF_ONE]}… (cut)"
        part = f"## {server}\n{body}"
        if len(part) > left:
            silent.append(server)
            continue
        left -= len(part)
        parts.append(part)
    if silent:
        parts.append(f"(no room for what {', '.join(silent)} say)")
    return "\n\n".join([*([notes] if notes else []), *([OWN, *parts] if parts else [])]) or None


def of_skills(servers: Iterable[Server], exposed: Callable[[str, str], str | None]) -> Iterator[tuple[str, str | None]]:
    """Yields (server, its list of skills), with only those skills that the client may read.

    `exposed(server, uri)` returns the URI by which the client reads a resource, or None if it may not.
    """
    for server in servers:
        if server.skills:
            from mcp_hub.servers import skill_server

            def exposed_here(uri: str, id: str = server.id) -> str | None:
                return exposed(id, uri)

            yield server.id, skill_server.skill_notes(server.skills, exposed_here)
