"""The file with what was pinned, beside the configuration: made to be read by a person and kept in git."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mcp_hub.config.file_stamps import stamp
from mcp_hub.config.ownership import refuse_foreign
from mcp_hub.errors import ConfigError
from mcp_hub.security.pinning import PARTS, Pinned
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.hub")

FORMAT: Final = 1
MAX_SIZE: Final = 16 * 1024 * 1024
"""Bytes; the definitions of some ten thousand tools."""
LOOKED_AT_EVERY: Final = 1.0
"""Seconds in which a running hub notices that something was pinned."""

Pins = dict[str, Pinned]
"""By the id of the server."""


def read_pins(path: Path) -> Pins:
    """What is recorded; nothing where there is no file. Raises ConfigError where it cannot be trusted or read."""
    try:
        with path.open("rb") as file:
            refuse_foreign(path, file.fileno(), "which tools are let through")
            content = file.read(MAX_SIZE + 1)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise ConfigError(f"{path}: the pins cannot be read: {reason}") from None
    if len(content) > MAX_SIZE:
        raise ConfigError(f"{path}: the file is larger than {MAX_SIZE} bytes; delete it and run `mcp-hub pin`")
    try:
        return _pins_of(json.loads(content))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        how = "restore it, or delete it and run `mcp-hub pin`"
        raise ConfigError(f"{path}: this is no file of pins, format {FORMAT}: {how}") from None


def write_pins(path: Path, pins: Mapping[str, Pinned]) -> None:
    """Replace the file at once, or leave it as it is. Raises ConfigError where that is not possible."""
    # What cannot be seen in a text is an escape here, so that a review shows it.
    value = {"format": FORMAT, "servers": {id: _json_of(one) for id, one in pins.items()}}
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True) + "\n"
    if len(text) > MAX_SIZE:
        raise ConfigError(f"{path}: the pins would take more than {MAX_SIZE} bytes; pin fewer servers")
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: the pins cannot be written: {error.strerror}") from None


def _json_of(one: Pinned) -> dict[str, Any]:
    found: dict[str, Any] = {"fingerprint": one.fingerprint}
    if one.instructions is not None:
        found["instructions"] = one.instructions
    for kind in PARTS:
        found[kind.name] = dict(one.items.get(kind, {}))
    return found


def _pins_of(value: Any) -> Pins:
    if value["format"] != FORMAT:
        raise ValueError
    found: Pins = {}
    for id, one in value["servers"].items():
        items = {kind: dict(one.get(kind.name, {})) for kind in PARTS}
        sound = all(item["name"] == name for kind in PARTS for name, item in items[kind].items())
        said = one.get("instructions")
        if not sound or not isinstance(said, str | None):
            raise ValueError
        found[id] = Pinned(items, said)
    return found


class PinWatch:
    """Notices that the file was written. `changed(pins)` gets what is in it; a file that is no use changes nothing."""

    def __init__(self, path: Path, changed: Callable[[Pins], None]) -> None:
        self._path = path
        self._changed = changed
        self._seen = stamp(path)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOKED_AT_EVERY)
            self.look()

    def look(self) -> None:
        """Look once."""
        now = stamp(self._path)
        if now == self._seen:
            return
        self._seen = now
        try:
            pins = read_pins(self._path)
        except ConfigError as error:
            log.error("the pins stay as they were: %s", printable(str(error)))
        else:
            log.info("the pins were read again: %s", self._path.name)
            self._changed(pins)
