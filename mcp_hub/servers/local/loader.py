"""Loads the tools in the Python files of a directory, except files that other users can write."""

from __future__ import annotations

import importlib.util
import inspect
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeGuard

from pydantic import BaseModel, ValidationError

from mcp_hub.security.private_files import refuse_open_to_others
from mcp_hub.security.redaction import preset_texts
from mcp_hub.servers.local import Mark, mark_of
from mcp_hub.servers.local.local_tool import LocalTool, name_of
from mcp_hub.servers.local.signature import validation_message
from mcp_hub.servers.local.tool_results import ToolRefused


class OwnedImports:
    """A finder for `sys.meta_path` that refuses modules below `directories` which other users can write.

    It comes before the finder that reads `sys.path`, so it also covers packages and helpers that tools import. Modules
    that are installed in the Python environment are not checked.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._directories = tuple(directory.absolute() for directory in directories)

    @classmethod
    def install(cls, directories: Iterable[Path]) -> None:
        """Checks the modules of these directories from now on."""
        sys.meta_path.insert(sys.meta_path.index(PathFinder), cls(directories))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module, or None for the next finder.

        Raises ImportError if other users can write the module.
        """
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            installed = origin.is_relative_to(sys.prefix) or origin.is_relative_to(sys.base_prefix)
            if not installed and any(origin.is_relative_to(directory) for directory in self._directories):
                refuse_writable_module(spec)
        return spec


def refuse_writable_module(spec: ModuleSpec) -> None:
    """Raises ImportError if other users can write a module's source file or its compiled file."""
    for file in (spec.origin, spec.cached):
        if file is None:
            continue
        path = Path(file)
        try:
            status = path.stat()
        except OSError:
            continue  # there is no compiled file, or the import itself reports the error
        if not stat.S_ISREG(status.st_mode):
            raise ImportError(f"{path}: it is not a file", name=spec.name, path=spec.origin)  # a pipe would block
        try:
            refuse_open_to_others(path, status)
        except ValueError as error:
            raise ImportError(str(error), name=spec.name, path=spec.origin) from None


SLOW_IMPORT: Final = 10.0
"""Seconds after which a file that is still being imported is named on stderr."""

Report = Callable[[str], None]
Duplicate = dict[str, str]
"""A name that two files define: `name`, and the files `kept` and `dropped`."""


