"""The entries of `skills/list` and `skills/get` (SEP-2640): what is valid in one, and the URIs of its files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

Json = dict[str, Any]

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
READ_DIRECTORY: Final = "resources/directory/read"
"""The optional method that lists the files and directories in a directory of a skill."""
SKILL_FILE: Final = "SKILL.md"
DYNAMIC: Final = "dynamic"
"""The value of `resources` for a skill whose content is generated."""
MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 1024 * 1024
"""Files of one skill, and bytes of all of them. Clients must accept so much and may refuse more."""
STEP: Final = 50
"""Files that are checked in one step."""

_NAME: Final = re.compile(r"(?!-)(?!.*--)[a-z0-9-]{1,64}(?<!-)")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
MAX_DESCRIPTION: Final = 1024
MAX_COMPATIBILITY: Final = 500


def files_of(entry: Any) -> list[str]:
    """Returns the URIs of the files in an entry, `SKILL.md` first; a dynamic skill has only that one."""
    if not isinstance(entry, dict) or not isinstance(entry.get("uri"), str):
        return []
    listed = entry.get("resources")
    uris = [file["uri"] for file in listed if _is_file(file)] if isinstance(listed, list) else []
    return list(dict.fromkeys((entry["uri"], *uris)))


def directories_of(files: list[str]) -> set[str]:
    """Returns the URIs of the directories that have these files of a skill, `SKILL.md` first; without a slash."""
    root = files[0].rpartition("/")[0]
    found = {root}
    for file in files:
        directory = file.rpartition("/")[0]
        while directory.startswith(root) and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("uri"), str)


def with_uris(entry: Json, change: Callable[[str], str]) -> Json:
    """Returns an entry with the URIs of its files changed."""
    changed: Json = {**entry, "uri": change(entry["uri"])}
    if isinstance(listed := entry.get("resources"), list):
        changed["resources"] = [{**file, "uri": change(file["uri"])} if _is_file(file) else file for file in listed]
    return changed


def defect_in_steps(entry: Json) -> Generator[None, None, str | None]:
    """Returns why clients would drop a list with this entry, None if they would not; yields between steps."""
    try:
        root = _path_of(entry["uri"])
    except ValueError as error:
        return f"its uri {error}"
    if root[-1] != SKILL_FILE:
        return f"its uri does not end in /{SKILL_FILE}"
    frontmatter, files = entry.get("frontmatter"), entry.get("resources")
    problem = (
        "its frontmatter is not an object" if not isinstance(frontmatter, dict) else _defect_of_frontmatter(frontmatter)
    )
    if problem is not None or not isinstance(frontmatter, dict):
        return problem
    if (root[-2] if len(root) > 3 else unquote(root[1])) != frontmatter["name"]:
        return "its uri has another name than its frontmatter"
    if files == DYNAMIC and isinstance(files, str):
        return None
    if not isinstance(files, list):
        return f"its resources is neither a list nor {DYNAMIC!r}"
    seen: set[str] = set()
    for number, file in enumerate(files):
        if number % STEP == 0:
            yield
        if (problem := _defect_of_file(file, root[:-1])) is not None:
            return f"its resources[{number}]{problem}"
        if file["uri"] in seen:
            return f"its resources[{number}].uri is there twice"
        seen.add(file["uri"])
    return None if entry["uri"] in seen else f"its resources do not have its {SKILL_FILE}"


def _defect_of_file(file: Any, directory: tuple[str, ...]) -> str | None:
    if not isinstance(file, dict):
        return " is not an object"
    uri, digest, size = file.get("uri"), file.get("digest"), file.get("size")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        return ".digest is not 'sha256:' and 64 hexadecimal digits"
    if isinstance(size, bool) or not isinstance(size, int | float) or size < 0 or size != size // 1:
        return ".size is not a whole number"
    if not isinstance(uri, str):
        return ".uri is not a text"
    try:
        path = _path_of(uri)
    except ValueError as error:
        return f".uri {error}"
    return None if path[: len(directory)] == directory and len(path) > len(directory) else ".uri is outside of it"


def _path_of(uri: str) -> tuple[str, ...]:
    """Returns scheme, authority and the names of a path. Raises ValueError, which says what is wrong with the URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ValueError("is not a URI") from None
    names = [unquote(name) for name in parts.path.split("/") if name]
    if not parts.scheme or not names:
        raise ValueError("is not a URI with a scheme and a path")
    if any(name in (".", "..") or "/" in name or "\\" in name for name in names):
        raise ValueError("leads out of its directory")
    return (parts.scheme.lower(), parts.netloc, *names)


def _defect_of_frontmatter(frontmatter: Json) -> str | None:
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return "its frontmatter.name is not 1 to 64 lower-case letters, digits and single hyphens inside"
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        return f"its frontmatter.description is not 1 to {MAX_DESCRIPTION:,} characters"
    for key in ("license", "allowed-tools", "compatibility"):
        if key in frontmatter and not isinstance(frontmatter[key], str):
            return f"its frontmatter.{key} is not a text"
    if "compatibility" in frontmatter and not 1 <= len(frontmatter["compatibility"]) <= MAX_COMPATIBILITY:
        return f"its frontmatter.compatibility is not 1 to {MAX_COMPATIBILITY} characters"
    metadata = frontmatter.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        return "its frontmatter.metadata is not a mapping of texts"
    return None if _is_finite(frontmatter) else "its frontmatter has a number that is not finite"


def _is_finite(value: Any) -> bool:
    stack = [value]
    while stack:
        member = stack.pop()
        if isinstance(member, float) and not math.isfinite(member):
            return False
        stack.extend(member.values() if isinstance(member, dict) else member if isinstance(member, list) else ())
    return True
