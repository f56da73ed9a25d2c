"""The groups of a toolkit."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("mcp_hub.library")

BASIC: Final = "basic"
"""The group of what is in no other."""


@dataclass
class ToolGroup:
    """Tools that are switched on and off together; `notes` say how they are to be used."""

    name: str
    active: bool
    description: str
    notes: str | None = None


class ToolGroups(dict[str, ToolGroup]):
    """By name, without `basic`, which is always on."""

    def create(self, name: str, description: str, active: bool, notes: str | None) -> None:
        """One more. Raises ValueError for one that is there."""
        if name in self or name == BASIC:
            raise ValueError(f"Tool group '{name}' is already registered in the toolkit.")
        self[name] = ToolGroup(name, active, description, notes)

    def has_on(self, name: str) -> bool:
        """Whether a group is on."""
        return name == BASIC or (name in self and self[name].active)

    def switch(self, names: Collection[str], active: bool) -> None:
        """Switch some on or off; of unknown ones nothing is said."""
        for name in names:
            if name == BASIC:
                log.warning("The 'basic' tool group is always active, skipping it.")
            elif name in self:
                self[name].active = active

    def notes(self) -> str:
        """How the tools of the groups that are on are to be used."""
        on = (group for group in self.values() if group.active and group.notes)
        return "\n".join(f"## About Tool Group '{group.name}'\n{group.notes}" for group in on)

    def reset(self, states: Mapping[str, Any]) -> str:
        """Switch on what is true here and off everything else; what to tell the model. All or nothing is done."""
        for name, value in states.items():
            if not isinstance(value, bool):
                return f"Invalid arguments: the argument {name} should be a bool value, but got {type(value)}."
            if name not in self:
                known = ", ".join(f"'{one}'" for one in self)
                return f"Invalid arguments: there is no tool group '{name}'; there are: {known}. Nothing was changed."
        wanted = [name for name, value in states.items() if value]
        for name, group in self.items():
            group.active = name in wanted
        quoted = ", ".join(f"'{name}'" for name in wanted)
        text = f"Now tool groups {quoted} are activated." if wanted else ""
        if notes := self.notes():
            text += f" You MUST follow these notes to use these tools:\n<notes>{notes}</notes>"
        return text or "All tool groups are now deactivated currently."

    def choice(self) -> type[BaseModel]:
        """The arguments of `reset`: a boolean for each group."""
        from pydantic import Field, create_model

        fields: dict[str, Any] = {
            name: (bool, Field(default=False, description=group.description)) for name, group in self.items()
        }
        return create_model("_DynamicModel", **fields)

    def state_dict(self) -> dict[str, Any]:
        """`{"active_groups": [...]}`."""
        return {"active_groups": [name for name, group in self.items() if group.active]}

    def load_state_dict(self, state: Any, strict: bool) -> None:
        """What `state_dict` gave: groups it does not name are off. Raises ValueError for what it cannot have given."""
        active = state.get("active_groups") if isinstance(state, dict) else None
        if not isinstance(active, list):
            raise ValueError(
                "The state_dict for toolkit must be a dictionary with active_groups key and its value must be a list, "
                f"but got {type(state)}."
            )
        if strict and list(state) != ["active_groups"]:
            raise ValueError(
                f"Get additional keys in the state_dict: {list(state)}, but only 'active_groups' is expected."
            )
        for name, group in self.items():
            group.active = name in active