def load(
    directory: Path, report: Report, duplicates: list[Duplicate] | None = None, presets: list[str] | None = None
) -> dict[str, LocalTool]:
    """Returns the tools of every `*.py` in `directory` and `directory/builtin` by name, in the order of the files.

    Tools are functions with `@tool`, and classes that implement a BaseTool, or objects of them.
    Files whose name begins with `_` are only imported by others. `report` is called with one line for everything that
    is left out: a file that does not import, a function without a possible schema. Names that are taken already are
    added to `duplicates`, and preset values to `presets`, even those of a file that does not import.
    """
    tools: dict[str, LocalTool] = {}
    sources: dict[str, Path] = {}
    repeated: list[Duplicate] = [] if duplicates is None else duplicates
    for folder in (directory, directory / "builtin"):
        if folder.is_dir():
            sys.path.insert(0, str(folder))
            for path in sorted(folder.glob("*.py")):
                if not path.name.startswith("_"):
                    for tool in _tools_of(path, report, [] if presets is None else presets):
                        if (first := sources.setdefault(tool.name, path)) is path and tool.name not in tools:
                            tools[tool.name] = tool
                        else:
                            repeated.append({"name": tool.name, "kept": str(first), "dropped": str(path)})
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
        with _report_if_slow(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        marks = [mark for value in vars(module).values() if (mark := mark_of(value)) is not None]
        presets += [text for mark in marks for text in preset_texts(mark.preset)]
        report(f"{path}{_line_suffix(error, path)}: does not import: {type(error).__name__}: {error}")
        return
    values = list(vars(module).values())
    instance_classes = {type(value) for value in values if not _is_class(value)}
    for value in values:
        mark = mark_of(value)
        try:
            if mark is not None and _home_module(value, mark) == name:
                tool = LocalTool(value, mark)
            elif _is_tool_class(value) and value.__module__ == name and value not in instance_classes:
                tool = _implemented_tool(value())
            elif _is_tool_class(type(value)) and _home_module_of_object(value) == name:
                tool = _implemented_tool(value)
            else:
                continue  # no tool, or imported from another file, which lists it itself
            presets += preset_texts(tool.preset)
            yield tool
        except (Exception, SystemExit) as error:  # the class of a tool may raise anything
            report(f"{path}: {(mark.name if mark else None) or name_of(value)} is left out: {_one_line(error)}")


@contextmanager
def _report_if_slow(path: Path) -> Iterator[None]:
    """Prints the name of a file whose import does not end. No tool of the directory is served before it does."""
    text = f"{path}: its import has not ended after {SLOW_IMPORT:g} s; no tool is served before it does"
    timer = threading.Timer(SLOW_IMPORT, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _home_module(target: Callable[..., Any], mark: Mark) -> str | None:
    """Returns the module a tool belongs to: where its function is defined, or else where it was marked."""
    return target.__module__ if inspect.isroutine(target) or isinstance(target, type) else mark.module


def _home_module_of_object(tool: Any) -> str | None:
    """Returns the module of an object that is a tool: that of its function, if it has one, or of its class."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    return getattr(function, "__module__", None) if function is not None else type(tool).__module__


def _one_line(error: BaseException) -> str:
    if isinstance(error, ValidationError):  # of a class that cannot be made without arguments
        return "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors(include_url=False)
        )
    return str(error) or type(error).__name__


def _line_suffix(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


# --- classes that implement a BaseTool -------------------------------------------------------------------------

_LANGCHAIN: Final = "langchain_core"
_PACKAGES: Final = ("mcp_hub", _LANGCHAIN)
"""The packages that have a class `BaseTool`. Neither of them is imported to look for it."""


def _is_tool_class(value: Any) -> TypeGuard[type[Any]]:
    """Returns whether a value is a class that derives from a BaseTool."""
    return _is_class(value) and _base(value) is not None


def _is_class(value: Any) -> TypeGuard[type[Any]]:
    """Does what `isinstance(value, type)` does, but does not ask the value, as a lazy object would do its work then."""
    return issubclass(type(value), type)


def _implemented_tool(tool: Any) -> LocalTool:
    """Makes a tool of an object whose class derives from a BaseTool. Raises TypeError if it lacks something."""
    base = _base(type(tool))
    assert base is not None
    if base.__module__.startswith(_LANGCHAIN):
        return LocalTool(_invocation(tool), Mark(tool.name, tool.description, json_schema=_langchain_schema(tool)))
    derived = [kind for kind in type(tool).__mro__ if kind not in base.__mro__]
    namespaces = [vars(kind) for kind in derived if not kind.__module__.startswith("mcp_hub.")]
    name = next((name for name in ("_arun", "_run") if any(name in namespace for namespace in namespaces)), None)
    if name is None:
        raise TypeError("a BaseTool needs a method _run(self, ...), or an async _arun(self, ...), that does its work")
    method = getattr(tool, name)
    documented = next((namespace["__doc__"] for namespace in namespaces if namespace.get("__doc__")), None)
    description = tool.description or documented
    if tool.args_schema is not None:
        schema = tool.args_schema.model_json_schema()
        return LocalTool(
            _checked(tool.name, method, tool.args_schema), Mark(tool.name, description, json_schema=schema)
        )
    return LocalTool(method, Mark(tool.name, description, json_schema=tool.json_schema or _schema(tool.parameters)))


def _base(kind: type[Any]) -> type[Any] | None:
    """Returns the BaseTool that a class derives from, or None."""
    for parent in kind.__mro__[1:]:
        if parent.__name__ == "BaseTool" and parent.__module__.partition(".")[0] in _PACKAGES:
            return parent
    return None


def _invocation(tool: Any) -> Callable[..., Any]:
    async def invoke(**arguments: Any) -> Any:
        return await tool.ainvoke(arguments)

    return invoke


def _langchain_schema(tool: Any) -> dict[str, Any]:
    schema = tool.tool_call_schema  # without what LangChain injects
    json_schema: dict[str, Any] = schema if isinstance(schema, dict) else schema.model_json_schema()
    return {"type": "object", **json_schema}


def _checked(name: str, method: Callable[..., Any], model: type[BaseModel]) -> Callable[..., Any]:
    """Returns a function that calls the method with the fields of the model, defaults and conversions included."""

    def call(**arguments: Any) -> Any:
        try:
            values = model.model_validate(arguments)
        except ValidationError as error:
            raise ToolRefused("invalid_parameters", validation_message(name, error)) from None
        return method(**{field: getattr(values, field) for field in model.model_fields})

    return call


def _schema(parameters: Any) -> Mapping[str, Any] | None:
    """Returns the schema of a tool's list of parameters; None for an empty list: then the signature gives them."""
    if not parameters:
        return None
    properties = {
        parameter.name: ({} if parameter.type == "any" else {"type": parameter.type})
        | ({"description": parameter.description} if parameter.description else {})
        for parameter in parameters
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in parameters if parameter.required],
    }
