"""Merges several files of one configuration. Values of later files win."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.config_files import ConfigDocument
from mcp_hub.config.dialect import Dialect
from mcp_hub.config.findings import Findings, KeyPath, Place, dotted
from mcp_hub.config.raw_entries import RawEntry
from mcp_hub.config.settings import KeyTable
from mcp_hub.config.variables import VariableScope

MAX_FILES: Final = 16
"""The maximum number of files of one configuration."""
_BY_NAME: Final = ("tool_sets", "profiles", "groups")
"""Root keys with named values, which are merged by name."""
_JOINED: Final = "blacklist"
"""A root key whose lists are joined, so that no file allows what another one refuses."""
_SPELLINGS: Final = (("web", "scrape"), ("defaults",), ("serverDefaults",))


class Layer(msgspec.Struct):
    """One file of a configuration: its entries, and the root keys that are taken from it."""

    document: ConfigDocument
    findings: Findings
    dialect: Dialect
    entries: list[RawEntry]
    scope: VariableScope
    root: dict[str, Any]

    def where(self, at: KeyPath) -> str:
        """Returns a place of the file as text: `servers.yaml:3: servers.github`."""
        file, line = self.findings.place(at)
        return f"{file}{'' if line is None else f':{line}'}: {dotted(at)}"

    def tell_replaced(self, at: KeyPath, value: Any, earlier: Layer, earlier_at: KeyPath, replaced: Any) -> None:
        """Warns that a value of this file replaces another one of an earlier file."""
        if value != replaced:
            self.findings.warning(at, f"replaces {earlier.where(earlier_at)}", codes.FILE_OVERLAID)


def merged_entries(layers: Iterable[Layer]) -> list[tuple[Layer, RawEntry]]:
    """Returns the entries of all files, in the order of their names' first occurrence. The last of equal names wins."""
    merged: dict[str, tuple[Layer, RawEntry]] = {}
    for layer in layers:
        for entry in layer.entries:
            if entry.id in merged:
                earlier, replaced = merged[entry.id]
                layer.tell_replaced(entry.at, entry.values, earlier, replaced.at, replaced.values)
            merged[entry.id] = layer, entry
    return list(merged.values())


def merge_root_keys(layers: Sequence[Layer], keys: KeyTable) -> Place:
    """Keeps every root key only in the last file that has it, and returns the function that finds a key's place.

    Named values are merged by name, and lists of `blacklist` are joined. A warning with both places reports each value
    that is replaced by a different one.
    """
    origins: dict[KeyPath, tuple[Layer, KeyPath]] = {}
    for spellings in _groups(keys, layers):
        occurrences = [(layer, name) for layer in layers for name in spellings if layer.root.get(name) is not None]
        if not occurrences:
            continue
        last_layer, name = occurrences[-1]
        value: Any = last_layer.root[name]
        if len({id(layer) for layer, _ in occurrences}) > 1:
            value = _merged(occurrences, spellings[0], origins)
            for layer, spelling in occurrences:
                if layer is not last_layer:
                    del layer.root[spelling]
            last_layer.root[name] = value
        origins.setdefault((name,), (last_layer, (name,)))

    def place(at: KeyPath) -> tuple[str, int | None]:
        for end in range(len(at), 0, -1):
            if at[:end] in origins:
                layer, origin_at = origins[at[:end]]
                return layer.findings.place((*origin_at, *at[end:]))
        return layers[0].findings.place(at)

    return place


def _groups(keys: KeyTable, layers: Sequence[Layer]) -> list[tuple[str, ...]]:
    """Returns the root keys that the files have, each with its other spellings."""
    groups = [(key.name, *key.spellings) for key in keys.root] + list(_SPELLINGS[:1])
    grouped = {name for group in groups for name in group} | {name for group in _SPELLINGS[1:] for name in group}
    ungrouped = dict.fromkeys(name for layer in layers for name in layer.root if name not in grouped)
    return [*groups, *((name,) for name in ungrouped)]


def _merged(occurrences: Sequence[tuple[Layer, str]], kind: str, origins: dict[KeyPath, tuple[Layer, KeyPath]]) -> Any:
    """Returns the value of a root key that several files have, and adds the places of its parts to `origins`."""
    values = [layer.root[name] for layer, name in occurrences]
    key = occurrences[-1][1]
    if kind == _JOINED and all(isinstance(value, list) for value in values):
        joined: list[Any] = []
        for (layer, name), value in zip(occurrences, values, strict=True):
            for index, item in enumerate(value):
                origins[key, len(joined)] = layer, (name, index)
                joined.append(item)
        return joined
    mappings = [_by_name(value, (name,)) for (_, name), value in zip(occurrences, values, strict=True)]
    if kind in _BY_NAME and all(members is not None for members in mappings):
        merged: dict[str, Any] = {}
        for (layer, _), members in zip(occurrences, mappings, strict=True):
            for name, (value, at) in (members or {}).items():
                if name in merged:
                    earlier, earlier_at = origins[key, name]
                    layer.tell_replaced(at, value, earlier, earlier_at, merged[name])
                merged[name] = value
                origins[key, name] = layer, at
        return merged
    last_layer, name = occurrences[-1]
    for layer, spelling in occurrences[:-1]:
        if layer is not last_layer:
            last_layer.tell_replaced((name,), values[-1], layer, (spelling,), layer.root[spelling])
    return values[-1]


def _by_name(value: Any, at: KeyPath) -> dict[str, tuple[Any, KeyPath]] | None:
    """Returns {name: (value, place)} of a mapping, or of a list of mappings with names; None for anything else."""
    if isinstance(value, dict):
        return {name: (item, (*at, name)) for name, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value):
        return {item["name"]: (item, (*at, index)) for index, item in enumerate(value)}
    return None
