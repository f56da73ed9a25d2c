"""The Python files of a directory, each imported by itself: one that does not import costs only its own tools."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mcp_hub.security.redaction import preset_texts
from mcp_hub.servers.local.functions import LocalTool, name_of
from mcp_hub.servers.local.owned_imports import look_at
from mcp_hub.servers.local.registry import Mark, mark_of

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
        look_at(spec)
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
