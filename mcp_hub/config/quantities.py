"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from mcp_hub.config.checks import Before

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"\s*(\d+)\s*(B|KiB|MiB|GiB|KB|MB|GB)?\s*", re.IGNORECASE)
_UNIT_BYTES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_duration(value: Any) -> float:
    """Seconds from `30`, `1.5`, `"30"`, `"30s"`, `"500ms"`, `"20m"` or `"1h"`; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a duration is a number of seconds or a text like '30s', '20m', '500ms'")
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            # The text is not quoted: it may have come out of a variable.
            raise ValueError("not a duration; write 30, '30s', '20m' or '500ms'")
        value = float(match[1]) * _UNIT_SECONDS[match[2] or "s"]
    if not 0 < value < float("inf"):
        raise ValueError("a duration must be greater than zero")
    return float(value)


def parse_size(value: Any) -> int:
    """Bytes from `1048576`, `"64MiB"` or `"10MB"`; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size is a number of bytes or a text like '64MiB'")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("not a size; write 1048576, '64MiB' or '10MB'")
        value = int(match[1]) * _UNIT_BYTES[(match[2] or "B").lower()]
    if value <= 0:
        raise ValueError("a size must be greater than zero")
    return int(value)


def parse_optional_duration(value: Any) -> float | None:
    """Seconds, or None for `off`; ValueError otherwise."""
    return None if value is None or value is False or value == "off" else parse_duration(value)


Duration = Annotated[float, Before(parse_duration)]
OptionalDuration = Annotated[float | None, Before(parse_optional_duration)]
Size = Annotated[int, Before(parse_size)]
