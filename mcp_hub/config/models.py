"""The configuration as frozen models: what a file means once it is read.

`load.py` turns a file of any dialect into these; nothing else of the project parses configuration.
All durations are seconds, all sizes bytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

Transport = Literal["stdio", "http", "sse", "auto"]
"""How an upstream is reached. `auto`: a URL without a type; streamable HTTP first, SSE when that answers 4xx."""

SessionMode = Literal["shared", "client", "call"]
OnConflict = Literal["keep_first", "raise", "override", "rename", "prefix"]
EraPin = Literal["auto", "handshake", "modern"]

CONNECT_DEADLINE = 30.0
CONNECT_DEADLINE_OF_INSTALLERS = 120.0
"""npx and its like download the package on the first start."""
INSTALLERS = frozenset({"npx", "uvx", "bunx", "pipx", "docker", "podman"})
LIST_DEADLINE = 10.0
WRITE_DEADLINE = 5.0
CALL_DEADLINE = 1200.0
LIST_WAIT = 3.0
"""Some clients give up on `tools/list` after 5 s."""
MAX_FRAME = 64 * 1024 * 1024

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


Duration = Annotated[float, BeforeValidator(parse_duration)]
Size = Annotated[int, BeforeValidator(parse_size)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Deadlines(_Frozen):
    """How long each kind of wait may take, in seconds."""

    connect: Duration = CONNECT_DEADLINE
    """From the start of an upstream to its answered handshake."""
    list: Duration = LIST_DEADLINE
    """One page of one list."""
    write: Duration = WRITE_DEADLINE
    """Until an upstream has taken one message off the pipe."""
    call: Duration = CALL_DEADLINE
    """One call in total: waiting for the connection, the call itself, everything."""


class Server(_Frozen):
    """One upstream."""

    id: str
    """The key of the entry in the file; unique."""
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, SecretStr] = Field(default_factory=dict)
    cwd: Path | None = None
    url: str | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    tools_dir: Path | None = None
    """A directory of Python files whose `@mcp_hub.tool` functions are this upstream's tools."""

    namespace: str
    """Prefix of the exposed names; `""` exposes the original names."""
    enabled: bool = True
    disabled_reason: str | None = None
    """Why the hub itself switched the entry off, in words for the user (an unset variable, say)."""
    required: bool = False
    lazy: bool = False
    """Start at the first call, not with the hub."""
    session: SessionMode = "shared"
    max_sessions: int = Field(default=64, ge=1)
    """With `session: client`, callers that can have one at the same time; 8 for a browser."""
    era: EraPin = "auto"
    keep_catalog: bool = True
    deadlines: Deadlines = Deadlines()
    max_frame: Size = MAX_FRAME
    """Largest message accepted from this upstream."""

    @model_validator(mode="after")
    def _complete(self) -> Server:
        given = [name for name in ("command", "url", "tools_dir") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise ValueError(f"an entry has exactly one of 'command', 'url' and 'tools_dir'; this one has {found}")
        if (self.transport == "stdio") == (self.url is not None):
            other = "a 'command'" if self.transport == "stdio" else "a 'url'"
            raise ValueError(f"transport '{self.transport}' needs {other}")
        return self


class Listen(_Frozen):
    """The network side of `serve --sse` and `serve --http`."""

    host: str = "127.0.0.1"
    port: int = Field(default=8808, ge=0, le=65535)
    token: SecretStr | None = None
    """Bearer token every request must carry; needed on any address but loopback. At least 32 bytes."""
    allowed_hosts: tuple[str, ...] = ()
    """More values of `Host` to accept, `name` or `name:port`; loopback names are always accepted on loopback."""
    allowed_origins: tuple[str, ...] = ()
    """More values of `Origin` to accept, `scheme://host[:port]`."""
    max_body: Size = 4 * 1024 * 1024


class Config(_Frozen):
    """One configuration file."""

    path: Path | None = None
    """Absolute path of the file, None for a configuration built in code."""
    servers: tuple[Server, ...] = ()
    """In the order of the file, which decides who is first when names are equal."""
    on_conflict: OnConflict = "keep_first"
    list_wait: Duration = LIST_WAIT
    """How long the first list waits for upstreams that are still connecting."""
    cache_dir: Path | None = None
    """Where catalogs are kept; None: the user's cache directory."""
    listen: Listen = Listen()
