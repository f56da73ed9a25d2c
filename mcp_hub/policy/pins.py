"""Pinned tool definitions: the file that records them, and the rule that reports or hides what has changed since."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from mcp_hub import codes
from mcp_hub.catalog import Item, Route
from mcp_hub.config.config_files import stamp_of
from mcp_hub.config.field_types import check_of
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, Frozen, RootKey, model_key, parsed_key
from mcp_hub.errors import ConfigError
from mcp_hub.policy import PolicyParts
from mcp_hub.protocol.kinds import Kind
from mcp_hub.security.pinning import (
    PARTS,
    Difference,
    PinRecord,
    differences_in_steps,
    instructions_difference,
    record_of,
)
from mcp_hub.security.private_files import FileTooLarge, locked_directory, newer_format, read_regular
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.upstream import Upstream

log = logging.getLogger("mcp_hub.policy")

FORMAT: Final = 1
MAX_SIZE: Final = 16 * 1024 * 1024
"""Bytes; the definitions of some ten thousand tools."""
LOOKED_AT_EVERY: Final = 1.0
"""Seconds between two checks whether the file has changed."""

PinsByServer = dict[str, PinRecord]
"""By the id of the server."""
PinMode = Literal["off", "warn", "enforce"]


class PinSettings(Frozen):
    """Pins: whether what servers list is compared with the record of `mcp-hub pin`."""

    OFF: ClassVar[Mapping[str, Any]] = {"mode": "off"}
    SHORT: ClassVar[Mapping[type, str]] = {str: "mode"}

    mode: PinMode = "off"
    """`warn`: differences are reported; `enforce`: what differs is hidden and refused until it is pinned."""
    file: Path | None = None
    """The file of the record; None: beside the configuration, `servers.pins.json` for `servers.yaml`."""


PINS: Final = RootKey("pins", model_key(PinSettings), PinSettings(), restricts=True)
PINS_OF_SERVER: Final[EntryKey[PinMode | None]] = EntryKey("pins", parsed_key(check_of(PinMode)), None, restricts=True)
"""The mode of this server, `off`, `warn` or `enforce`; None: that of the root."""


def pins_file(config: Config) -> Path | None:
    """Returns the file of the pins; None for a configuration that neither is a file nor names one."""
    configured = PINS.of(config).file
    if configured is not None or config.path is None:
        return configured
    return config.path.with_name(f"{config.path.stem}.pins.json")


def pin_mode(config: Config, server: Server) -> PinMode:
    """Returns the mode that applies to one server."""
    return PINS_OF_SERVER.of(server) or PINS.of(config).mode


def read_pins(path: Path) -> PinsByServer:
    """Returns the recorded pins, {} if there is no file. Raises ConfigError if it cannot be read or trusted."""
    try:
        content, _ = read_regular(path, MAX_SIZE, "which tools are let through")
    except FileNotFoundError:
        return {}
    except FileTooLarge:
        text = f"{path}: the file is larger than {MAX_SIZE} bytes; delete it and run `mcp-hub pin`"
        raise ConfigError(text, codes.PINS_UNREADABLE) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise ConfigError(f"{path}: the pins cannot be read: {reason}", codes.PINS_UNREADABLE) from None
    try:
        value = json.loads(content)
        if (newer := newer_format(value, FORMAT)) is not None:
            raise ConfigError(f"{path}: the pins are not read: {newer}", codes.PINS_UNREADABLE)
        return _pins_of(value)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        hint = "restore it, or delete it and run `mcp-hub pin`"
        text = f"{path}: this is not a pins file of format {FORMAT}: {hint}"
        raise ConfigError(text, codes.PINS_UNREADABLE) from None


def pins_in(text: str) -> PinsByServer:
    """Returns the pins of a text that `pins_text` has made. Raises ValueError if it is not one."""
    try:
        return _pins_of(json.loads(text))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        text = f"its text is not a pins file of format {FORMAT}; run the same version of mcp-hub at all replicas"
        raise ValueError(text) from None


def pins_text(pins: Mapping[str, PinRecord]) -> str:
    """Returns the content of a pins file. Invisible characters are escapes, so that a review of the file shows them."""
    value = {"format": FORMAT, "servers": {id: _json_of(record) for id, record in pins.items()}}
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def listed_record(upstream: Upstream) -> PinRecord:
    """Returns the pin record of a server's current lists and instructions."""
    text = upstream.agreement.instructions if upstream.agreement is not None else None
    return record_of(listed_parts(upstream), text)


