"""The groups of tools and the agent skills of a toolkit."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypedDict

from mcp_hub.config.builtin_servers import read_name_and_description
from mcp_hub.config.root_rules import BASIC
from mcp_hub.errors import InvalidParameters
from mcp_hub.hub.groups import active_in, notes_of
from mcp_hub.hub.groups.meta_tools import activated_in, reset_text
from mcp_hub.servers.local.tool_results import ToolResponse

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("mcp_hub.library")


@dataclass
class ToolGroup:
    """Tools that are activated and deactivated together. `notes` say how to use them."""

    name: str
    active: bool
    description: str
    notes: str | None = None


class GroupRegistry:
    """The groups of a toolkit, as its program and the model change them."""

    def __init__(self) -> None:
        self.groups: dict[str, ToolGroup] = {}
        """The groups by name, without `basic`, which is always active."""

    def _update_hub(self) -> None:
        """Called when groups have changed."""

    def _remove_tools_of(self, groups: Collection[str]) -> None:
        """Removes the tools that are in these groups."""

    def create_tool_group(
        self, group_name: str, description: str, active: bool = False, notes: str | None = None
    ) -> None:
        """Adds a group; `notes` say how to use its tools. Raises ValueError if it exists or is called `basic`."""
        if group_name in self.groups or group_name == BASIC:
            raise ValueError(f"Tool group '{group_name}' is already registered in the toolkit.")
        self.groups[group_name] = ToolGroup(group_name, active, description, notes)
        self._update_hub()

    def update_tool_groups(self, group_names: list[str], active: bool) -> None:
        """Activates or deactivates groups. `basic` stays active, and unknown names are ignored."""
        for name in group_names:
            if name == BASIC:
                log.warning("The 'basic' tool group is always active, skipping it.")
            elif name in self.groups:
                self.groups[name].active = active
        self._update_hub()

    def remove_tool_groups(self, group_names: str | list[str]) -> None:
        """Removes groups and their tools.

        Raises ValueError for `basic`, and TypeError if `group_names` are not names.
        """
        names = take_names(group_names, "group_names")
        if BASIC in names:
            raise ValueError("Cannot remove the default 'basic' tool group.")
        self._remove_tools_of(names)
        for name in names:
            self.groups.pop(name, None)
        self._update_hub()

    def _activate_only(self, names: Collection[str]) -> None:
        for name, group in self.groups.items():
            group.active = name in names
        self._update_hub()

    def get_activated_notes(self) -> str:
        """Returns the notes of the active groups as one text."""
        return notes_of(group for group in self.groups.values() if group.active)

    get_tool_group_notes = get_activated_notes

    def reset_equipped_tools(self, **kwargs: Any) -> ToolResponse:
        """This function allows you to activate or deactivate tool groups
        dynamically based on your current task requirements.
        **Important: Each call sets the absolute final state of ALL tool
        groups, not incremental changes**. Any group not explicitly set to True
        will be deactivated, regardless of its previous state.

        **Best practice**: Actively manage your tool groups——activate only
        what you need for the current task, and promptly deactivate groups as
        soon as they are no longer needed to conserve context space.

        The function will return the usage instructions for the activated tool
        groups, which you **MUST pay attention to and follow**. You can also
        reuse this function to check the notes of the tool groups.
        """
        try:
            activated = activated_in(kwargs, self.groups)
        except InvalidParameters as error:
            return ToolResponse([{"type": "text", "text": str(error)}])
        self._activate_only(activated)
        return ToolResponse([{"type": "text", "text": reset_text(activated, self.get_activated_notes())}])

    def _reset_arguments(self) -> type[BaseModel]:
        """Returns a model of the arguments of `reset_equipped_tools`: a boolean for each group."""
        from pydantic import Field, create_model

        fields: dict[str, Any] = {
            name: (bool, Field(default=False, description=group.description)) for name, group in self.groups.items()
        }
        return create_model("_DynamicModel", **fields)

    def state_dict(self) -> dict[str, Any]:
        """Returns `{"active_groups": [...]}`."""
        return {"active_groups": [name for name, group in self.groups.items() if group.active]}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Restores what `state_dict` returned; groups that it does not name become inactive.

        Raises ValueError if it is malformed or, with `strict`, has other keys.
        """
        self._activate_only(active_in(state_dict, strict))


def take_names(value: Any, parameter: str) -> list[str]:
    """Returns the names in an argument called `parameter`. Raises TypeError if it has anything else."""
    names = (
        [value] if isinstance(value, str) and parameter != "enable_funcs" and parameter != "disable_funcs" else value
    )
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"The {parameter} must be a list of strings, but got {type(value)}.")
    return names


class StateOfAgent:
    """Makes a toolkit an instance of AgentScope's own Toolkit class, so that the state of an agent includes it.

    AgentScope's `StateModule` collects its own instances. AgentScope may be imported before the hub or after it.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Returns the class of the object, which is a subclass of AgentScope's too where 1.x is imported."""
        agentscope_class = getattr(sys.modules.get("agentscope.tool"), "Toolkit", None)
        cls: Any = type(self)
        is_joinable = isinstance(agentscope_class, type) and hasattr(agentscope_class, "state_dict")
        return _joined_class(cls, agentscope_class) if is_joinable else cls


@cache
def _joined_class(cls: type, agentscope_class: type) -> type:
    return type(cls.__name__, (cls, agentscope_class), {"__module__": cls.__module__, "__doc__": cls.__doc__})


SKILL_INSTRUCTION: Final = """# Agent Skills
The agent skills are a collection of folds of instructions, scripts, and resources that you can load dynamically to \
improve performance on specialized tasks. Each agent skill has a `SKILL.md` file in its folder that describes how to \
use the skill. If you want to use a skill, you MUST read its `SKILL.md` file carefully."""
SKILL_TEMPLATE: Final = """## {name}
{description}
Check "{dir}/SKILL.md" for how to use this skill"""


class AgentSkill(TypedDict):
    """One skill. `dir` is the directory with its `SKILL.md`."""

    name: str
    description: str
    dir: str


class SkillRegistry:
    """The skills of an agent, and the prompt that describes them.

    `instruction` introduces the skills; `template` describes each one and contains `{name}`, `{description}` and
    `{dir}`.
    """

    def __init__(self, instruction: str | None, template: str | None) -> None:
        self.skills: dict[str, AgentSkill] = {}
        self._instruction = SKILL_INSTRUCTION if instruction is None else instruction
        self._template = SKILL_TEMPLATE if template is None else template

    def register_agent_skill(self, skill_dir: str) -> None:
        """Adds the skill in a directory. Raises ValueError if it is invalid or its name is taken."""
        name, description = read_name_and_description(skill_dir)
        if name in self.skills:
            raise ValueError(f"An agent skill with name '{name}' is already registered in the toolkit.")
        self.skills[name] = {"name": name, "description": description, "dir": str(skill_dir)}

    def remove_agent_skill(self, name: str) -> None:
        """Removes a skill; does nothing if there is none of this name."""
        self.skills.pop(name, None)

    def get_agent_skill_prompt(self) -> str | None:
        """Returns the prompt that describes the skills, or None if there are none."""
        parts = [self._template.format(**skill) for skill in self.skills.values()]
        return "\n".join([self._instruction, *parts]) if parts else None
