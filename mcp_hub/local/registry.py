"""`@mcp_hub.tool`: the mark on a function that makes it a tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE: Final = "__mcp_hub_tool__"


@dataclass(frozen=True, slots=True)
class Mark:
    """What the decorator was told; None where the function itself says it."""

    name: str | None = None
    description: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, Any] | None = None
    """MCP's tool annotations, `readOnlyHint` and so on."""


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
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    tags: str | Sequence[str] = (),
    annotations: Mapping[str, Any] | None = None,
) -> F | Callable[[F], F]:
    """Make a function, sync or async, a tool; it is returned unchanged.

    Its schema comes from the signature, the docstring and `Annotated`. A single tag may be given as a text. Raises
    TypeError for something that cannot be called.
    """
    labels = (tags,) if isinstance(tags, str) else tuple(tags)
    mark = Mark(name, description, title, labels, annotations)

    def decorate(target: F) -> F:
        if not callable(target):
            raise TypeError(f"@tool marks functions, not {type(target).__name__}")
        setattr(target, _ATTRIBUTE, mark)
        return target

    return decorate if function is None else decorate(function)


def mark_of(candidate: object) -> Mark | None:
    """The mark of a function, None if it has none."""
    mark = getattr(candidate, _ATTRIBUTE, None)
    return mark if isinstance(mark, Mark) else None
