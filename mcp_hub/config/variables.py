"""`${VAR}` and its relatives in the texts of a configuration.

    ${VAR}  ${VAR:-default}  ${env:VAR}  ${env:VAR:-default}  {env:VAR}  ${file:PATH}
    ${keyring:SERVICE/USERNAME}
    ${userHome}  ${workspaceFolder}  ${workspaceFolderBasename}  ${pathSeparator}  ${/}

`$${` stands for a literal `${`. A value is never expanded a second time, and nothing is ever executed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.config.ownership import refuse_foreign
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

MAX_SECRET_FILE = 64 * 1024

_TOKEN: Final = re.compile(
    r"(?P<escape>\$\$\{)|\$\{(?P<inner>[^{}]*)\}|(?P<open>\$\{)|\{(?P<plain>env|file):(?P<of>[^{}]*)\}"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.()-]*")
"""Behind `env:` also `ProgramFiles(x86)`."""
_OS_ENVIRON: Final = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")
_PROJECT_FOLDERS: Final = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".roo", ".claude", ".zed", ".windsurf"})
_HINTS: Final = {
    "input": "only VS Code asks for inputs; put the value into an environment variable and write ${env:NAME}",
    "cmd": "a configuration executes nothing; put the value into an environment variable or a file (${file:PATH})",
    "command": "a configuration executes nothing; put the value into an environment variable or a file (${file:PATH})",
}


class Unresolved(Exception):
    """A text has a variable without a value. `str()` is a reason for the user; it quotes no value."""


class Scope(msgspec.Struct, frozen=True):
    """Where variables come from."""

    environ: Mapping[str, str]
    home: Path
    directory: Path
    """Of the configuration file."""
    file_braces: bool = False
    """opencode's `{file:PATH}` counts too."""
    os_environ: bool = False
    """LiteLLM's `os.environ/NAME` counts too."""
    literal: bool = False
    """Nothing is expanded: the texts come from a program, which means what it says."""
    read: set[Path] = msgspec.field(default_factory=set)
    """Files that values came from, whether or not they were there."""

    @property
    def workspace(self) -> Path:
        """The folder a project file such as `.vscode/mcp.json` belongs to; else the file's own."""
        return self.directory.parent if self.directory.name in _PROJECT_FOLDERS else self.directory

    def path(self, text: str) -> Path:
        """`text` as a path: `~` is the user's home, relative means relative to the configuration file."""
        if text == "~" or text.startswith(("~/", "~" + os.sep)):
            return self.home / text[2:]
        return Path(os.path.normpath(self.directory / text))


def expand(text: str, scope: Scope) -> str:
    """`text` with all its variables replaced. Raises Unresolved."""
    if scope.literal:
        return text
    if scope.os_environ and (whole := _OS_ENVIRON.fullmatch(text)):
        return _variable(whole[1], None, scope)
    if "{" not in text:
        return text
    return _TOKEN.sub(lambda token: _replacement(token, scope), text)


def has_variable(text: str, scope: Scope) -> bool:
    """Whether something of `text` is put in from elsewhere."""
    if scope.literal:
        return False
    if scope.os_environ and _OS_ENVIRON.fullmatch(text):
        return True
    return any(not token["escape"] for token in _TOKEN.finditer(text))


