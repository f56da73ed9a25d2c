"""Modules of the user's are imported only where nobody else can have written them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from mcp_hub.security.private_files import refuse_open_to_others


class OwnedImports:
    """A finder of modules for `sys.meta_path`: those below `directories` are looked at before they are imported.

    It stands before the finder that reads `sys.path`, and covers packages and helpers that tools import too. What is
    installed with Python, an environment beside the configuration included, is not the hub's to judge.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._directories = tuple(directory.absolute() for directory in directories)

    @classmethod
    def install(cls, directories: Iterable[Path]) -> None:
        """Look at the modules of these directories from now on."""
        sys.meta_path.insert(sys.meta_path.index(PathFinder), cls(directories))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for the next finder. Raises ImportError for a module that somebody else can write."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            installed = origin.is_relative_to(sys.prefix) or origin.is_relative_to(sys.base_prefix)
            if not installed and any(origin.is_relative_to(directory) for directory in self._directories):
                look_at(spec)
        return spec


def look_at(spec: ModuleSpec) -> None:
    """Raises ImportError, in words, where somebody else can write a module's file or its compiled one."""
    for file in (spec.origin, spec.cached):
        if file is None:
            continue
        path = Path(file)
        try:
            status = path.stat()
        except OSError:
            continue  # a compiled one that is not there, or what the import itself will say
        try:
            refuse_open_to_others(path, status)
        except ValueError as error:
            raise ImportError(str(error), name=spec.name, path=spec.origin) from None
