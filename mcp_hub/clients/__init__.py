"""MCP clients on this machine: where their configuration files are, and the form of a server's entry."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from mcp_hub.config.findings import KeyPath
from mcp_hub.config.models import LIST_WAIT
from mcp_hub.editing import Syntax

System = Literal["linux", "macos", "windows"]
EntryForm = Literal["plain", "stdio", "local", "opencode", "goose"]
"""`plain`: `command`, `args`. `stdio`, `local`: the same with that `type`. The others: the form of that client."""
Provider = Literal["anthropic", "openai", "gemini"]
"""The company whose interface gets the definitions of tools."""

_NAME: Final = re.compile(r"\{(\w+)\}")


class Client(msgspec.Struct, frozen=True):
    """One client program."""

    id: str
    """The name in commands: `claude-desktop`."""
    name: str
    files: tuple[str, ...]
    """Where its configuration file may be, as templates of `Machine.paths`. The first that exists is used."""
    marks: tuple[str, ...]
    """Templates of paths that exist only if the client is installed or was run."""
    root: KeyPath = ("mcpServers",)
    syntax: Syntax = "json"
    form: EntryForm = "plain"
    listed: bool = False
    """Whether its servers are a list of entries with a `name`."""
    off: tuple[str, bool] | None = None
    """The key and value that switch an entry off; None: the client has no switch, so the entry is removed."""
    project_files: tuple[str, ...] = ()
    """The names of its configuration files in a project's directory."""
    program: str | None = None
    """The command of a client that is run at a terminal."""
    start_limit: float | None = None
    """Seconds that it waits for a server to start; None if its documentation does not say."""
    first_list: float | None = None
    """Seconds from its start until it begins without a server that has not listed its tools; None: `start_limit`."""
    calls_itself: tuple[str, ...] = ()
    """The names that it gives in its `clientInfo`, in lower case."""
    defers: bool = False
    """Whether the client itself chooses which tools its model sees, so that it needs the whole list."""
    tool_limit: int | None = None
    """The number of tools beyond which it cuts the list or fails; None if unknown."""
    passes: str | None = None
    """A regular expression of the variables of its own environment that servers inherit; None: only the usual ones."""
    prefix: str = ""
    """What it puts before the names of the hub's tools without shortening the result to 64 characters."""
    provider: Provider | None = None
    """The provider of its models; None if that depends on its settings."""
    reads_content_alone: bool = False
    """Whether its model sees nothing of a result that has structured content and no other."""
    instead: str | None = None
    """The client's own command to add a server, to suggest if its file cannot be edited."""

    @property
    def list_wait(self) -> float:
        """Seconds from the start of the hub's process in which the first list may come: it needs a fifth to arrive."""
        return min(self.first_list or LIST_WAIT, 0.8 * (self.start_limit or LIST_WAIT * 2))

    @property
    def short_path(self) -> bool:
        """Whether it is a desktop application, which starts servers without what the user's shell adds to PATH."""
        return self.program is None

    def passed_on(self, environ: Mapping[str, str]) -> set[str]:
        """Returns the names in `environ` that its servers inherit, besides the usual ones such as PATH."""
        return {name for name in environ if self.passes is not None and re.match(self.passes, name) is not None}


class Machine(msgspec.Struct, frozen=True):
    """The operating system, home directory and environment in which clients are searched."""

    system: System
    home: Path
    environ: Mapping[str, str]

    @classmethod
    def this(cls) -> Self:
        """Returns the machine and user that the hub runs on."""
        systems: dict[str, System] = {"Darwin": "macos", "Windows": "windows"}
        return cls(systems.get(platform.system(), "linux"), Path.home(), os.environ)

    def paths(self, template: str) -> Iterator[Path]:
        """Yields the paths of a template: none if it is for another system or needs a variable that is not set.

        `linux:`, `macos:` or `windows:` in front restricts a template to that system. `{home}`, `{config}` (XDG),
        `{data}` (where desktop applications keep settings), `{local}` and `{VARIABLE}` are directories; `*` is a glob.
        """
        system, colon, rest = template.partition(":")
        if colon and system != self.system:
            return
        text = rest if colon else template
        directories = {name: self._directory(name) for name in _NAME.findall(text)}
        if None in directories.values():
            return
        head, *tail = text.split("/")
        base = Path(_NAME.sub(lambda match: str(directories[match[1]]), head))
        if "*" not in text:
            yield base.joinpath(*tail)
            return
        try:
            yield from sorted(base.glob("/".join(tail)))
        except OSError:
            return

    def _directory(self, name: str) -> Path | None:
        if name == "home":
            return self.home
        if name == "config":
            return self._variable("XDG_CONFIG_HOME") or self.home / ".config"
        if name == "data":
            if self.system == "macos":
                return self.home / "Library" / "Application Support"
            if self.system == "windows":
                return self._variable("APPDATA") or self.home / "AppData" / "Roaming"
            return self._directory("config")
        if name == "local":
            return self._variable("LOCALAPPDATA") or self.home / "AppData" / "Local"
        return self._variable(name)

    def _variable(self, name: str) -> Path | None:
        value = self.environ.get(name)
        return Path(value) if value else None

    def file_of(self, client: Client) -> Path | None:
        """Returns the client's file: the first that exists, else the one that the client would create.

        Returns None if there is no sign of the client on this machine.
        """
        candidates = [path for template in client.files for path in self.paths(template)]
        existing = next((path for path in candidates if os.path.lexists(path)), None)
        if existing is not None or not self.has(client):
            return existing
        return next((path for path in candidates if path.parent.is_dir()), candidates[0] if candidates else None)

    def has(self, client: Client) -> bool:
        """Returns whether files or the program of the client are on this machine."""
        has_files = any(path.exists() for template in (*client.files, *client.marks) for path in self.paths(template))
        program = client.program
        return has_files or (
            program is not None and shutil.which(program, path=self.environ.get("PATH", "")) is not None
        )


def entry_of(client: Client, id: str, command: str, args: tuple[str, ...]) -> dict[str, Any]:
    """Returns the entry of a stdio server in the client's form."""
    command_fields = {"command": command, "args": list(args)}
    if client.form == "opencode":
        return {"type": "local", "command": [command, *args]}
    if client.form == "goose":
        return {"name": id, "type": "stdio", "cmd": command, "args": list(args), "enabled": True, "timeout": 300}
    if client.form == "local":
        return {"type": "local", **command_fields, "tools": ["*"]}
    if client.form == "stdio":
        return {"type": "stdio", **command_fields}
    return {"name": id, **command_fields} if client.listed else command_fields
