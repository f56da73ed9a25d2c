"""What a configuration has beside itself: local tools, the folders of tools and tool sets, skills.

Whoever has none of them pays for a look at the directories, no more: `folders.py` is imported where there is something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.config.entry import check_tools_dir, local_tools
from mcp_hub.config.fields import Fields
from mcp_hub.config.findings import Findings
from mcp_hub.config.keys import FILE_NAMES
from mcp_hub.config.models import Server
from mcp_hub.config.ownership import refuse_foreign_directory
from mcp_hub.config.rules import ToolSet
from mcp_hub.config.variables import Scope
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.config.folders import FolderReading

TOOLS: Final = "tools"
"""The directory of tools where none is named, beside a file of one of `FILE_NAMES`."""
NATIVE: Final = "native"
"""A folder, and the server it becomes."""
BUILTIN: Final = "builtin"
MCP: Final = "mcp"
TOOL_SETS: Final = Path("configs", "tool_sets")
LOCAL: Final = "local"
"""The server that the root key `tools_dir` stands for."""
SKILLS: Final = "skills"
"""A root key, and the server it stands for."""


class Duplicate(msgspec.Struct, frozen=True):
    """One name that was found twice: the first is kept. `what` is `tool`, `server`, `tool set` or `skill`."""

    what: str
    name: str
    kept: str
    dropped: str
    """Where each stands."""

    def __str__(self) -> str:
        return f"{self.dropped}: the {self.what} {printable(self.name, 100)!r} is left out: {self.kept} has it already"


class Found(msgspec.Struct):
    """What was found there."""

    servers: list[Server] = msgspec.field(default_factory=list)
    """Those of files of their own."""
    native: Server | None = None
    tool_sets: list[ToolSet] = msgspec.field(default_factory=list)
    left_out: list[str] = msgspec.field(default_factory=list)
    """What is wrong with files that count for nothing, a line each."""
    warnings: list[str] = msgspec.field(default_factory=list)
    advice: list[str] = msgspec.field(default_factory=list)
    duplicates: list[Duplicate] = msgspec.field(default_factory=list)
    folders: list[Path] = msgspec.field(default_factory=list)
    """Where files may come and go."""


class Beside:
    """Looks beside the configuration at `path`, which stands first wherever names are equal."""

    def __init__(self, path: Path, scope: Scope) -> None:
        self._path = path
        self._scope = scope
        self._reading: FolderReading | None = None
        self.found = Found()

    def servers(self, fields: Fields, ids: set[str], findings: Findings) -> list[Server]:
        """Those that come after the ones of the file, which have these ids: native and local tools, others, skills."""
        tools_dir = fields.path("tools_dir")
        local = None
        if tools_dir is not None and LOCAL in ids:
            findings.error(("tools_dir",), f"stands for an entry '{LOCAL}', but there is one of that name already")
            return []
        if tools_dir is not None:
            local = local_tools(tools_dir, LOCAL)
            if local.disabled_reason is not None:
                findings.warning(("tools_dir",), f"is switched off: {local.disabled_reason}")
            else:
                check_tools_dir(tools_dir, ("tools_dir",), findings)
        elif "tools_dir" not in fields and self._path.name in FILE_NAMES and not self._scope.literal:
            # Not the Python files in `tools` itself: a directory of this name is likely to hold something else.
            tools_dir = self._path.parent / TOOLS
            if LOCAL not in ids and any((tools_dir / BUILTIN).glob("*.py")):
                try:
                    self.found.warnings += refuse_foreign_directory(tools_dir / BUILTIN)
                    local = local_tools(tools_dir / BUILTIN, LOCAL)
                except ConfigError as error:
                    self.found.left_out.append(printable(str(error), 500))
        if tools_dir is not None:
            there = {id: self._path.name for id in ids} | ({} if local is None else {LOCAL: "tools_dir"})
            self.found.folders += [tools_dir / name for name in (NATIVE, BUILTIN, MCP)]
            if any((tools_dir / name).is_dir() for name in (NATIVE, MCP)):
                self._reads.tools(tools_dir, there, LOCAL)
        servers = [one for one in (self.found.native, local, *self.found.servers) if one is not None]
        skills = self._skills(fields, ids | {server.id for server in servers}, findings)
        return servers if skills is None else [*servers, skills]

    def _skills(self, fields: Fields, ids: set[str], findings: Findings) -> Server | None:
        """The server of a directory of skills, or of a list of them."""
        given = fields.given.get(SKILLS)
        if given is None or given.value is None:
            return None
        if SKILLS in ids:
            findings.error((SKILLS,), f"stands for an entry '{SKILLS}', but there is one of that name already")
            return None
        listed = given.value if isinstance(given.value, list) else [given.value]
        if not all(isinstance(one, str) and one for one in listed):
            findings.error((SKILLS,), "must be a list of directories with a SKILL.md each")
            return None
        places = [((SKILLS, index), self._scope.path(one)) for index, one in enumerate(listed)]
        return self._reads.skills(places, findings)

    def tool_sets(self, own: Mapping[str, ToolSet]) -> Sequence[ToolSet]:
        """Those of files of their own, besides `own`."""
        if self._scope.literal:
            return ()  # a program means what it says, wherever it runs
        folder = self._path.parent / TOOL_SETS
        self.found.folders.append(folder)
        if folder.is_dir():
            self._reads.tool_sets(folder, {name: self._path.name for name in own})
        return self.found.tool_sets

    @property
    def _reads(self) -> FolderReading:
        if self._reading is None:
            from mcp_hub.config.folders import FolderReading

            self._reading = FolderReading(self._path, self._scope, self.found)
        return self._reading
