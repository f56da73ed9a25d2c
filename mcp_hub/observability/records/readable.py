"""A record as one line for a person at a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_hub.protocol.frames import encode
from mcp_hub.text import json_escaped, printable


def readable(record: Mapping[str, Any]) -> str:
    """The time of day, what was called, where it went, what came of it and how long that took."""
    time = str(record.get("time", ""))[11:19]
    if record.get("event") != "call":
        rest = {key: value for key, value in record.items() if key not in ("event", "time")}
        return f"{time} {printable(str(record.get('event')))} {json_escaped(encode(rest).decode())}"
    words = [time, str(record.get("method")), str(record.get("name"))]
    upstream, tool = record.get("upstream"), record.get("tool")
    if upstream is not None:
        words.append(f"-> {upstream}" if tool == record.get("name") else f"-> {upstream}/{tool}")
    verdict = str(record.get("verdict"))
    details = [str(record[key]) for key in ("code", "policy", "reason") if record.get(key) is not None]
    words.append(f"{verdict} ({', '.join(details)})" if details else verdict)
    if record.get("duration_ms") is not None:
        words.append(f"{record['duration_ms']} ms")
    return printable(" ".join(words), 1000)
