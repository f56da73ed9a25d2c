"""Translates entries of clients into the hub's own keys, as in `servers.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mcp_hub.config.dialect import FILTERS, RESTRICTIONS, Dialect
from mcp_hub.config.entry_keys import canonical_values
from mcp_hub.config.field_types import boolean
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import Findings
from mcp_hub.config.models import Server
from mcp_hub.config.raw_entries import RawEntry
from mcp_hub.config.variables import VariableScope

_ORDER: Final = ("command", "args", "env", "env_file", "cwd", "url", "transport", "headers")
"""Keys of an entry in the order in which a person would write them."""
FILTER_KEYS: Final = {half: key for key, half in reversed(FILTERS.items())}
"""Half of a filter -> the hub's own key of it, which is the first of all."""
_BARE: Final = re.compile(r"\$\$\{|\$\{|\$([A-Za-z_][A-Za-z0-9_]*)")
_FILE: Final = re.compile(r"(?<!\$)\{file:([^{}]*)\}")
_FILE_VARIABLE: Final = re.compile(r"(?<!\$)\$\{file:([^{}]*)\}")
_OS_ENVIRON: Final = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")


def own_values(
    raw: RawEntry,
    dialect: Dialect,
    scope: VariableScope,
    server: Server | None,
    defaults: Mapping[str, FieldValue],
) -> dict[str, Any]:
    """Returns an entry, with the defaults of its file, in the hub's own keys and forms of variables.

    Variables are not expanded. `server` is the server of the entry; None if the entry is not valid.
    """
    fields = canonical_values(raw.values, raw.at, dialect, Findings(lambda at: ("", None)))
    fields |= {name: item for name, item in defaults.items() if name not in fields}
    _unfold_command(fields)
    entry: dict[str, Any] = {}
    for name, item in fields.items():
        _add(entry, name, item, dialect, scope)
    if server is not None and server.url and server.transport not in (None, "auto"):
        entry["transport"] = server.transport
    elif "url" not in entry:
        entry.pop("transport", None)
    if boolean(entry.pop("disabled", None)) or raw.id in dialect.off:
        entry["enabled"] = False
    if boolean(entry.get("enabled")):
        del entry["enabled"]
    if refused := dialect.refused.get(raw.id):
        entry["disable_tools"] = [*entry.get("disable_tools", ()), *refused]
    allowed, denied = entry.get("enable_tools"), entry.get("disable_tools")
    if allowed == ["*"]:
        del entry["enable_tools"]
    elif isinstance(allowed, list) and isinstance(denied, list):
        # The hub refuses a name in both lists; in clients that have both, the denial wins.
        entry["enable_tools"] = [name for name in allowed if name not in denied]
    entry |= {key: raw.values[key] for key in RESTRICTIONS if key in raw.values}
    return {key: entry[key] for key in (*_ORDER, *(key for key in entry if key not in _ORDER)) if key in entry}


def _unfold_command(fields: dict[str, FieldValue]) -> None:
    """Brings `command` and `args` into the hub's form: opencode has both in a list, an older Zed in a mapping."""
    command = fields.get("command")
    if command is None:
        return
    if isinstance(command.value, list) and command.value:
        args = fields["args"].value if "args" in fields else []
        argv = [*command.value, *(args if isinstance(args, list) else [])]
        fields["command"] = FieldValue(argv[0], command.at)
        fields["args"] = FieldValue(argv[1:], command.at)
    elif isinstance(command.value, dict):
        del fields["command"]
        for key, name in (("path", "command"), ("args", "args"), ("env", "env")):
            if key in command.value:
                fields[name] = FieldValue(command.value[key], command.at)


def _add(entry: dict[str, Any], name: str, item: FieldValue, dialect: Dialect, scope: VariableScope) -> None:
    kind, _, subkey = name.partition(".")
    if item.value is None or item.value in ({}, []):
        return
    if kind == "deadlines":
        value = item.value
        if isinstance(value, int | float) and not isinstance(value, bool) and item.unit != 1.0:
            value = value * item.unit
            value = int(value) if value == int(value) else value
        entry.setdefault("deadlines", {})[subkey] = value
    elif kind == "filters":
        entry[FILTER_KEYS[subkey]] = item.value
    elif name == "toolDescriptionOverrides" and isinstance(item.value, dict):
        tools = entry.setdefault("tools", {})
        for tool, text in item.value.items():
            tools[tool] = {"description": text, **tools.get(tool, {})}
    elif name == "tools" and isinstance(item.value, dict):
        tools = entry.setdefault("tools", {})
        for tool, rules in _texts(item.value, scope, bare=scope.bare_names).items():
            tools[tool] = {**tools.get(tool, {}), **rules} if isinstance(rules, dict) else rules
    elif name == "env" and isinstance(item.value, list):
        # As 1MCP writes it: NAME=value, and NAME alone for a variable of the hub.
        pairs = [assignment.partition("=") for assignment in item.value if isinstance(assignment, str)]
        if names := [key for key, equals, _ in pairs if not equals]:
            entry["env_vars"] = names
        if values := {key: _texts(text, scope, bare=scope.bare_names) for key, equals, text in pairs if equals}:
            entry["env"] = values
    else:
        bare = scope.bare_names or (dialect.is_goose and name == "headers")
        entry[name] = _texts(item.value, scope, bare=bare, path=name in ("cwd", "env_file"))


def _texts(value: Any, scope: VariableScope, *, bare: bool, path: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _texts(member, scope, bare=bare) for key, member in value.items()}
    if isinstance(value, list):
        return [_texts(member, scope, bare=bare) for member in value]
    if not isinstance(value, str):
        return value
    if scope.os_environ and (environ_match := _OS_ENVIRON.fullmatch(value)):
        return f"${{{environ_match[1]}}}"
    if bare:
        value = _BARE.sub(lambda match: f"${{{match[1]}}}" if match[1] else match[0], value)
    if scope.file_braces:
        value = _FILE.sub(lambda match: f"${{file:{scope.path(match[1])}}}", value)
    value = _FILE_VARIABLE.sub(lambda match: f"${{file:{scope.path(match[1])}}}", value)
    if (workspace := scope.workspace) is not None:
        value = value.replace("${workspaceFolder}", str(workspace))
        value = value.replace("${workspaceFolderBasename}", workspace.name)
    return str(scope.path(value)) if path and not value.startswith("$") else value
