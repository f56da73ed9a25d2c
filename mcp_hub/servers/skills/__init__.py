"""The user's skills as a server of resources that needs no process: plain files, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote

from mcp_hub.config.skill import SKILL_FILE, Skill

MAX_DESCRIPTION: Final = 1000
"""Characters of one that are told at the start; the resource has all of it."""
_ABOUT: Final = (
    "Skills are instructions for particular tasks. Before a task that one is for, read its resource with "
    "resources/read; the other files it names lie beside it."
)


def uri_of(skill: Skill, file: str = SKILL_FILE) -> str:
    """`skill://NAME/FILE`, percent-encoded."""
    return f"skill://{quote(skill.name, safe='')}/{quote(file)}"


def told(skills: Iterable[Skill], exposed: Callable[[str], str | None]) -> str | None:
    """What a client is told of them at the start. `exposed(uri)` is the URI it knows a resource by, None for none."""
    lines = []
    for skill in skills:
        if (uri := exposed(uri_of(skill))) is not None:
            text = " ".join(skill.description.split())
            lines.append(
                f"- {skill.name}: {text[:MAX_DESCRIPTION]}{'…' if len(text) > MAX_DESCRIPTION else ''} ({uri})"
            )
    return "\n".join([_ABOUT, *lines]) if lines else None
