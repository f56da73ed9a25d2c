"""Access of the file tools: the policy for raw paths of this machine, and virtual paths below configured roots.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

RawTextPolicy = Literal["deny", "warn", "allow"]

RAW_TEXT_VARIABLE: Final = "AGENTSCOPE_DANGEROUS_TEXT_IO"
"""The environment variable that sets the policy, as in AgentScope."""
DEFAULT_RAW_TEXT_POLICY: Final[RawTextPolicy] = "warn"
_STRICTEST_FIRST: Final[tuple[RawTextPolicy, ...]] = get_args(RawTextPolicy)


def strictest_policy(values: Iterable[str | None]) -> RawTextPolicy:
    """Returns the strictest of these policies. None is skipped, and an unknown value counts as `warn`."""
    policies = {value.strip().lower() for value in values if value is not None}
    if not policies <= set(_STRICTEST_FIRST):
        policies.add(DEFAULT_RAW_TEXT_POLICY)
    return next((policy for policy in _STRICTEST_FIRST if policy in policies), DEFAULT_RAW_TEXT_POLICY)


RootMode = Literal["ro", "rw", "hidden"]
DEFAULT_ROOT_MODES: Final[dict[str, RootMode]] = {"/userinput/": "ro", "/workspace/": "rw", "/internal/": "hidden"}
"""Default modes of the roots with these names; the default of any other root is `ro`."""
MAX_PATH: Final = 4096

Parts = tuple[str, ...]


def parts_of(path: str) -> Parts:
    """Splits an absolute path into its names, `..` included. Raises ValueError for any other text."""
    if not path.startswith("/"):
        raise ValueError("a path begins with '/'")
    if len(path) > MAX_PATH:
        raise ValueError(f"a path has at most {MAX_PATH} characters")
    if "\0" in path:
        raise ValueError("a path has no NUL character")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None
    return tuple(part for part in path.split("/") if part not in ("", "."))


def root_name(path: str) -> str:
    """Returns the shown name of a root, with a slash at both ends. Raises ValueError for a name that is not valid."""
    parts = parts_of(path)
    if not parts or ".." in parts:
        raise ValueError("a root has a name of its own, such as /workspace/")
    return f"/{'/'.join(parts)}/"


def overlapping(directories: Iterable[str]) -> tuple[str, str] | None:
    """Returns two of the directories (real paths) that are equal or nested; None if there are none."""
    earlier: list[tuple[str, Parts]] = []
    for directory in directories:
        parts = tuple(part for part in directory.split("/") if part)
        for earlier_directory, earlier_parts in earlier:
            shorter = min(len(parts), len(earlier_parts))
            if parts[:shorter] == earlier_parts[:shorter]:
                return earlier_directory, directory
        earlier.append((directory, parts))
    return None
