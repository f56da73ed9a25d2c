"""The keys of an entry, and how entries and `defaults` of any dialect are read by the hub's own names of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.dialect import (
    FILTERS,
    HARMLESS,
    RESTRICTIONS,
    TIMEOUTS,
    TRANSPORT_NAMES,
    WITHOUT_EFFECT,
    Dialect,
)
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.field_types import boolean, is_list
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import Findings, KeyPath, is_remark, only_known
from mcp_hub.config.models import Deadlines, Server
from mcp_hub.config.settings import Key, keys_of, restricting
from mcp_hub.config.variables import VariableScope, expand_tree

KEYS: Final[Mapping[str, Key]] = {
    **keys_of(Server),
    **keys_of(EgressSettings),
    "env_file": Key(
        effect="reach", spellings=("envFile",), meaning="A file of `NAME=value` lines; values in `env` win."
    ),
    "env_vars": Key(effect="reach", meaning="names of the hub's variables that the program gets"),
    "env_keys": Key(effect="reach", meaning="the same"),
    "env_http_headers": Key(effect="reach", meaning="for each header, the variable with its value"),
    "api_key": Key(
        effect="reach",
        spellings=("mcp_api_key", "apiKey", "bearerToken"),
        meaning="Short for the header `Authorization: Bearer KEY`.",
    ),
    "api_key_header": Key(
        effect="reach",
        spellings=("mcp_api_key_header",),
        meaning="Another header for `api_key`, such as `X-Api-Key`.",
    ),
    "bearer_token_env_var": Key(effect="reach", meaning="the variable with the bearer token"),
    "auth": Key(
        effect="reach",
        meaning="`oauth`: you sign in with `mcp-hub login`. A mapping sets how. Any other text is a bearer token.",
    ),
    "disabled": Key(effect="offer", keeps_empty=True, meaning="`true` is `enabled: false`"),
    "preset": Key(
        effect="reach",
        restricts=True,
        spellings=("presets", "preset_kwargs", "preset_kwargs_mapping"),
        meaning="For each tool, the arguments that it always gets. Callers neither see nor set them.",
    ),
    "toolDescriptionOverrides": Key(effect="offer", meaning="for each tool, its description"),
}
"""The keys of an entry that belong to no policy: those of fields, and those that only stand for others."""


def _spelled(keys: Mapping[str, Key]) -> dict[str, str]:
    return {spelling: name for name, key in keys.items() for spelling in (name, *key.spellings)}


NAMES: Final[Mapping[str, str]] = _spelled(KEYS)
"""Key as written -> name of the key."""
OFFERS: Final = frozenset(_spelled({name: key for name, key in KEYS.items() if key.effect == "offer"}))
"""Keys, in all spellings, that only decide what is offered, and when."""
SHOWN: Final = frozenset(_spelled({name: key for name, key in KEYS.items() if key.effect != "reach"}))
"""Keys, in all spellings, that have no secrets."""
ENTRY_KEYS: Final = frozenset({*TIMEOUTS, *NAMES, *FILTERS, *RESTRICTIONS, *WITHOUT_EFFECT, *HARMLESS})
IN_DEFAULTS: Final = frozenset({*TIMEOUTS, *_spelled({name: key for name, key in KEYS.items() if key.in_defaults})})
"""Keys, in all spellings, that `defaults` may set. Not env and headers, as a secret belongs to one entry."""
_RULES: Final = frozenset(_spelled({name: key for name, key in KEYS.items() if key.restricts}))


def canonical_values(
    values: Mapping[str, Any], at: KeyPath, dialect: Dialect, findings: Findings
) -> dict[str, FieldValue]:
    """Returns `values` by canonical key. Deadlines of every spelling become `deadlines.call` and so on.

    An unknown key is a warning, two keys that contradict each other are an error.
    """
    fields: dict[str, FieldValue] = {}
    policy_keys = dialect.keys.entry_names
    for key, value in values.items():
        key_path = (*at, key)
        if key == "deadlines":
            for name, field in _read_deadlines(value, key_path, findings).items():
                _add_value(fields, name, field, findings)
        elif key in policy_keys:
            _add_value(fields, policy_keys[key], FieldValue(value, key_path), findings)
        elif key in TIMEOUTS:
            _add_value(fields, *_timeout(key, value, key_path, dialect, findings), findings)
        elif key == "available_tools" and dialect.is_goose and not value:
            continue
        elif key in FILTERS:
            _add_value(fields, f"filters.{FILTERS[key]}", FieldValue(value, key_path), findings)
        elif key == "tools" and not isinstance(value, dict):
            _add_value(fields, "filters.tools.allow", FieldValue(value, key_path), findings)
        elif key in NAMES:
            _add_value(fields, NAMES[key], FieldValue(_hub_value(NAMES[key], key, value), key_path), findings)
        elif key in WITHOUT_EFFECT:
            if value:
                findings.warning(key_path, f"has no effect: {WITHOUT_EFFECT[key]}")
        elif key not in ENTRY_KEYS and not is_remark(key):
            known_keys = {"timeout", *NAMES, *FILTERS, *policy_keys}
            findings.unknown(key_path, known_keys, {*_RULES, *FILTERS, *restricting(dialect.keys.entry)})
    return fields


def read_defaults(root: Mapping[str, Any], dialect: Dialect, findings: Findings) -> dict[str, FieldValue]:
    """Returns the values of `defaults` (1MCP: `serverDefaults`) by canonical key."""
    defaults: dict[str, FieldValue] = {}
    known_keys = IN_DEFAULTS | dialect.keys.defaults
    rules = {*_RULES, *restricting(dialect.keys.entry)} & known_keys
    for key in ("serverDefaults", "defaults"):
        values = root.get(key)
        if isinstance(values, dict):
            known_values = only_known(values, known_keys, (key,), findings, rules)
            defaults |= canonical_values(known_values, (key,), dialect, findings)
        elif values is not None:
            findings.error((key,), "must be a mapping of keys to values")
    return defaults


def restriction(values: Mapping[str, Any], policy_keys: Container[str], scope: VariableScope) -> CodedText | None:
    """Returns why the entry must stay off, if it has a restriction that no policy keeps.

    Serving it anyway would silently widen what can be reached. So an unclear value counts as `true`, as a variable
    without a value. `values` are as they are written, `policy_keys` those that policies implement.
    """
    for key, label in RESTRICTIONS.items():
        value = values.get(key)
        value = value.get("enabled") if isinstance(value, dict) else value
        is_given = key not in policy_keys and value not in (None, "")
        if is_given and boolean(expand_tree(value, scope, ())[0]) is not False:
            return CodedText(f"{label} ('{key}') cannot be enforced by the hub", codes.RESTRICTION_FOREIGN)
    return None


def _hub_value(name: str, key: str, value: Any) -> Any:
    """Returns the hub's value of the key `name`: None for an empty one, and for MCPHub's `perSessionClient: false`.

    A list that restricts is never absent: `allow:` without a value allows nothing.
    """
    own = KEYS[name]
    if value is None and own.restricts and name in Server.model_fields and is_list(Server.model_fields[name].type):
        return []
    if not (own.keeps_empty or own.restricts) and (value in ({}, []) or (isinstance(value, str) and not value.strip())):
        return None
    if key == "perSessionClient" and (is_own := boolean(value)) is not None:
        return "client" if is_own else None
    return value


def _read_deadlines(value: Any, at: KeyPath, findings: Findings) -> dict[str, FieldValue]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        findings.error(at, f"must be a mapping with {', '.join(Deadlines.model_fields)}")
        return {}
    deadlines = only_known(value, Deadlines.model_fields, at, findings)
    return {f"deadlines.{name}": FieldValue(inner, (*at, name)) for name, inner in deadlines.items()}


def _timeout(key: str, value: Any, at: KeyPath, dialect: Dialect, findings: Findings) -> tuple[str, FieldValue]:
    deadline, unit = TIMEOUTS[key]
    if unit is None:
        unit = dialect.timeout_unit(value)
        deadline = "list" if dialect.timeout_of_list else deadline
        if unit != 1.0 and not dialect.counts_milliseconds:
            findings.warning(at, "is read as milliseconds; write it with its unit, such as '90s' or '2h'")
    return f"deadlines.{deadline}", FieldValue(value, at, unit)


def _add_value(fields: dict[str, FieldValue], name: str, field: FieldValue, findings: Findings) -> None:
    existing = fields.setdefault(name, field)
    if existing.value is None:
        fields[name] = field
    elif field.value is not None and existing is not field and _comparable(name, existing) != _comparable(name, field):
        findings.error(field.at, f"says the same thing as '{existing.at[-1]}' in another way; keep one of them")


def _comparable(name: str, field: FieldValue) -> Any:
    if name == "transport" and isinstance(field.value, str):
        return TRANSPORT_NAMES.get(field.value.lower(), field.value)
    return field.value
