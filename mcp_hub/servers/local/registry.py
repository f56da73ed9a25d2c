"""`@mcp_hub.tool`: the mark on a function that makes it a tool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

if TYPE_CHECKING:
    from pydantic import BaseModel

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE: Final = "__mcp_hub_tool__"


@dataclass(frozen=True, slots=True)
class Mark:
    """What was said of a function where it was made a tool; None where the function itself says it."""

    name: str | None = None
    description: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, Any] | None = None
    """MCP's tool annotations, `readOnlyHint` and so on."""
    json_schema: Mapping[str, Any] | None = None
    """Stands for what the signature says: `{"type": "function", "function": {"name", "parameters", ...}}`, or the
    schema of the arguments itself."""
    preset: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments that callers neither see nor set."""
    postprocess: Callable[..., Any] | None = None
    """Gets the call and each ToolResponse, and returns another one, or None for the same; sync or async."""
    extended_model: type[BaseModel] | None = None
    """Its fields are arguments too, which the function gets as `**kwargs`."""
    include_long_description: bool = True
    before_long_description: str = "\n\n"
    include_var_positional: bool = False
    include_var_keyword: bool = False
    convert: bool = True
    """Whether the function gets arguments as the types it asks for; else as they came, once they have been checked."""
    module: str | None = None
    """Where it was marked."""


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    tags: str | Sequence[str] = (),
    annotations: Mapping[str, Any] | None = None,
    json_schema: Mapping[str, Any] | None = None,
    preset: Mapping[str, Any] | None = None,
    postprocess: Callable[..., Any] | None = None,
    extended_model: type[BaseModel] | None = None,
    include_long_description: bool = True,
    include_var_positional: bool = False,
    include_var_keyword: bool = False,
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    tags: str | Sequence[str] = (),
    preset: Mapping[str, Any] | None = None,
    **said: Any,
) -> F | Callable[[F], F]:
    """Make something that can be called a tool; it is returned unchanged.

    Functions and generators, sync and async, and `functools.partial` of them. The schema comes from the signature,
    the docstring and `Annotated`. A single tag may be given as a text. Raises TypeError for something that cannot be
    called, or cannot be marked.
    """
    labels = (tags,) if isinstance(tags, str) else tuple(tags)
    mark = Mark(tags=labels, preset=dict(preset or {}), module=sys._getframe(1).f_globals.get("__name__"), **said)

    def decorate(target: F) -> F:
        if not callable(target):
            raise TypeError(f"@tool marks functions, not {type(target).__name__}")
        try:
            setattr(target, _ATTRIBUTE, mark)
        except (AttributeError, TypeError):
            raise TypeError(
                f"{target!r} cannot be marked; mark a functools.partial of it, or a function that calls it"
            ) from None
        return target

    return decorate if function is None else decorate(function)


def kept_of(candidate: object) -> dict[str, Any]:
    """`preset` and `postprocess` of a marked function: they hold wherever it is registered again."""
    mark = mark_of(candidate)
    return {"preset": mark.preset, "postprocess": mark.postprocess} if mark is not None else {}


def mark_of(candidate: object) -> Mark | None:
    """The mark of a function, None if it has none."""
    mark = getattr(candidate, _ATTRIBUTE, None)
    return mark if isinstance(mark, Mark) else None
