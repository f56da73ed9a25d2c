"""The skills of a toolkit's agent."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from mcp_hub.config.skill import INSTRUCTION, TEMPLATE, Skill, read_skill, skill_prompt


class AgentSkill(TypedDict):
    """A directory with a SKILL.md."""

    name: str
    description: str
    dir: str


class WithSkills:
    """`instruction` is what a model is told of skills, `template` of each: `{name}`, `{description}`, `{dir}`."""

    def __init__(self, instruction: str | None, template: str | None) -> None:
        self.skills: dict[str, AgentSkill] = {}
        self._instruction = INSTRUCTION if instruction is None else instruction
        self._template = TEMPLATE if template is None else template

    def register_agent_skill(self, skill_dir: str) -> None:
        """Tell the agent of the skill in a directory. Raises ValueError for one that is none or is known already."""
        skill = read_skill(skill_dir)
        if skill.name in self.skills:
            raise ValueError(f"An agent skill with name '{skill.name}' is already registered in the toolkit.")
        self.skills[skill.name] = {"name": skill.name, "description": skill.description, "dir": str(skill_dir)}

    def remove_agent_skill(self, name: str) -> None:
        """Tell the agent of it no longer; nothing if there is none."""
        self.skills.pop(name, None)

    def get_agent_skill_prompt(self) -> str | None:
        """What to tell the agent of its skills; None without one."""
        skills = [Skill(one["name"], one["description"], Path(one["dir"])) for one in self.skills.values()]
        return skill_prompt(skills, self._instruction, self._template)
