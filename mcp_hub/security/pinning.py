"""Pins: the parts of items that are recorded, their fingerprint, and the differences of a server from its record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mcp_hub.protocol.kinds import PROMPTS, TOOLS, Kind

PARTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    TOOLS: ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    PROMPTS: ("name", "title", "description", "arguments"),
}
"""The parts that models read or clients rely on. Resources are not pinned, as their lists change all the time."""

Definition = dict[str, Any]


def pinned_definition(kind: Kind, wire: Any) -> Definition | None:
    """Returns the pinned parts of an item that are not `null`; None for an item that cannot be pinned."""
    if kind not in PARTS or not isinstance(wire, dict) or not isinstance(wire.get("name"), str):
        return None
    return {part: wire[part] for part in PARTS[kind] if wire.get(part) is not None}


def fingerprint(value: Any) -> str | None:
    """Returns the SHA-256 of a JSON value, whatever the order of its keys; None if it is nested too deeply."""
    try:
        text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    except (RecursionError, ValueError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


class PinRecord(msgspec.Struct, frozen=True):
    """The record of one server: its items and its instructions."""

    items: Mapping[Kind, Mapping[str, Definition]] = msgspec.field(default_factory=dict)
    """By kind and name."""
    instructions: str | None = None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the whole record. It changes with every item that is added, changed or removed."""
        items = {kind.name: self.items.get(kind, {}) for kind in PARTS}
        return fingerprint([items, self.instructions]) or ""


class Difference(msgspec.Struct, frozen=True):
    """One item, or the instructions (`kind` is None), that differs from the record."""

    kind: Kind | None
    name: str
    problem: str
    gone: bool = False


def record_of(items: Iterable[tuple[Kind, Any]], instructions: str | None) -> PinRecord:
    """Returns the record of a server's items and instructions. Of two items with the same name the first counts."""
    recorded: dict[Kind, dict[str, Definition]] = {kind: {} for kind in PARTS}
    for kind, wire in items:
        definition = pinned_definition(kind, wire)
        if definition is not None and fingerprint(definition) is not None:
            recorded[kind].setdefault(definition["name"], definition)
    return PinRecord(recorded, instructions or None)


def differences(before: PinRecord | None, items: Iterable[tuple[Kind, Any]]) -> Iterator[Difference]:
    """Yields how the items of a server differ from the record. Without a record, all of them are new."""
    return (difference for difference in differences_in_steps(before, items) if difference is not None)


def differences_in_steps(before: PinRecord | None, items: Iterable[tuple[Kind, Any]]) -> Iterator[Difference | None]:
    """Yields what `differences` yields, and None for every item that was compared, so that a caller can pause."""
    listed: dict[Kind, dict[str, list[Definition]]] = {kind: {} for kind in PARTS}
    for kind, wire in items:
        yield None
        definition = pinned_definition(kind, wire)
        if definition is not None:
            listed[kind].setdefault(definition["name"], []).append(definition)
    for kind in PARTS:
        pinned = before.items.get(kind, {}) if before is not None else {}
        missing = {name: definition for name, definition in pinned.items() if name not in listed[kind]}
        names_by_fingerprint: dict[str | None, str] = {}
        for name, definition in reversed(missing.items()):
            yield None
            names_by_fingerprint[_fingerprint_without_name(definition)] = name
        for name, definitions in listed[kind].items():
            yield None
            problem = _problem(pinned.get(name), definitions, names_by_fingerprint, recorded=before is not None)
            if problem is not None:
                yield Difference(kind, name, problem)
        for name in missing:
            yield Difference(kind, name, "is pinned and no longer listed", gone=True)


def instructions_difference(before: PinRecord | None, text: str | None) -> Difference | None:
    """Returns how the instructions of a server differ from the record; None if they do not or there are none."""
    recorded = before.instructions if before is not None else None
    if (text or None) == recorded or not text:
        return None
    problem = "are new" if recorded is None else "have changed since they were pinned"
    return Difference(None, "instructions", problem)


def _problem(
    pinned: Definition | None,
    definitions: list[Definition],
    names_by_fingerprint: Mapping[str | None, str],
    *,
    recorded: bool,
) -> str | None:
    fingerprints = {fingerprint(definition) for definition in definitions}
    if None in fingerprints:
        return "is nested too deeply to be pinned"
    if len(fingerprints) > 1:
        return "is listed twice, with different definitions"
    if pinned is None:
        old_name = names_by_fingerprint.get(_fingerprint_without_name(definitions[0]))
        if old_name is not None:
            return f"is new: what was pinned as {old_name!r}, renamed"
        return (
            "is new since the server was pinned"
            if recorded
            else "is not pinned, and neither is any other item of its server"
        )
    if fingerprint(pinned) in fingerprints:
        return None
    # Compared as JSON text, because `False == 0` in Python.
    parts = [
        part
        for part in {**pinned, **definitions[0]}
        if _part_fingerprint(pinned, part) != _part_fingerprint(definitions[0], part)
    ]
    return f"has changed since it was pinned ({', '.join(parts)})"


def _part_fingerprint(definition: Definition, part: str) -> str | None:
    return fingerprint({part: definition.get(part)})


def _fingerprint_without_name(definition: Definition) -> str | None:
    return fingerprint({part: value for part, value in definition.items() if part != "name"})
