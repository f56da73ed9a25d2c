"""Classes that implement a `BaseTool`, the hub's or LangChain's, as tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

from pydantic import BaseModel, ValidationError

from mcp_hub.servers.local.local_tool import LocalTool
from mcp_hub.servers.local.registry import Mark
from mcp_hub.servers.local.signature import validation_message
from mcp_hub.servers.local.tool_results import ToolRefused

Json = dict[str, Any]

_LANGCHAIN: Final = "langchain_core"
_PACKAGES: Final = ("mcp_hub", _LANGCHAIN)
"""The packages that have a class `BaseTool`. Neither of them is imported to look for it."""


def is_tool_class(value: Any) -> TypeGuard[type[Any]]:
    """Returns whether a value is a class that derives from a BaseTool."""
    return isinstance(value, type) and _base(value) is not None


def implemented_tool(tool: Any) -> LocalTool:
    """Returns the tool that an object of a tool class is. Raises TypeError if it lacks something."""
    base = _base(type(tool))
    assert base is not None
    if base.__module__.startswith(_LANGCHAIN):
        return LocalTool(_invocation(tool), Mark(tool.name, tool.description, json_schema=_langchain_schema(tool)))
    above = len(type(tool).__mro__) - len(base.__mro__)
    own = [vars(one) for one in type(tool).__mro__[:above]]
    name = next((name for name in ("_arun", "_run") if any(name in one for one in own)), None)
    if name is None:
        raise TypeError("a BaseTool needs a method _run(self, ...), or an async _arun(self, ...), that does its work")
    method = getattr(tool, name)
    documented = next((one["__doc__"] for one in own if one.get("__doc__")), None)
    description = tool.description or documented
    if tool.args_schema is not None:
        schema = tool.args_schema.model_json_schema()
        return LocalTool(
            _checked(tool.name, method, tool.args_schema), Mark(tool.name, description, json_schema=schema)
        )
    return LocalTool(method, Mark(tool.name, description, json_schema=tool.json_schema or _schema(tool.parameters)))


def _base(kind: type[Any]) -> type[Any] | None:
    """Returns the BaseTool that a class derives from, or None."""
    for one in kind.__mro__[1:]:
        if one.__name__ == "BaseTool" and one.__module__.partition(".")[0] in _PACKAGES:
            return one
    return None


def _invocation(tool: Any) -> Callable[..., Any]:
    async def invoke(**arguments: Any) -> Any:
        return await tool.ainvoke(arguments)

    return invoke


def _langchain_schema(tool: Any) -> Json:
    schema = tool.tool_call_schema  # without what LangChain injects
    found: Json = schema if isinstance(schema, dict) else schema.model_json_schema()
    return {"type": "object", **found}


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
    """Returns the schema of a list of parameters; None for an empty list, as the method has them then."""
    if not parameters:
        return None
    properties = {
        one.name: ({} if one.type == "any" else {"type": one.type})
        | ({"description": one.description} if one.description else {})
        for one in parameters
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [one.name for one in parameters if one.required],
    }
