"""The user's Python functions as a server of the hub, and `@mcp_hub.tool`, the mark that makes a function a tool.

`python -m mcp_hub.servers local DIRECTORY` serves them from a child process, so a function that blocks, prints or
crashes does not affect the hub.
"""

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
    """The options with which a function was made a tool. None means that the function itself determines the value."""

    name: str | None = None
    description: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, Any] | None = None
    """MCP's tool annotations, `readOnlyHint` and so on."""
    json_schema: Mapping[str, Any] | None = None
    """Replaces the schema from the signature.

    `{"type": "function", "function": {"name", "parameters", ...}}`, or the schema of the arguments itself.
    """
    preset: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments that callers neither see nor set."""
    postprocess: Callable[..., Any] | None = None
    """Called with the call and each ToolResponse; returns another one, or None to keep it. Sync or async."""
    extended_model: type[BaseModel] | None = None
    """A model whose fields become arguments too. The function gets them as `**kwargs`."""
    include_long_description: bool = True
    before_long_description: str = "\n\n"
    include_var_positional: bool = False
    include_var_keyword: bool = False
    convert: bool = True
    """Whether arguments are converted to the annotated types.

    Otherwise they are checked, but the function gets them unconverted.
    """
    module: str | None = None
    """The module in which the function was marked."""


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
    **options: Any,
) -> F | Callable[[F], F]:
    """Marks a callable as a tool and returns it unchanged.

    The callable may be a function or generator, sync or async, or a `functools.partial` of one. The schema comes from
    the signature, the docstring and `Annotated`. A single tag may be given as a string. Raises TypeError if `function`
    is not callable or cannot be marked.
    """
    labels = (tags,) if isinstance(tags, str) else tuple(tags)
    mark = Mark(tags=labels, preset=dict(preset or {}), module=sys._getframe(1).f_globals.get("__name__"), **options)

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


def inherited_options(candidate: object) -> dict[str, Any]:
    """Returns `preset` and `postprocess` of a marked function, which also apply if it is registered again."""
    mark = mark_of(candidate)
    return {"preset": mark.preset, "postprocess": mark.postprocess} if mark is not None else {}


def mark_of(candidate: object) -> Mark | None:
    """Returns the mark of a function, or None if it has none."""
    try:
        mark = getattr(candidate, _ATTRIBUTE, None)
    except Exception:  # a lazy object may raise anything, such as Flask's `request` outside of a request
        return None
    return mark if type(mark) is Mark else None
