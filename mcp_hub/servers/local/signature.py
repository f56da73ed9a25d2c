"""The schemas of a function: of its arguments, of those that an extended model adds, and of what it returns.

pydantic makes the schemas and checks arguments strictly: `"3"` is not an integer.
"""

from __future__ import annotations

import collections.abc as abc
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import is_typeddict

from mcp_hub.protocol.frames import encode
from mcp_hub.schema.compact_schema import drop_titles
from mcp_hub.schema.schema_edits import extend_schema
from mcp_hub.servers.local.tool_results import ToolResult, is_response_class

_ANY_POSITION: Final = inspect.Parameter.VAR_POSITIONAL
_ANY_KEYWORD: Final = inspect.Parameter.VAR_KEYWORD
_NO_DEFAULT: Final = inspect.Parameter.empty

MAX_EXACT: Final = 2.0**53
"""From here on, a float no longer says which integer is meant."""


class InvalidArguments(Exception):
    """The arguments do not fit. `str()` says which, what was expected and what was given."""


class FunctionArguments:
    """The parameters of a function, except those in `hidden`. Raises TypeError if no schema can be made of them."""

    def __init__(
        self,
        function: Callable[..., Any],
        documented: Mapping[str, str],
        hidden: Collection[str] = (),
        *,
        var_positional: bool = False,
        var_keyword: bool = False,
    ) -> None:
        self._parameters = parameters_of(function)
        self.takes_keywords = any(parameter.kind is _ANY_KEYWORD for parameter in self._parameters.values())
        self._lists_keywords = var_keyword
        unknown = [name for name in hidden if name not in self._parameters]
        if unknown and not self.takes_keywords:
            raise TypeError(f"it has no parameter {unknown[0]!r} that could be preset")
        visible = {
            name: parameter
            for name, parameter in self._parameters.items()
            if name not in hidden
            and (parameter.kind is not _ANY_POSITION or var_positional)
            and (parameter.kind is not _ANY_KEYWORD or var_keyword)
        }
        hints = hints_of(function, visible)
        # The fields have neutral names, so that a parameter may be called `schema`, `copy` or `_x`.
        fields: dict[str, Any] = {
            f"argument{number}": _field(parameter, hints.get(name, Any), documented)
            for number, (name, parameter) in enumerate(visible.items())
        }
        extra: Any = "allow" if self.takes_keywords else "forbid"
        config = ConfigDict(extra=extra, strict=True, arbitrary_types_allowed=False)
        try:
            self._model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
            schema = self._model.model_json_schema(by_alias=True)
        except Exception as error:
            raise TypeError(f"no schema can be made of the signature: {error}") from None
        self.schema: dict[str, Any] = drop_titles(schema)
        self.schema.pop("description", None)
        self.schema.setdefault("properties", {})
        if not self.takes_keywords:
            self.schema["additionalProperties"] = False

    def checked(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments as the annotated types, with defaults. Raises InvalidArguments."""
        model = _validated(self._model, arguments, tool)
        values = dict(model.model_extra or {})
        for name, info in type(model).model_fields.items():
            values[info.alias or name] = getattr(model, name)
        return values

    def bound(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Splits values by name into positional and keyword arguments of the function."""
        remaining = dict(values)
        variadic = next((name for name, parameter in self._parameters.items() if parameter.kind is _ANY_POSITION), None)
        by_position = variadic is not None and bool(remaining.get(variadic))
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY or parameter.kind is _ANY_KEYWORD or name not in remaining:
                continue
            if parameter.kind is _ANY_POSITION:
                items = remaining.pop(name)
                positional += items if isinstance(items, list | tuple) else [items]
            elif parameter.kind is parameter.POSITIONAL_ONLY or by_position:
                positional.append(remaining.pop(name))
        for name, parameter in self._parameters.items():
            if parameter.kind is _ANY_KEYWORD and self._lists_keywords and isinstance(remaining.get(name), dict):
                keywords |= remaining.pop(name)
        return positional, keywords | remaining


def _validated(model: type[BaseModel], values: Mapping[str, Any], tool: str) -> BaseModel:
    """Returns the values as a model. Raises InvalidArguments."""
    try:
        # Strict mode accepts a string for an enum or a date, which JSON cannot express, only in JSON input.
        return model.model_validate_json(encode(values))
    except ValidationError as error:
        try:
            return model.model_validate_json(encode(_with_integers(values)))
        except ValidationError:
            raise InvalidArguments(validation_message(tool, error)) from None


def _with_integers(value: Any) -> Any:
    """Returns a JSON value with 3 for 3.0, which is an integer in JSON Schema but not for pydantic's strict mode."""
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _with_integers(item) for name, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a function by name, without a leading `self` or `cls`.

    Raises TypeError if it has no signature.
    """
    try:
        parameters = dict(inspect.signature(function).parameters)
    except ValueError as error:
        raise TypeError(f"it has no signature: {error}") from None
    first = next(iter(parameters), None)
    if first in ("self", "cls"):
        del parameters[first]
    return parameters


def hints_of(function: Callable[..., Any], names: Collection[str]) -> dict[str, Any]:
    """Returns the resolved annotations of these parameters and of the return value.

    Raises TypeError if a name in them cannot be resolved.
    """
    target = function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__
    target = inspect.unwrap(target)
    raw_hints = getattr(target, "__annotations__", {})
    holder = types.SimpleNamespace(
        __annotations__={name: raw_hint for name, raw_hint in raw_hints.items() if name in names or name == "return"}
    )
    try:
        return typing.get_type_hints(holder, getattr(target, "__globals__", None), include_extras=True)
    except NameError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"an annotation of {name} cannot be resolved: {error}") from None


def annotated(hint: Any, default: Any = _NO_DEFAULT) -> tuple[Any, str, list[Any]]:
    """Splits `Annotated[T, "a", "b", other]` into (T, the texts joined by `;`, the other items).

    A `default` is added to the texts.
    """
    base, texts, metadata = hint, [], []
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        texts = [extra for extra in extras if isinstance(extra, str)]
        metadata = [extra for extra in extras if not isinstance(extra, str)]
    if default is not _NO_DEFAULT:
        texts.append(f"Default: {default}")
    return base, ";".join(texts), metadata


def _field(parameter: inspect.Parameter, hint: Any, documented: Mapping[str, str]) -> tuple[Any, FieldInfo]:
    name, default = parameter.name, parameter.default
    base, text, metadata = annotated(hint)
    if text:
        text = annotated(hint, default)[1]
    options: dict[str, Any] = {"alias": name}
    if parameter.kind is _ANY_POSITION:
        base, default = types.GenericAlias(list, (base,)), []
        text = text or documented.get(f"*{name}", "")
    elif parameter.kind is _ANY_KEYWORD:
        base, default = types.GenericAlias(dict, (str, base)), {}
        text = text or documented.get(f"**{name}", "")
    has_description = any(isinstance(extra, FieldInfo) and extra.description for extra in metadata)
    text = text or ("" if has_description else documented.get(name, ""))
    if text:
        options["description"] = text
    annotation = Annotated[(base, *metadata)] if metadata else base
    if default is _NO_DEFAULT:
        return annotation, Field(..., **options)
    if not _is_json(default):
        return annotation, Field(default_factory=lambda: default, **options)
    return annotation, Field(default, **options)


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        return False
    return True


def validation_message(tool: str, error: ValidationError) -> str:
    """Returns a message that lists what does not fit."""
    lines = []
    for finding in error.errors(include_url=False):
        location = ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "missing":
            lines.append(f"{location}: is missing")
        elif finding["type"] == "extra_forbidden":
            lines.append(f"{location}: is not an argument of this tool")
        else:
            lines.append(
                f"{location}: {finding['msg'][0].lower()}{finding['msg'][1:]}, got {_excerpt(finding['input'])}"
            )
    return f"The arguments of {tool!r} do not fit, nothing was called. " + "; ".join(lines)


def _excerpt(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '…'}"


class ModelExtension:
    """A model whose fields a tool takes besides its own. Raises TypeError if it is not a pydantic model."""

    def __init__(self, model: type[BaseModel]) -> None:
        if not isinstance(model, type) or not issubclass(model, BaseModel):
            raise TypeError(f"The extended model must be a child class of pydantic BaseModel, but got {model!r}.")
        self.model = model
        self._schema: dict[str, Any] = drop_titles(model.model_json_schema(by_alias=True))
        self.names = frozenset(self._schema.get("properties", {}))

    def merged(self, schema: Mapping[str, Any], tool: str) -> dict[str, Any]:
        """Returns the tool's schema with the model's fields.

        Raises ValueError if the tool has a field of the same name.
        """
        return extend_schema(schema, self._schema, tool)

    def checked(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Checks the model's fields among the arguments, and returns them unchanged. Raises InvalidArguments."""
        values = {name: value for name, value in arguments.items() if name in self.names}
        _validated(self.model, values, tool)
        return values


_OF_A_RESULT: Final = (abc.Awaitable, abc.Coroutine)
"""Generic types whose last argument is the type of the result."""


def output_schema(hint: Any) -> dict[str, Any] | None:
    """Returns the schema of the return type if that is always an object, else None."""
    hint = _inner_hint(hint)
    if hint is ToolResult or is_response_class(hint) or (get_origin(hint) is dict and get_args(hint)[:1] != (str,)):
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
        schema: dict[str, Any] = drop_titles(TypeAdapter(hint).json_schema(mode="serialization"))
    except PydanticUserError:
        return None  # for example a typing.TypedDict before Python 3.12
    return schema if schema.get("type") == "object" else None


def _inner_hint(hint: Any) -> Any:
    """Returns the type inside `Annotated` and coroutines."""
    while True:
        origin, inner = get_origin(hint), get_args(hint)
        if not inner or (origin is not Annotated and origin not in _OF_A_RESULT):
            return hint
        hint = inner[-1] if origin in _OF_A_RESULT else inner[0]