def expand_tree(value: Any, scope: Scope, at: KeyPath) -> tuple[Any, dict[KeyPath, str]]:
    """`value` with every text in it expanded, and {place: reason} of those that could not be and stay as they are."""
    reasons: dict[KeyPath, str] = {}

    def inner(value: Any, at: KeyPath) -> Any:
        if isinstance(value, str):
            try:
                return expand(value, scope)
            except Unresolved as reason:
                reasons[at] = str(reason)
                return value
        if isinstance(value, dict):
            return {key: inner(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [inner(item, (*at, index)) for index, item in enumerate(value)]
        return value

    return inner(value, at), reasons


def _replacement(token: re.Match[str], scope: Scope) -> str:
    if token["escape"]:
        return "${"
    if token["open"]:
        raise Unresolved("a '${' without its '}', or braces inside of it; write '$${' for a literal '${'")
    if token["plain"]:
        if token["plain"] == "file":
            return _file(token["of"], scope) if scope.file_braces else token[0]
        return _variable(token["of"], None, scope)
    return _expression(token["inner"], scope)


def _expression(inner: str, scope: Scope) -> str:
    predefined = {
        "userHome": str(scope.home),
        "workspaceFolder": str(scope.workspace),
        "workspaceFolderBasename": scope.workspace.name,
        "pathSeparator": os.sep,
        "/": os.sep,
    }
    if inner in predefined:
        return predefined[inner]
    prefix, colon, rest = inner.partition(":")
    if prefix == "env" and colon:
        name, has_default, default = rest.partition(":-")
        if not _ENV_NAME.fullmatch(name):
            raise Unresolved("'${env:...}' without the name of a variable")
        return _variable(name, default if has_default else None, scope)
    if prefix == "file" and colon:
        return _file(rest, scope)
    if prefix == "keyring" and colon:
        return _kept(rest)
    if not _NAME.fullmatch(prefix):
        raise Unresolved("'${...}' without the name of a variable; write '$${' for a literal '${'")
    if not colon:
        return _variable(prefix, None, scope)
    if rest.startswith("-"):
        return _variable(prefix, rest[1:], scope)
    hint = _HINTS.get(prefix, "write ${NAME}, ${NAME:-default}, ${file:PATH} or ${keyring:SERVICE/USERNAME}")
    raise Unresolved(f"'${{{prefix}:...}}' is not supported: {hint}")


def _variable(name: str, default: str | None, scope: Scope) -> str:
    value = scope.environ.get(name)
    if default is not None:
        # As in a shell, `:-` also stands in for a variable that is set to nothing.
        return value or default
    if value is None:
        raise Unresolved(f"the environment variable {name} is not set")
    return value


def _file(text: str, scope: Scope) -> str:
    """The contents of a file without its last line end."""
    path = scope.path(text)
    scope.read.add(path)
    shown = printable(str(path))
    try:
        # A pipe or a device would be waited for, or never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unresolved(f"{shown} is not a file")
        with path.open("rb") as file:
            refuse_foreign(path, file.fileno(), "what is in the configuration")
            content = file.read(MAX_SECRET_FILE + 1)
        if len(content) > MAX_SECRET_FILE:
            raise Unresolved(f"the file {shown} is larger than {MAX_SECRET_FILE // 1024} KiB")
        return content.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Unresolved(f"the file {shown} is not UTF-8 text") from None
    except ConfigError as error:
        raise Unresolved(f"the file {shown} is refused: {printable(str(error), 500)}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise Unresolved(f"the file {shown} cannot be read: {reason}") from None


def _kept(text: str) -> str:
    """A secret out of the system's keyring. The last `/` divides: a service may be an address."""
    from mcp_hub.config.system_keyring import KeyringFailed, read_secret

    service, _, username = text.rpartition("/")
    if not service or not username:
        raise Unresolved("'${keyring:...}' names a service and a user: ${keyring:SERVICE/USERNAME}")
    shown = f"{printable(service, 100)}/{printable(username, 100)}"
    try:
        secret = read_secret(service, username)
    except KeyringFailed as error:
        raise Unresolved(f"{shown} cannot be read: {error}") from None
    if secret is None:
        raise Unresolved(f"the keyring has no {shown}; to keep one, run: keyring set SERVICE USERNAME")
    return secret


def told(reasons: Mapping[KeyPath, str], entry: KeyPath) -> str:
    """Reasons as one sentence for the user, with places relative to the entry: `... is not set (env.TOKEN)`."""
    places: dict[str, list[str]] = {}
    for at, reason in reasons.items():
        places.setdefault(reason, []).append(dotted(at[len(entry) :]))
    return "; ".join(f"{reason} ({', '.join(at)})" for reason, at in places.items())