def listed_parts(upstream: Upstream) -> list[tuple[Kind, Any]]:
    """Returns the items of a server that are pinned."""
    return [(kind, wire) for kind in PARTS for wire in upstream.lists.items.get(kind, ())]


def merge_pins(
    path: Path,
    pins: Mapping[str, PinRecord],
    forgotten: Sequence[str] = (),
    *,
    seen: Mapping[str, PinRecord] | None = None,
) -> bool:
    """Puts these records into the file in place of the former ones, and drops those of the servers `forgotten`.

    With `seen`, the content of the file at an earlier time, it returns False and changes nothing if the file has got
    other records of these servers since. Raises ConfigError.
    """
    try:
        with locked_directory(path.resolve().parent):
            current = read_pins(path)
            if seen is not None and any(current.get(id) != seen.get(id) for id in (*pins, *forgotten)):
                return False
            merged = {**{id: record for id, record in current.items() if id not in forgotten}, **pins}
            if merged != current or not path.exists():
                write_pins(path, merged)
    except OSError as error:
        raise _not_written(path, error) from None
    return True


def write_pins(path: Path, pins: Mapping[str, PinRecord]) -> None:
    """Replaces the file atomically. Raises ConfigError if that fails; the file is then unchanged."""
    text = pins_text(pins)
    if len(text) > MAX_SIZE:
        raise ConfigError(f"{path}: the pins would take more than {MAX_SIZE} bytes; pin fewer servers")
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: the pins cannot be written: {error.strerror}", codes.STATE_NOT_WRITABLE)


def _json_of(record: PinRecord) -> dict[str, Any]:
    value: dict[str, Any] = {"fingerprint": record.fingerprint}
    if record.instructions is not None:
        value["instructions"] = record.instructions
    for kind in PARTS:
        value[kind.name] = dict(record.items.get(kind, {}))
    return value


def _pins_of(value: Any) -> PinsByServer:
    if value["format"] != FORMAT:
        raise ValueError
    pins: PinsByServer = {}
    for id, entry in value["servers"].items():
        items = {kind: dict(entry.get(kind.name, {})) for kind in PARTS}
        is_valid = all(item["name"] == name for kind in PARTS for name, item in items[kind].items())
        instructions = entry.get("instructions")
        if not is_valid or not isinstance(instructions, str | None):
            raise ValueError
        pins[id] = PinRecord(items, instructions)
    return pins


class PinFileWatcher:
    """Calls `changed(pins)` when the file has changed. A file that cannot be used is logged and changes nothing."""

    def __init__(self, path: Path, changed: Callable[[PinsByServer], None]) -> None:
        self._path = path
        self._changed = changed
        self._stamp = stamp_of(path)
        self.problem: str | None = None
        """Why the file as it is now is not in force."""

    async def run(self) -> None:
        """Checks the file forever."""
        while True:
            await asyncio.sleep(LOOKED_AT_EVERY)
            self.check()

    def check(self) -> None:
        """Checks the file once."""
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            pins = read_pins(self._path)
        except ConfigError as error:
            self.problem = f"the former pins stay in force: {printable(str(error))}"
            log.error("%s", self.problem)
        else:
            self.problem = None
            log.info("the pins were read again: %s", self._path.name)
            self._changed(pins)


MAX_LOGGED: Final = 10_000
"""Logged problems that are remembered, so that each is logged once."""


