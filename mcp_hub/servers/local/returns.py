"""What a function says it returns, as an output schema."""

from __future__ import annotations

import collections.abc as abc
import types
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from typing_extensions import is_typeddict

from mcp_hub.schema.titles import without_titles
from mcp_hub.servers.local.response import ToolResponse
from mcp_hub.servers.local.results import ToolResult

_OF_CHUNKS: Final = (
    abc.Generator,
    abc.AsyncGenerator,
    abc.Iterator,
    abc.AsyncIterator,
    abc.Iterable,
    abc.AsyncIterable,
)
"""Their first argument is what the last chunk is, too."""
_OF_A_RESULT: Final = (abc.Awaitable, abc.Coroutine)
"""Their last argument is what they come to."""


def output_schema(hint: Any) -> dict[str, Any] | None:
    """The schema of what a function returns, where that is always an object; None for anything else."""
    hint = _said(hint)
    if hint in (ToolResult, ToolResponse) or (get_origin(hint) is dict and get_args(hint)[:1] != (str,)):
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
        schema: dict[str, Any] = without_titles(TypeAdapter(hint).json_schema(mode="serialization"))
    except PydanticUserError:
        return None  # such as a typing.TypedDict before Python 3.12
    return schema if schema.get("type") == "object" else None


def _said(hint: Any) -> Any:
    """The hint below `Annotated`, generators and coroutines."""
    while True:
        origin, inner = get_origin(hint), get_args(hint)
        if not inner or (origin is not Annotated and origin not in (*_OF_CHUNKS, *_OF_A_RESULT)):
            return hint
        hint = inner[-1] if origin in _OF_A_RESULT else inner[0]
