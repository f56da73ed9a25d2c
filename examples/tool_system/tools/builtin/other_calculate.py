"""A second tool of one name: the first is kept, and this one is recorded as a duplicate."""

from mcp_hub import tool


@tool
def calculate(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b
