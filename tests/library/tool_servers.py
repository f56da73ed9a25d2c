"""Values that functions return in every place where a function may be."""

from __future__ import annotations

from typing import Any

VALUES = '''
from dataclasses import dataclass
from datetime import date
from mcp_hub import ToolResponse

@dataclass
class Point:
    x: int

VALUES = {
    "none": None, "truth": True, "whole": 3, "real": 0.5, "text": "3", "json_text": "[1]", "empty": "",
    "items": [1, "two", None], "pair": (1, 2), "object": {"a": [1]}, "point": Point(1), "day": date(2026, 11, 23),
    "response": ToolResponse([{"type": "text", "text": "4"}]), "no_items": [],
}

def value(of: str):
    """Return the value of a name."""
    return VALUES[of]

async def value_async(of: str):
    """Return the value of a name."""
    return VALUES[of]

def value_last(of: str):
    """Return the value of a name as the last chunk."""
    yield "first"
    yield VALUES[of]
'''
"""Functions that return values of every type."""
AS_JSON: dict[str, Any] = {
    "none": None, "truth": True, "whole": 3, "real": 0.5, "text": "3", "json_text": "[1]", "empty": "",
    "items": [1, "two", None], "pair": [1, 2], "object": {"a": [1]}, "point": {"x": 1}, "day": "2026-11-23",
    "response": "4", "no_items": [],
}  # fmt: skip
"""What they are in JSON."""
