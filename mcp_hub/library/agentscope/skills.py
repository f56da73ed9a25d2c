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
    """One of them; `dir` is the directory with its `SKILL.md`."""

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
        name, description = described(skill_dir)
        if name in self.skills:
            raise ValueError(f"An agent skill with name '{name}' is already registered in the toolkit.")
        self.skills[name] = {"name": name, "description": description, "dir": str(skill_dir)}

    def remove_agent_skill(self, name: str) -> None:
        """Tell the agent of it no longer; nothing if there is none."""
        self.skills.pop(name, None)

    def get_agent_skill_prompt(self) -> str | None:
        """What to tell the agent of its skills; None without one."""
        parts = [self._template.format(**one) for one in self.skills.values()]
        return "\n".join([self._instruction, *parts]) if parts else None
