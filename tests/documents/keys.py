"""Every key that a configuration may have, as a tree that is read from the models and tables of the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from mcp_hub.config.credentials import OAuthSettings
from mcp_hub.config.dialect import HARMLESS_ROOTS, ROOT_KEYS, ROOTS
from mcp_hub.config.entry_keys import ENTRY_KEYS, NAMES
from mcp_hub.config.entry_rules import HealthSettings, PostProcessStep, ToolRules
from mcp_hub.config.findings import is_remark
from mcp_hub.config.models import Config, Deadlines
from mcp_hub.config.native_reader import KEY_ALIASES, PARAMETER_KEYS, RULE_KEYS, TOOL_KEYS
from mcp_hub.config.root_rules import WEB_KEYS_OF_FALLBACK
from mcp_hub.config.settings import Frozen
from mcp_hub.policy.chain import KEYS

Tree = dict[str, "Tree | None"]
"""Key -> the keys of the mapping that is its value; None: the value has no keys of the hub. ANY stands for any name."""
ANY: Final = "*"


def tree_of(model: type[Frozen]) -> Tree:
    hints = get_type_hints(model, include_extras=True)
    return {name: tree_in(hints[name]) for name in model.model_fields}


def tree_in(hint: Any) -> Tree | None:
    """The keys of values of a type: of a model, or of models by their names."""
    if isinstance(hint, type) and issubclass(hint, Frozen):
        return tree_of(hint)
    inner = [tree for argument in get_args(hint) if (tree := tree_in(argument)) is not None]
    if not inner:
        return None
    by_name = getattr(hint, "__origin__", None) in (dict, tuple)
    return {**inner[0], ANY: inner[0]} if by_name else inner[0]


def tree_of_policies(keys: Any) -> Tree:
    tree: Tree = {}
    for key in keys:
        models = [candidate.default for candidate in (*KEYS.entry, *KEYS.root) if candidate.name == key.name]
        model = next((type(default) for default in models if isinstance(default, Frozen)), None)
        for name in (key.name, *key.spellings):
            tree[name] = tree_of(model) if model is not None else None
    return tree


@cache
def entry_keys() -> Tree:
    """The keys of one server."""
    rules = tree_of(ToolRules)
    rules["postprocess"] = tree_of(PostProcessStep)
    own: Tree = {
        "deadlines": tree_of(Deadlines),
        "tools": {ANY: rules},
        "auth": {**tree_of(OAuthSettings), "type": None},
        "health": tree_of(HealthSettings),
        "postprocess": tree_of(PostProcessStep),
        "roots": {ANY: {"path": None, "mode": None}},
    }
    plain: Tree = {name: own.get(NAMES.get(name, name)) for name in ENTRY_KEYS}
    return plain | tree_of_policies(KEYS.entry)


@cache
def root_keys() -> Tree:
    """The keys at the top of a file."""
    hints = get_type_hints(Config, include_extras=True)
    plain: Tree = {name: tree_in(hints[name]) if name in hints else None for name in ROOT_KEYS | HARMLESS_ROOTS}
    policies = tree_of_policies(KEYS.root)
    guard = policies["guard"]
    assert guard is not None
    guard["huggingface"] = {**guard, "enabled": None}
    for name in ("fallback", "scrape_fallback"):
        policies[name] = {**(policies[name] or {}), **dict.fromkeys(WEB_KEYS_OF_FALLBACK)}
    servers: Tree = {key: {ANY: entry_keys()} for key in ROOTS}
    return plain | policies | servers | {"defaults": entry_keys(), "serverDefaults": entry_keys()}


@cache
def native_keys() -> Tree:
    """The keys of a file of REST endpoints."""
    own: Tree = dict.fromkeys({*TOOL_KEYS, *RULE_KEYS, *KEY_ALIASES, "tools"})
    return own | {"parameters": {ANY: dict.fromkeys(PARAMETER_KEYS)}}


def unknown_in(value: Any, keys: Tree | None, at: str = "") -> Iterator[str]:
    """Yields the paths of keys that do not exist."""
    if keys is None:
        return
    if isinstance(value, list):
        for item in value:
            yield from unknown_in(item, keys.get(ANY, keys) | {"name": None} if ANY in keys else keys, at)
    elif isinstance(value, dict):
        for key, child in value.items():
            name = "on" if key is True else key  # YAML 1.1
            if name in keys and not (ANY in keys and isinstance(child, dict)):
                yield from unknown_in(child, keys[name], f"{at}{name}.")
            elif ANY in keys:
                yield from unknown_in(child, keys[ANY], f"{at}{name}.")
            elif not is_remark(name):
                yield f"{at}{name}"


def leads_to_a_key(path: list[str], keys: Mapping[str, Tree | None] | None) -> bool:
    """Whether a dotted path such as `servers.NAME.breaker.cooldown` names a key."""
    if not path:
        return True
    if keys is None:
        return False
    name, rest = path[0], path[1:]
    if name in keys and leads_to_a_key(rest, keys[name]):
        return True
    return ANY in keys and leads_to_a_key(rest, keys[ANY])


@cache
def all_trees() -> tuple[Tree, ...]:
    """The mappings of all depths, the outermost first."""
    trees: list[Tree] = []

    def add(tree: Tree | None) -> None:
        if tree is not None and tree not in trees:
            trees.append(tree)
            for inner in tree.values():
                add(inner)

    for tree in (root_keys(), entry_keys(), native_keys()):
        add(tree)
    return tuple(trees)


def is_key(name: str) -> bool:
    """Whether some mapping of a configuration has the key."""
    return any(name in tree for tree in all_trees())
