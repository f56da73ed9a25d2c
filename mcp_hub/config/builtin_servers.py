"""Built-in servers: the keys that only they have, the files of skills, and which are refused over a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.extras import missing
from mcp_hub.config.fields import Fields, FieldValue
from mcp_hub.config.findings import Findings, KeyPath, only_known
from mcp_hub.config.models import Builtin, Config, FileRoot, Server
from mcp_hub.config.settings import keys_of
from mcp_hub.config.syntax import UnreadableText
from mcp_hub.errors import ConfigError
from mcp_hub.security.file_access import DEFAULT_ROOT_MODES, RootMode, overlapping, root_name
from mcp_hub.security.private_files import FileTooLarge, is_directory, is_file, read_regular
from mcp_hub.text import printable


def check_builtin(fields: Fields, builtin: Builtin | None, at: KeyPath) -> None:
    """Checks that keys of built-in servers stand in entries of these."""
    for name, key in keys_of(Server).items():
        if not key.builtins or name not in fields or builtin in key.builtins:
            continue
        entries = " or ".join(f"'builtin: {owner}'" for owner in key.builtins)
        if builtin is not None:
            fields.error(fields.values[name].at, f"is for an entry with {entries}")
        elif "builtin" not in fields:
            fields.warning(fields.values[name].at, f"has no effect: it is for an entry with {entries}")
    if builtin == "files" and fields.mapping("roots") is None:
        fields.error(at, "needs 'roots', such as {/workspace/: ~/work}: the directories its tools may use")


def read_roots(fields: Fields, findings: Findings, unresolved: dict[KeyPath, CodedText]) -> tuple[FileRoot, ...]:
    """Reads the directories of `builtin: files`. Errors go to `findings`, missing directories to `unresolved`."""
    roots: dict[str, FileRoot] = {}
    for name, field in (fields.mapping("roots") or {}).items():
        try:
            virtual_path = root_name(name)
        except ValueError as error:
            fields.error(field.at, f"is not a valid root: {error}")
            continue
        if virtual_path in roots:
            fields.error(field.at, f"is {virtual_path}, which is there already")
            continue
        value = field.value if isinstance(field.value, dict) else {"path": field.value}
        options = only_known(value, names := ("path", "mode"), field.at, findings, names)
        inner = fields.inner({key: FieldValue(option, (*field.at, key)) for key, option in options.items()})
        directory = inner.path("path") if options.get("path") is not None else None
        mode = inner.read("mode", RootMode) or DEFAULT_ROOT_MODES.get(virtual_path, "ro")
        if directory is None:
            fields.error(field.at, "must be a directory, or a mapping with 'path' and 'mode'")
        elif not is_directory(directory):
            unresolved.setdefault(field.at, no_directory(directory))
        else:
            roots[virtual_path] = FileRoot(at=virtual_path, path=Path(os.path.realpath(directory)), mode=mode)
    pair = overlapping(str(root.path) for root in roots.values())
    if pair is not None:
        text = f"{printable(pair[0])} and {printable(pair[1])} overlap; what one of them forbids, the other would allow"
        fields.error(fields.values["roots"].at, text)
    return tuple(roots.values())


def refuse_over_network(config: Config) -> None:
    """Checks that a configuration may be served over a network.

    Raises:
        ConfigError: a built-in server would give the network access to this machine and its entry does not allow that,
            or the packages of the token verifier are missing.
    """
    if config.listen.verify is not None and (reason := missing("verify")) is not None:
        raise ConfigError(f"listen.verify cannot be used: {reason}", reason.code)
    local_servers = [server for server in config.servers if server.enabled and server.of_this_machine]
    if local_servers:
        names = ", ".join(f"{printable(server.id)} (builtin: {server.builtin})" for server in local_servers)
        text = "would let whoever reaches the listener use this machine as you; serve over stdio, switch the entry off"
        text = f"{names} {text}, or write 'allow_over_network: true' into it"
        raise ConfigError(text, codes.MACHINE_OVER_NETWORK)


def no_directory(directory: Path) -> CodedText:
    """Returns the reason for an entry whose directory does not exist."""
    return CodedText(f"there is no directory {printable(str(directory))}", codes.DIRECTORY_MISSING)


SKILL_FILE: Final = "SKILL.md"
MAX_SKILL_FILE: Final = 1024 * 1024
MAX_FILES: Final = 500
"""The maximum number of files of a skill. A directory with more is refused."""
MAX_DEPTH: Final = 8
_FRONT: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)


class Skill(msgspec.Struct, frozen=True):
    """A skill: a directory with a SKILL.md, which has a name, a description and instructions, and further files."""

    name: str
    description: str
    directory: Path
    files: tuple[str, ...] = ()
    """Paths relative to the directory, with slashes; `SKILL.md` is the first."""


def read_name_and_description(directory: str | Path) -> tuple[str, str]:
    """Returns name and description of the skill in a directory. Raises ValueError, with a text for the user."""
    path = Path(directory)
    if not is_directory(path):
        raise ValueError(f"The skill directory '{directory}' does not exist or is not a directory.")
    if not is_file(path / SKILL_FILE):
        raise ValueError(f"The skill directory '{directory}' must include a {SKILL_FILE} file at the top level.")
    front = _front_matter(path / SKILL_FILE)
    name, description = front.get("name"), front.get("description")
    if not name or not description:
        raise ValueError(
            f"The {SKILL_FILE} file in '{directory}' must have a YAML Front Matter including `name` and `description` "
            "fields."
        )
    return " ".join(str(name).split()), str(description)


def read_skill(directory: Path) -> Skill:
    """Returns the skill in a directory with its files. Raises ValueError, with a text for the user."""
    name, description = read_name_and_description(directory)
    files = [file for file in _files(directory) if file != SKILL_FILE]
    if len(files) >= MAX_FILES:
        raise ValueError(f"The skill directory '{directory}' has more than {MAX_FILES} files.")
    return Skill(name=name, description=description, directory=directory, files=(SKILL_FILE, *files))


def _front_matter(path: Path) -> dict[str, Any]:
    try:
        content, _ = read_regular(path, MAX_SKILL_FILE, "what models are told")
    except FileTooLarge:
        raise ValueError(f"The file '{path}' is larger than {MAX_SKILL_FILE:,} bytes.") from None
    except OSError as error:
        raise ValueError(f"The file '{path}' cannot be read: {error.strerror}.") from None
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return front_matter(content, path)


def front_matter(content: bytes, path: Path) -> dict[str, Any]:
    """Returns the front matter of a `SKILL.md`, {} if it has none. Raises ValueError, with a text for the user."""
    from mcp_hub.config.syntax import parse_yaml

    if len(content) > MAX_SKILL_FILE:
        raise ValueError(f"The file '{path}' is larger than {MAX_SKILL_FILE:,} bytes.")
    try:
        match = _FRONT.match(content.decode("utf-8"))
        parsed = parse_yaml(match[1]) if match is not None else None
    except UnicodeDecodeError:
        raise ValueError(f"The file '{path}' is not UTF-8 text.") from None
    except UnreadableText as error:
        raise ValueError(f"The YAML Front Matter of '{path}' {error}.") from None
    tree = parsed.tree if parsed is not None else None
    return tree if isinstance(tree, dict) else {}


def _files(directory: Path) -> Iterator[str]:
    """Yields the regular files, at most `MAX_FILES`, without hidden ones and links."""
    count = 0
    for folder, folders, names in os.walk(directory, followlinks=False):
        relative = Path(folder).relative_to(directory)
        folders[:] = sorted(
            name for name in folders if not name.startswith((".", "__pycache__")) and len(relative.parts) < MAX_DEPTH
        )
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            yield (relative / name).as_posix()
            count += 1
            if count > MAX_FILES:
                return
