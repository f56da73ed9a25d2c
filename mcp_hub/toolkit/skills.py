"""Agent skills as AgentScope has them: told to a model so that it can read them when it needs them."""

from __future__ import annotations

from typing import Final, TypedDict

from mcp_hub.config.skill import described

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
    name, description = described(directory)
    return {"name": name, "description": description, "dir": str(directory)}
