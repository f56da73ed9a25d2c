"""A function of the project. A file in this folder is enough; nothing is registered."""

from mcp_hub import tool


@tool
def calculate(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no such column")
