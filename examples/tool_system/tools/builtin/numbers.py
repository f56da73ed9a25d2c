"""Functions of the project. A file in this folder is enough; nothing is registered."""

import time
from typing import Annotated

from mcp_hub import tool


@tool
def calculate(a: Annotated[int, "the left one"], b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def wait(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "done"


@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no such column")
