"""Expands `${VAR}` and other forms of variables in the texts of a configuration, and reads `envFile`s.

    ${VAR}  ${VAR:-default}  ${env:VAR}  ${env:VAR:-default}  {env:VAR}  ${file:PATH}
    ${keyring:SERVICE/USERNAME}
    ${{ secrets.VAR }} (Continue's)
    $VAR (in files of Gemini, and in headers of Goose)
    ${userHome}  ${workspaceFolder}  ${workspaceFolderBasename}  ${pathSeparator}  ${/}

`$${` stands for a literal `${`. A value is never expanded a second time, and nothing is ever executed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import is_file, read_regular
from mcp_hub.text import printable

MAX_SECRET_FILE = 64 * 1024

_TOKEN: Final = re.compile(
    r"(?P<escape>\$\$\{)|\$\{\{(?P<template>[^{}]*)\}\}|\$\{(?P<inner>[^{}]*)\}|(?P<open>\$\{)"
    r"|\{(?P<plain>env|file):(?P<of>[^{}]*)\}"
)
_SECRET: Final = re.compile(r"secrets\.([A-Za-z_][A-Za-z0-9_]*)")
_BARE_TOKEN: Final = re.compile(rf"{_TOKEN.pattern}|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.()-]*")
"""Names after `env:`, such as `ProgramFiles(x86)`."""
_OS_ENVIRON: Final = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")
ANY_VARIABLE: Final = re.compile(rf"{_BARE_TOKEN.pattern}|{_OS_ENVIRON.pattern}")
"""Matches a variable of any dialect, and the escape `$${`."""
_PROJECT_FOLDERS: Final = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".roo", ".claude", ".zed", ".windsurf"})
_SETTINGS_VARIABLES: Final = ("XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA")
_SETTINGS_FOLDERS: Final = ("Library", "AppData")
"""Folders of a home in which programs keep settings, besides those that begin with a dot."""
_HINTS: Final = {
    "input": "only VS Code asks for inputs; put the value into an environment variable and write ${env:NAME}",
    "cmd": "a configuration executes nothing; put the value into an environment variable or a file (${file:PATH})",
    "command": "a configuration executes nothing; put the value into an environment variable or a file (${file:PATH})",
}


class UnresolvedVariable(Exception):
    """A text has a variable without a value. `str()` is the reason for the user. It quotes no value."""

    def __init__(self, reason: str, code: str = codes.VARIABLE_MALFORMED) -> None:
        super().__init__(reason)
        self.code = code


class VariableScope(msgspec.Struct, frozen=True):
    """The sources of variables, and which forms of variables are expanded."""

    environ: Mapping[str, str]
    home: Path
    directory: Path
    """The directory of the configuration file."""
    file_braces: bool = False
    """Whether opencode's `{file:PATH}` is expanded."""
    os_environ: bool = False
    """Whether LiteLLM's `os.environ/NAME` is expanded."""
    bare_names: bool = False
    """Whether `$NAME` is expanded."""
    literal: bool = False
    """Whether nothing is expanded, as for a configuration made in code."""
    read: set[Path] = msgspec.field(default_factory=set)
    """The files that values come from, also those that do not exist."""

    @property
    def tokens(self) -> re.Pattern[str]:
        """The pattern that matches variables and the escape `$${`."""
        return _BARE_TOKEN if self.bare_names else _TOKEN

    @property
    def workspace(self) -> Path | None:
        """The folder that a project file such as `.vscode/mcp.json` belongs to; else the file's own.

        None for a file of the user's settings: there it is the folder that is open in the client.
        """
        folder = self.directory.parent if self.directory.name in _PROJECT_FOLDERS else self.directory
        if folder == self.home:
            return None
        if folder is not self.directory:
            return folder
        settings = [Path(value) for name in _SETTINGS_VARIABLES if (value := self.environ.get(name))]
        inner = self.directory.parts[len(self.home.parts) :] if self.directory.is_relative_to(self.home) else ("",)
        is_of_user = inner[0].startswith(".") or inner[0] in _SETTINGS_FOLDERS
        return None if is_of_user or any(map(self.directory.is_relative_to, settings)) else folder

    def path(self, text: str) -> Path:
        """Returns `text` as a path. `~` is the user's home; relative paths are relative to the configuration file."""
        if text == "~" or text.startswith(("~/", "~" + os.sep)):
            return self.home / text[2:]
        return Path(os.path.normpath(self.directory / text))