class PinReview:
    """The review of `Access` that compares what servers list with `recorded`, the pins by id of the server."""

    def __init__(self, config: Config, recorded: Mapping[str, PinRecord]) -> None:
        self._modes = {server.id: pin_mode(config, server) for server in config.servers}
        self._recorded = recorded
        self.notes: Mapping[Route, str] = {}
        """Notes for the user about routes that differ but stay reachable (mode `warn`)."""
        self._differences: dict[str, dict[Route, str]] = {}
        """What differs from the pins, by upstream."""
        self._listed: dict[str, frozenset[Route]] = {}
        self._removed: dict[str, list[Difference]] = {}
        self._logged: set[tuple[str, str, str]] = set()
        self._last_compared: dict[str, tuple[PinRecord | None, list[Any]]] = {}
        """By upstream: the pins and items that were compared last."""

    @classmethod
    def of(cls, parts: PolicyParts) -> PinReview:
        """Makes the review of a configuration."""
        return cls(parts.config, parts.pinned)

    def take(self, recorded: Mapping[str, PinRecord]) -> None:
        """Replaces the pins. They apply to an upstream once its lists are reviewed again."""
        self._recorded = recorded

    def review(self, upstream: str, items: Sequence[Item]) -> Generator[None]:
        """Compares all items that an upstream lists with its pins, before other policies change them, in steps."""
        if self._modes[upstream] == "off":
            return
        pinned_items = [item for item in items if item.route.kind in PARTS]
        recorded, wires = self._recorded.get(upstream), [item.wire for item in pinned_items]
        if _is_same(self._last_compared.get(upstream), recorded, wires):
            return  # neither this server's lists nor its pins have changed
        differences: list[Difference] = []
        for difference in differences_in_steps(recorded, ((item.route.kind, item.wire) for item in pinned_items)):
            yield
            if difference is not None:
                differences.append(difference)
        self._last_compared[upstream] = (recorded, wires)
        self._listed[upstream] = frozenset(item.route for item in pinned_items)
        self._removed[upstream] = [difference for difference in differences if difference.gone]
        self._differences[upstream] = {
            Route(upstream, difference.kind, difference.name): f"pins: it {difference.problem}"
            for difference in differences
            if difference.kind is not None and not difference.gone
        }
        if self._modes[upstream] == "warn":
            other_notes = {route: note for route, note in self.notes.items() if route.upstream != upstream}
            self.notes = {**other_notes, **self._differences[upstream]}
        for difference in differences:
            yield
            self._log_once(upstream, difference)

    def why(self, route: Route) -> str | None:
        """Returns why a route must not be reached, or None if it may be."""
        if self._modes[route.upstream] != "enforce" or route.kind not in PARTS:
            return None
        if route not in self._listed.get(route.upstream, ()):
            return "pins: its server does not list it"
        problem = self._differences[route.upstream].get(route)
        return f"{problem}; `mcp-hub pin {printable(route.upstream, 100)}` accepts it" if problem is not None else None

    def of_instructions(self, upstream: str, text: str) -> str | None:
        """Returns how a server's instructions differ from the pinned ones, or None if they do not."""
        if self._modes[upstream] == "off":
            return None
        difference = instructions_difference(self._recorded.get(upstream), text)
        if difference is not None:
            self._log_once(upstream, difference)
        return f"pins: they {difference.problem}" if difference is not None else None

    def passes_instructions(self, upstream: str, text: str) -> bool:
        """Returns whether a server's instructions may be passed on to clients."""
        return self.of_instructions(upstream, text) is None or self._modes[upstream] == "warn"

    def problems(self, upstream: str) -> list[tuple[str, str, str]]:
        """Returns (kind, name, problem) of every item of an upstream that differs from its pin."""
        enforced = self._modes[upstream] == "enforce"
        suffix = "; it is hidden until `mcp-hub pin`" if enforced else ""
        problems = [
            (route.kind.unknown, route.name, text + suffix)
            for route, text in self._differences.get(upstream, {}).items()
        ]
        removed = self._removed.get(upstream, [])
        return problems + [
            (difference.kind.unknown, difference.name, f"pins: it {difference.problem}")
            for difference in removed
            if difference.kind is not None
        ]

    def _log_once(self, upstream: str, difference: Difference) -> None:
        """Logs a difference once."""
        key = (upstream, difference.name, difference.problem)
        if key in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(key)
        kind = difference.kind.unknown if difference.kind is not None else "its instructions:"
        hidden = self._modes[upstream] == "enforce" and not difference.gone
        suffix = "; it is hidden until `mcp-hub pin`" if hidden else ""
        log.warning("%s: %s %r %s%s", upstream, kind, difference.name[:200], difference.problem, suffix)


def _is_same(previous: tuple[PinRecord | None, list[Any]] | None, recorded: PinRecord | None, wires: list[Any]) -> bool:
    if previous is None or previous[0] is not recorded or len(previous[1]) != len(wires):
        return False
    return all(old is new for old, new in zip(previous[1], wires, strict=True))
