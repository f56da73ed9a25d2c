"""What becomes of a tool whose name is taken."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Literal, get_args

Strategy = Literal["raise", "override", "skip", "rename"]

MAX_NAMESAKES: Final = 100


def placed(name: str, taken: Container[str], strategy: Strategy) -> str | None:
    """The name a tool is kept under, None if it is not kept.

    `override` takes the place of the other, `skip` leaves it its place, `rename` finds `name_2`, `name_3`, ...,
    always the same from the same tools. Raises ValueError with `raise`, and for a strategy that is none;
    RuntimeError when a hundred names are taken.
    """
    if strategy not in get_args(Strategy):
        names = "', '".join(get_args(Strategy))
        raise ValueError(f"Invalid namesake_strategy: {strategy!r}. Supported strategies are '{names}'.")
    if name not in taken or strategy == "override":
        return name
    if strategy == "raise":
        raise ValueError(f"A function with name '{name}' is already registered in the toolkit.")
    if strategy == "skip":
        return None
    for number in range(2, MAX_NAMESAKES + 2):
        renamed = f"{name}_{number}"
        if renamed not in taken:
            return renamed
    raise RuntimeError(f"{MAX_NAMESAKES} functions are registered under names that begin with '{name}'.")
