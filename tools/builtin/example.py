"""Examples of local tools: every function with @tool in a file of this directory is one. Change them, add your own."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from mcp_hub import tool


@tool(annotations={"readOnlyHint": True})
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


@tool(annotations={"readOnlyHint": True})
def now(timezone: Annotated[str, "A name such as UTC or Europe/Berlin"] = "UTC") -> str:
    """The current date and time in ISO 8601."""
    return datetime.now(ZoneInfo(timezone)).isoformat(timespec="seconds")


@dataclass
class Counts:
    """How long a text is."""

    lines: int
    words: int
    characters: int


@tool(annotations={"readOnlyHint": True})
def word_count(text: str) -> Counts:
    """Count the lines, words and characters of a text."""
    return Counts(len(text.splitlines()), len(text.split()), len(text))


@tool
async def wait(seconds: Annotated[float, "At most 60"]) -> str:
    """Wait for a moment, for example between two looks at something that changes."""
    seconds = max(0.0, min(seconds, 60.0))
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"
