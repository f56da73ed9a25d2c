"""Loads the Python files of a directory: each by itself, and only files that nobody else can have written."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from mcp_hub.security.ownership import refuse_open_to_others
from mcp_hub.security.redaction import preset_texts
from mcp_hub.servers.local.local_tool import LocalTool, name_of
from mcp_hub.servers.local.registry import Mark, mark_of


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
                refuse_writable_module(spec)
        return spec


def refuse_writable_module(spec: ModuleSpec) -> None:
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


Report = Callable[[str], None]
Duplicate = dict[str, str]
"""`name`, and the files: `kept`, `dropped`."""


def load(
    directory: Path, report: Report, duplicates: list[Duplicate] | None = None, presets: list[str] | None = None
) -> dict[str, LocalTool]:
    """The tools of every `*.py` in `directory` and `directory/builtin`, by name, in the order of the files.

    Files whose name begins with `_` are left to be imported by the others. `report` gets one line for everything
    that is left out: a file that does not import, a function no schema can be made of. A name that is taken is added
    to `duplicates`, what is preset for a function to `presets`, also where its file does not import.
    """
    tools: dict[str, LocalTool] = {}
    places: dict[str, Path] = {}
    twice: list[Duplicate] = [] if duplicates is None else duplicates
    for folder in (directory, directory / "builtin"):
        if folder.is_dir():
            sys.path.insert(0, str(folder))
            for path in sorted(folder.glob("*.py")):
                if not path.name.startswith("_"):
                    for tool in _tools_of(path, report, [] if presets is None else presets):
                        if (first := places.setdefault(tool.name, path)) is path and tool.name not in tools:
                            tools[tool.name] = tool
                        else:
                            twice.append({"name": tool.name, "kept": str(first), "dropped": str(path)})
    return tools


def _tools_of(path: Path, report: Report, presets: list[str]) -> Iterator[LocalTool]:
    name = f"mcp_hub_tools_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        report(f"{path}: cannot be imported")
        return
    try:
        refuse_writable_module(spec)
    except ImportError as error:
        report(f"{error}; the file is left out")
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        marks = [mark for value in vars(module).values() if (mark := mark_of(value)) is not None]
        presets += [text for mark in marks for text in preset_texts(mark.preset)]
        report(f"{path}{_line(error, path)}: does not import: {type(error).__name__}: {error}")
        return
    for value in list(vars(module).values()):
        mark = mark_of(value)
        if mark is None or _home(value, mark) != name:
            continue  # imported from another file, which lists it itself
        try:
            tool = LocalTool(value, mark)
            presets += preset_texts(tool.preset)
            yield tool
        except (TypeError, ValueError) as error:
            report(f"{path}: {mark.name or name_of(value)} is left out: {error}")


def _home(marked: Callable[..., Any], mark: Mark) -> str | None:
    """The module a tool belongs to: where the function is written, or where something else was made a tool."""
    return marked.__module__ if inspect.isroutine(marked) or isinstance(marked, type) else mark.module


def _line(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""
