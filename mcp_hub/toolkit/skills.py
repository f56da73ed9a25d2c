"""Agent skills: directories with a SKILL.md, told to a model so that it can read them when it needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypedDict

MAX_SKILL: Final = 1024 * 1024
"""Bytes of a SKILL.md."""

INSTRUCTION: Final = """# Agent Skills
The agent skills are a collection of folds of instructions, scripts, and resources that you can load dynamically to \
improve performance on specialized tasks. Each agent skill has a `SKILL.md` file in its folder that describes how to \
use the skill. If you want to use a skill, you MUST read its `SKILL.md` file carefully."""
TEMPLATE: Final = """## {name}
{description}
Check "{dir}/SKILL.md" for how to use this skill"""


class AgentSkill(TypedDict):
    """One of them."""

    name: str
    description: str
    dir: str


def read_skill(directory: str) -> AgentSkill:
    """The skill in a directory. Raises ValueError for a directory that is none."""
    if not Path(directory).is_dir():
        raise ValueError(f"The skill directory '{directory}' does not exist or is not a directory.")
    path = Path(directory) / "SKILL.md"
    if not path.is_file():
        raise ValueError(f"The skill directory '{directory}' must include a SKILL.md file at the top level.")
    with path.open("rb") as file:
        front = _front_matter(file.read(MAX_SKILL).decode("utf-8", errors="replace"))
    name, description = front.get("name"), front.get("description")
    if not name or not description:
        raise ValueError(
            f"The SKILL.md file in '{directory}' must have a YAML Front Matter including `name` and `description` "
            "fields."
        )
    return {"name": str(name), "description": str(description), "dir": str(directory)}


def _front_matter(text: str) -> dict[str, Any]:
    """What stands between the first two lines of dashes."""
    import yaml  # only where a skill is read

    first, *lines = text.lstrip("\ufeff").splitlines() or [""]
    if first.rstrip() != "---":
        return {}
    end = next((number for number, line in enumerate(lines) if line.rstrip() == "---"), None)
    try:
        found = yaml.safe_load("\n".join(lines[:end])) if end is not None else None
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}
