"""The rules at the top of a file: the blacklist, guard, fallback, call log, tool sets and profiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from mcp_hub.config.extras import Extra, missing
from mcp_hub.config.fields import Given
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.frozen import Frozen
from mcp_hub.config.listen import Unread
from mcp_hub.config.rule_fields import by_mode, read_model
from mcp_hub.config.rules import (
    CallLog,
    Fallback,
    Flows,
    Guard,
    OutputStrategy,
    Pins,
    Profile,
    Screen,
    ToolGroup,
    ToolSet,
    Tracing,
    Web,
)
from mcp_hub.config.variables import Scope

N = TypeVar("N", bound=Frozen)

_OFF: Final[Mapping[str, dict[str, Any]]] = {
    "guard": {"huggingface": False},
    "fallback": {"tools": []},
    "call_log": {"enabled": False},
    "tracing": {"enabled": False},
    "pins": {"mode": "off"},
    "flows": {"mode": "off"},
    "screen": {"mode": "off"},
}
BASIC: Final = "basic"
"""The group of what is in no other."""
_SWITCH: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_WEB_KEYS: Final = ("docintel_endpoint", "allow_addresses")
"""Keys that people look for beside the fallback."""


def read_root_rules(
    given: Mapping[str, Given],
    ids: Collection[str],
    scope: Scope,
    findings: Findings,
    more_sets: Callable[[Mapping[str, ToolSet]], Iterable[ToolSet]] = lambda own: (),
) -> dict[str, Any]:
    """The fields of a Config that are rules; what the file does not say is absent.

    `more_sets` gives the tool sets that do not stand in the file itself, from those that do, by name.
    """
    found: dict[str, Any] = {
        "blacklist": _blacklist(_first(given, "blacklist", "tool_blacklist"), ids, findings),
        "tool_sets": _named(ToolSet, given.get("tool_sets"), findings),
        "profiles": _named(Profile, given.get("profiles"), findings),
        "groups": _named(ToolGroup, given.get("groups"), findings),
    }
    sets = found["tool_sets"] or ()
    found["tool_sets"] = (*sets, *more_sets({one.name: one for one in sets})) or None
    web, fallback = _first(given, "web", "scrape"), _first(given, "fallback", "scrape_fallback")
    if fallback is not None and isinstance(fallback.value, dict):
        moved = {key: fallback.value[key] for key in _WEB_KEYS if key in fallback.value}
        if moved:
            kept = {key: one for key, one in fallback.value.items() if key not in moved}
            fallback = Given(kept, fallback.at)
            written = web.value if web is not None and isinstance(web.value, dict) else {}
            web = Given({**moved, **written}, web.at if web is not None else fallback.at)
    guard = given.get("guard")
    if guard is not None and isinstance(guard.value, dict) and isinstance(guard.value.get("huggingface"), dict):
        guard = Given(_flat_guard(guard.value), guard.at)
    log = given.get("call_log")
    if log is not None and isinstance(log.value, str) and log.value != "off":
        log = Given({"file": log.value}, log.at)
    if log is not None and isinstance(log.value, dict) and isinstance(log.value.get("file"), str):
        log = Given({**log.value, "file": scope.path(log.value["file"])}, log.at)
    tracing = given.get("tracing")
    if tracing is not None and isinstance(tracing.value, str) and tracing.value != "off":
        tracing = Given({"endpoint": tracing.value}, tracing.at)
    pins, screen = by_mode(given.get("pins")), by_mode(given.get("screen"))
    if pins is not None and isinstance(pins.value, dict) and isinstance(pins.value.get("file"), str):
        pins = Given({**pins.value, "file": scope.path(pins.value["file"])}, pins.at)
    for name, model, item in (
        ("unread", Unread, given.get("unread")),
        ("web", Web, web),
        ("fallback", Fallback, fallback),
        ("guard", Guard, guard),
        ("call_log", CallLog, log),
        ("pins", Pins, pins),
        ("flows", Flows, by_mode(given.get("flows"))),
        ("screen", Screen, screen),
        ("tracing", Tracing, tracing),
        ("output_strategy", OutputStrategy, given.get("output_strategy")),
    ):
        if item is not None and item.value is not None:
            found[name] = read_model(model, item.value, item.at, findings, _OFF.get(name))
    _check_profiles(found, given, findings)
    _check_groups(found["groups"] or (), ids, findings)
    if (tracing_rules := found.get("tracing")) is not None and tracing_rules.enabled:
        _warn_if_missing("otel", ("tracing",), findings)
    if (fallback_rules := found.get("fallback")) is not None and fallback_rules.tools:
        _warn_if_missing("web", ("fallback",), findings)
    return {name: value for name, value in found.items() if value is not None}


def _warn_if_missing(extra: Extra, at: KeyPath, findings: Findings) -> None:
    lacking = missing(extra)
    if lacking is not None:
        findings.warning(at, f"has no effect: {lacking}")


def _first(given: Mapping[str, Given], *names: str) -> Given | None:
    return next((given[name] for name in names if name in given and given[name].value is not None), None)


def _flat_guard(value: Mapping[str, Any]) -> dict[str, Any]:
    """`guard: {huggingface: {enabled, tools, ...}}` says the same as its keys one level up."""
    inner = dict(value["huggingface"])
    enabled = inner.pop("enabled", True)
    return {**inner, **value, "huggingface": enabled}


def _blacklist(given: Given | None, ids: Collection[str], findings: Findings) -> tuple[tuple[str, str], ...] | None:
    if given is None:
        return None
    value = given.value
    if isinstance(value, dict):
        # {server: [tool, ...]}
        value = [[server, tool] for server, tools in value.items() for tool in _listed(tools)]
    if not isinstance(value, list):
        findings.error(given.at, "must be a list of [server, tool] or 'server/tool'")
        return None
    found: list[tuple[str, str]] = []
    for index, item in enumerate(value):
        at = (*given.at, index)
        pair = _pair(item, ids)
        if pair is None:
            findings.error(at, "must be [server, tool] or 'server/tool'")
            continue
        if not any(fnmatchcase(id, pair[0]) for id in ids):
            findings.warning(at, "names a server that is not in this file; it refuses nothing")
        found.append(pair)
    return tuple(found)


def _listed(tools: Any) -> list[Any]:
    return tools if isinstance(tools, list) and tools else ["*"] if not tools else [tools]


def _pair(item: Any, ids: Collection[str]) -> tuple[str, str] | None:
    if isinstance(item, dict):
        item = [item.get("server"), item.get("tool", item.get("name", "*"))]
    if isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) and part for part in item):
        return item[0], item[1]
    if not isinstance(item, str) or not item:
        return None
    # An id may hold a slash itself, as names of a registry do.
    own = max((id for id in ids if item.startswith(f"{id}/")), key=len, default=None)
    if own is None and item.partition("/")[0].endswith(":"):
        return "*", item  # a URI of any server
    server, slash, name = (own, "/", item[len(own) + 1 :]) if own is not None else item.partition("/")
    return (server, name or "*") if slash else ("*", item)


def _named(model: type[N], given: Given | None, findings: Findings) -> tuple[N, ...] | None:
    """A mapping of names to mappings (a list stands for its `tools`), or a list of mappings with a `name`."""
    if given is None or given.value is None:
        return None
    items: list[tuple[KeyPath, Any, Any]]
    if isinstance(given.value, dict):
        items = [((*given.at, name), name, value) for name, value in given.value.items()]
    elif isinstance(given.value, list):
        items = [
            ((*given.at, index), value.get("name") if isinstance(value, dict) else None, value)
            for index, value in enumerate(given.value)
        ]
    else:
        findings.error(given.at, "must be a mapping of names to lists of tools")
        return None
    found: dict[str, N] = {}
    for at, name, value in items:
        if not isinstance(name, str) or not name:
            findings.error(at, "needs a name, a text")
        elif name in found:
            findings.error(at, f"the name {name!r} is already taken")
        else:
            values = {"tools": value} if isinstance(value, list) else value
            one = read_model(model, {**values, "name": name} if isinstance(values, dict) else values, at, findings)
            if one is not None:
                found[name] = one
    return tuple(found.values())


def _check_profiles(found: Mapping[str, Any], given: Mapping[str, Given], findings: Findings) -> None:
    sets = {one.name for one in found["tool_sets"] or ()}
    for profile in found["profiles"] or ():
        for name in profile.tool_sets:
            if name not in sets:
                known = ", ".join(sorted(sets)) or "none"
                at = (*given["profiles"].at, profile.name, "tool_sets")
                findings.error(at, f"there is no tool set {name!r} in this file (there is: {known})")


def _check_groups(groups: Sequence[ToolGroup], ids: Collection[str], findings: Findings) -> None:
    for group in groups:
        at: KeyPath = ("groups", group.name)
        if group.name == BASIC:
            findings.error(at, "is always there and always on: it has what is in no other group")
        elif not group.name.isprintable():
            findings.error(at, "must be a name without control characters")
        elif _SWITCH.fullmatch(group.name) is None:
            findings.warning(at, "is no name every model can be given: at most 64 letters, digits, '_', '-' and '.'")
        for pattern in group.servers:
            if not any(fnmatchcase(id, pattern) for id in ids):
                findings.warning((*at, "servers"), "names a server that is not in this file")
