"""A Python function as a tool definition, and a caller's arguments as a function's.

pydantic makes the schemas and checks the arguments, strictly: `"3"` is no integer. docstring_parser reads the
docstrings (Google, NumPy, reST).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, get_args, get_origin

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from mcp_hub.local.registry import Mark
from mcp_hub.local.results import ToolResult
from mcp_hub.wire.frames import encode

_SKIPPED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class WrongArguments(Exception):
    """The arguments do not fit; `str()` says which, what was expected and what came, for the caller to repair."""


class LocalTool:
    """One function: its definition for `tools/list`, and how it is called. Raises TypeError if none can be made."""

    def __init__(self, function: Callable[..., Any], mark: Mark) -> None:
        self.function = function
        self.name = mark.name or function.__name__
        self.is_async = inspect.iscoroutinefunction(function)
        documented = docstring_parser.parse(inspect.getdoc(function) or "")
        hints = _hints(function)
        self._signature = inspect.signature(function)
        self._arguments = _arguments_model(self._signature, hints, documented)
        self.definition = self._define(mark, documented, hints)

    def _define(self, mark: Mark, documented: docstring_parser.Docstring, hints: dict[str, Any]) -> dict[str, Any]:
        schema = without_titles(self._arguments.model_json_schema(by_alias=True))
        schema.pop("description", None)
        schema.setdefault("properties", {})
        texts = [text for text in (documented.short_description, documented.long_description) if text]
        definition: dict[str, Any] = {
            "name": self.name,
            "description": mark.description or "\n\n".join(texts) or self.name,
            "inputSchema": schema,
        }
        if mark.title:
            definition["title"] = mark.title
        output = _output_schema(hints.get("return"))
        if output is not None:
            definition["outputSchema"] = output
        if mark.annotations:
            definition["annotations"] = dict(mark.annotations)
        if mark.tags:
            definition["_meta"] = {"mcp-hub/tags": list(mark.tags)}
        return definition

    def bind(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the function. Raises WrongArguments."""
        try:
            # As JSON: strict there still lets a text be an enum's value or a date, for which JSON has no type.
            checked = self._arguments.model_validate_json(encode(arguments))
        except ValidationError as error:
            raise WrongArguments(_plainly(self.name, error)) from None
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, info in type(checked).model_fields.items():
            parameter = info.alias or name
            value = getattr(checked, name)
            if self._signature.parameters[parameter].kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                keywords[parameter] = value
        return positional, keywords


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"an annotation of {function.__name__} cannot be resolved: {error}") from None


def _arguments_model(
    signature: inspect.Signature, hints: dict[str, Any], documented: docstring_parser.Docstring
) -> type[BaseModel]:
    texts = {parameter.arg_name: parameter.description or "" for parameter in documented.params}
    fields: dict[str, Any] = {}
    for number, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind in _SKIPPED or (number == 0 and name in ("self", "cls")):
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        # The field has a neutral name, so that a parameter may be called `schema`, `copy` or `_x`.
        fields[f"argument{number}"] = _field(name, hints.get(name, Any), default, texts.get(name, ""))
    config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=False)
    try:
        return create_model("Arguments", __config__=config, **fields)
    except Exception as error:
        raise TypeError(f"no schema can be made of the signature: {error}") from None


def _field(name: str, hint: Any, default: Any, documented: str) -> tuple[Any, FieldInfo]:
    base, texts, rest = hint, [], []
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        texts = [extra for extra in extras if isinstance(extra, str)]
        rest = [extra for extra in extras if not isinstance(extra, str)]
    description = ";".join(texts) or documented or None
    annotation = Annotated[(base, *rest)] if rest else base
    options: dict[str, Any] = {"alias": name}
    if description is not None:
        options["description"] = description
    return annotation, Field(default, **options)


def _output_schema(hint: Any) -> dict[str, Any] | None:
    """The schema of what a function returns, where that is always an object; None for anything else."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint is ToolResult or (get_origin(hint) is dict and get_args(hint)[:1] != (str,)):
        return None
    is_object = (
        is_dataclass(hint)
        or is_typeddict(hint)
        or get_origin(hint) is dict
        or (isinstance(hint, type) and not isinstance(hint, types.GenericAlias) and issubclass(hint, BaseModel))
    )
    if not is_object:
        return None
    try:
        schema = without_titles(TypeAdapter(hint).json_schema(mode="serialization"))
    except PydanticUserError:
        return None  # such as a typing.TypedDict before Python 3.12
    return schema if schema.get("type") == "object" else None


def without_titles(schema: Any, *, names: bool = False) -> Any:
    """A JSON schema without the titles pydantic puts everywhere; a property that is called `title` stays.

    `names`: the keys of this mapping are names of the user's, not keywords.
    """
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema if names else {key: value for key, value in schema.items() if key != "title"}
    return {
        key: value
        if not names and key in ("default", "const", "enum", "examples")
        else without_titles(value, names=not names and key in ("properties", "$defs", "patternProperties"))
        for key, value in kept.items()
    }


def _plainly(tool: str, error: ValidationError) -> str:
    lines = []
    for finding in error.errors(include_url=False):
        where = ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "missing":
            lines.append(f"{where}: is missing")
        elif finding["type"] == "extra_forbidden":
            lines.append(f"{where}: is not an argument of this tool")
        else:
            lines.append(f"{where}: {finding['msg'][0].lower()}{finding['msg'][1:]}, got {_shown(finding['input'])}")
    return f"The arguments of {tool!r} do not fit, nothing was called. " + "; ".join(lines)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '…'}"
