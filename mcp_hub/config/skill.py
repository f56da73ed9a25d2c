"""Agent skills: directories with a SKILL.md that has a name, a description and instructions, and further files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.syntax import UnreadableText
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import refuse_foreign

SKILL_FILE: Final = "SKILL.md"
MAX_SKILL_FILE: Final = 1024 * 1024
MAX_FILES: Final = 500
"""Files of one skill. A directory with more is not one."""
MAX_DEPTH: Final = 8
_FRONT: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)


class Skill(msgspec.Struct, frozen=True):
    """A skill."""

    name: str
    description: str
    directory: Path
    files: tuple[str, ...] = ()
    """Paths relative to the directory, with slashes; `SKILL.md` is the first."""


def read_name_and_description(directory: str | Path) -> tuple[str, str]:
    """Returns name and description of the skill in a directory. Raises ValueError, for the user, without one."""
    path = Path(directory)
    if not path.is_dir():
        raise ValueError(f"The skill directory '{directory}' does not exist or is not a directory.")
    if not (path / SKILL_FILE).is_file():
        raise ValueError(f"The skill directory '{directory}' must include a {SKILL_FILE} file at the top level.")
    front = _front_matter(path / SKILL_FILE)
    name, description = front.get("name"), front.get("description")
    if not name or not description:
        raise ValueError(
            f"The {SKILL_FILE} file in '{directory}' must have a YAML Front Matter including `name` and `description` "
            "fields."
        )
    return str(name), str(description)


def read_skill(directory: Path) -> Skill:
    """Returns the skill in a directory with its files. Raises ValueError, for the user, without one."""
    name, description = read_name_and_description(directory)
    files = [file for file in _files(directory) if file != SKILL_FILE]
    if len(files) >= MAX_FILES:
        raise ValueError(f"The skill directory '{directory}' has more than {MAX_FILES} files.")
    return Skill(name=name, description=description, directory=directory, files=(SKILL_FILE, *files))


def _front_matter(path: Path) -> dict[str, Any]:
    from mcp_hub.config.syntax import parse_yaml

    try:
        with path.open("rb") as file:
            refuse_foreign(path, file.fileno(), "what models are told")
            content = file.read(MAX_SKILL_FILE + 1)
        if len(content) > MAX_SKILL_FILE:
            raise ValueError(f"The file '{path}' is larger than {MAX_SKILL_FILE:,} bytes.")
        found = _FRONT.match(content.decode("utf-8"))
        parsed = parse_yaml(found[1]) if found is not None else None
    except UnicodeDecodeError:
        raise ValueError(f"The file '{path}' is not UTF-8 text.") from None
    except OSError as error:
        raise ValueError(f"The file '{path}' cannot be read: {error.strerror}.") from None
    except ConfigError as error:
        raise ValueError(str(error)) from None
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