def expand(text: str, scope: VariableScope) -> str:
    """Returns `text` with all variables replaced. Raises UnresolvedVariable."""
    if scope.literal:
        return text
    if scope.os_environ and (match := _OS_ENVIRON.fullmatch(text)):
        return _variable(match[1], None, scope)
    if "{" not in text and not (scope.bare_names and "$" in text):
        return text
    return scope.tokens.sub(lambda token: _expand_token(token, scope), text)


def has_variable(text: str, scope: VariableScope) -> bool:
    """Returns whether `text` has a variable."""
    if scope.literal:
        return False
    if scope.os_environ and _OS_ENVIRON.fullmatch(text):
        return True
    return any(not token["escape"] for token in scope.tokens.finditer(text))


def expand_tree(value: Any, scope: VariableScope, at: KeyPath) -> tuple[Any, dict[KeyPath, CodedText]]:
    """Returns `value` with all texts expanded, and {place: reason} for texts whose variables have no value."""
    reasons: dict[KeyPath, CodedText] = {}

    def inner(value: Any, at: KeyPath) -> Any:
        if isinstance(value, str):
            try:
                return expand(value, scope)
            except UnresolvedVariable as reason:
                reasons[at] = CodedText(str(reason), reason.code)
                return value
        if isinstance(value, dict):
            return {key: inner(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [inner(item, (*at, index)) for index, item in enumerate(value)]
        return value

    return inner(value, at), reasons


def _expand_token(token: re.Match[str], scope: VariableScope) -> str:
    if token["escape"]:
        return "${"
    if token["template"] is not None:
        return _secret_of_continue(token["template"].strip(), scope)
    if token["open"]:
        raise UnresolvedVariable("a '${' without its '}', or braces inside of it; write '$${' for a literal '${'")
    if (bare_name := token.groupdict().get("bare")) is not None:
        return _variable(bare_name, None, scope)
    if token["plain"]:
        if token["plain"] == "file":
            return _file(token["of"], scope) if scope.file_braces else token[0]
        return _variable(token["of"], None, scope)
    return _expand_expression(token["inner"].strip(), scope)


def _expand_expression(inner: str, scope: VariableScope) -> str:
    predefined = {"userHome": str(scope.home), "pathSeparator": os.sep, "/": os.sep}
    if (workspace := scope.workspace) is not None:
        predefined |= {"workspaceFolder": str(workspace), "workspaceFolderBasename": workspace.name}
    elif inner in ("workspaceFolder", "workspaceFolderBasename"):
        text = f"'${{{inner}}}' in a file of settings is the folder that is open in the client; write a path"
        raise UnresolvedVariable(text)
    if inner in predefined:
        return predefined[inner]
    prefix, colon, argument = inner.partition(":")
    if prefix == "env" and colon:
        name, has_default, default = argument.partition(":-")
        if not _ENV_NAME.fullmatch(name):
            raise UnresolvedVariable("'${env:...}' without the name of a variable")
        return _variable(name, default if has_default else None, scope)
    if prefix == "file" and colon:
        return _file(argument, scope)
    if prefix == "keyring" and colon:
        return _keyring_secret(argument)
    if not _NAME.fullmatch(prefix):
        raise UnresolvedVariable("'${...}' without the name of a variable; write '$${' for a literal '${'")
    if not colon:
        return _variable(prefix, None, scope)
    if argument.startswith("-"):
        return _variable(prefix, argument[1:], scope)
    hint = _HINTS.get(prefix, "write ${NAME}, ${NAME:-default}, ${file:PATH} or ${keyring:SERVICE/USERNAME}")
    raise UnresolvedVariable(f"'${{{prefix}:...}}' is not supported: {hint}")


def _variable(name: str, default: str | None, scope: VariableScope) -> str:
    value = scope.environ.get(name)
    if default is not None:
        # As in a shell, `:-` also replaces an empty value.
        return value or default
    if value is None:
        raise UnresolvedVariable(f"the environment variable {name} is not set", codes.VARIABLE_UNSET)
    return value


def _secret_of_continue(template: str, scope: VariableScope) -> str:
    """Returns the value of `${{ secrets.NAME }}`: a variable, or a line of the file `.env` beside the configuration."""
    match = _SECRET.fullmatch(template)
    if match is None:
        raise UnresolvedVariable("'${{ ... }}' is not supported but for '${{ secrets.NAME }}'; write ${NAME}")
    name, path = match[1], scope.path(".env")
    if name in scope.environ:
        return scope.environ[name]
    scope.read.add(path)
    values = read_dotenv(_file(".env", scope), scope) if is_file(path) else {}
    if name not in values:
        raise UnresolvedVariable(f"the secret {name} is neither a variable nor in {printable(str(path))}")
    return values[name]


def _file(text: str, scope: VariableScope) -> str:
    """Returns the content of a file without its last line end."""
    path = scope.path(text)
    scope.read.add(path)
    try:
        content, _ = read_text(path, MAX_SECRET_FILE, "what is in the configuration")
    except UnresolvedVariable as reason:
        raise UnresolvedVariable(f"the file {printable(str(path))} {reason}", reason.code) from None
    return content.removesuffix("\n").removesuffix("\r")


def read_text(path: Path, limit: int, decides: str) -> tuple[str, tuple[CodedText, ...]]:
    """Returns the content of a file that decides something, and warnings about who can change it.

    Raises:
        UnresolvedVariable: it cannot be used. `str()` is the rest of a sentence about it: `cannot be read: ...`.
    """
    try:
        content, warnings = read_regular(path, limit, decides)
        return content.decode("utf-8-sig"), warnings
    except UnicodeDecodeError:
        raise UnresolvedVariable("is not UTF-8 text", codes.VALUE_FILE_UNREADABLE) from None
    except ConfigError as error:
        text = f"is refused: {printable(str(error), 500)}"
        raise UnresolvedVariable(text, error.hub_code or codes.OPEN_TO_OTHERS) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise UnresolvedVariable(f"cannot be read: {reason}", codes.VALUE_FILE_UNREADABLE) from None


def _keyring_secret(text: str) -> str:
    """Returns a secret of the system's keyring. `text` is split at its last `/`, as a service may be a URL."""
    from mcp_hub.config.extras import KeyringError, read_secret

    service, _, username = text.rpartition("/")
    if not service or not username:
        raise UnresolvedVariable("'${keyring:...}' names a service and a user: ${keyring:SERVICE/USERNAME}")
    entry = f"{printable(service, 100)}/{printable(username, 100)}"
    try:
        secret = read_secret(service, username)
    except KeyringError as error:
        raise UnresolvedVariable(f"{entry} cannot be read: {error}", error.code) from None
    if secret is None:
        text = f"the keyring has no {entry}; to keep one, run: keyring set SERVICE USERNAME"
        raise UnresolvedVariable(text, codes.KEYRING_ENTRY_MISSING)
    return secret


def explain_unresolved(reasons: Mapping[KeyPath, CodedText], entry: KeyPath) -> CodedText | None:
    """Returns reasons as one text for the user, with places relative to the entry: `... is not set (env.TOKEN)`.

    It has the code of the first reason. Returns None if there are no reasons.
    """
    key_paths: dict[CodedText, list[str]] = {}
    for at, reason in reasons.items():
        key_paths.setdefault(reason, []).append(dotted(at[len(entry) :] if at[: len(entry)] == entry else at))
    text = "; ".join(f"{reason} ({', '.join(at)})" for reason, at in key_paths.items())
    return CodedText(text, next(iter(key_paths)).code) if key_paths else None


_DOTENV_LINE: Final = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*=[^\S\n]*
    (?:'(?P<literal>[^']*)'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>(?!['"])[^\n]*?))
    [^\S\n]*(?:(?:^|(?<=\s))\#[^\n]*)?(?:\n|$)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_DOTENV_BLANK: Final = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|$)")
_DOTENV_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_DOTENV_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_dotenv(text: str, scope: VariableScope) -> dict[str, str]:
    """Reads the lines `NAME=value` of an `envFile`. Variables are expanded, but not between single quotes.

    Raises:
        UnresolvedVariable: a variable has no value, or a line is not `NAME=value`. No value is quoted.
    """
    values: dict[str, str] = {}
    text = text.replace("\r\n", "\n")
    at = 0
    while at < len(text):
        if blank := _DOTENV_BLANK.match(text, at):
            at = blank.end()
            continue
        match = _DOTENV_LINE.match(text, at)
        if match is None:
            raise UnresolvedVariable(f"line {text.count(chr(10), 0, at) + 1} is not NAME=value")
        if match["literal"] is not None:
            values[match["name"]] = match["literal"]
        elif match["quoted"] is not None:
            value = _DOTENV_ESCAPE.sub(lambda escape: _DOTENV_ESCAPES.get(escape[1], escape[1]), match["quoted"])
            values[match["name"]] = expand(value, scope)
        else:
            values[match["name"]] = expand(match["plain"], scope)
        at = match.end()
    return values
