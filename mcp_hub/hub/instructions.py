"""What the hub tells a client at the start: a word of its own, and what its servers have to say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_OF_ONE: Final = 4096
"""Characters of one server's instructions."""
MAX_OF_ALL: Final = 16_384
OWN: Final = (
    "These are the tools, resources and prompts of several servers. The part of a name before '__' is the server's. "
    "What the servers say of themselves follows."
)


def merged(said: Iterable[tuple[str, str | None]], notes: str = "") -> str | None:
    """One text of (server, its instructions), in their order; None where no server says anything.

    A text that is too long is cut, and one for which there is no room any more is named. The user's own `notes` come
    first and whole.
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
