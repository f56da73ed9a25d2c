"""The keys of a file and of an entry, for the pages of settings: by subject, with what each means."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, Final

from mcp_hub import policy
from mcp_hub.config import entry_keys
from mcp_hub.config.dialect import FILTERS, TIMEOUTS
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import ExposeSettings
from mcp_hub.config.settings import EntryKey, Frozen, RootKey
from mcp_hub.policy.chain import KEYS
from tests.documents import reference_settings as settings
from tests.syntax import parsed_text

OF_ROOT: Final[Mapping[str, Sequence[str]]] = {
    "Servers and tools": (
        "servers", "defaults", "tools_dir", "skills", "on_conflict", "list_wait", "cache_dir", "max_hub_depth", "watch",
    ),
    "What may be used": (
        "blacklist", "tool_sets", "profiles", "groups", "group_scope", "state_file", "guard", "confirm", "flows",
        "pins", "screen",
    ),
    "What clients are listed": (
        "expose", "expose_budget", "expose_always", "schemas", "meta_tools", "search", "code_mode",
        "output_strategy",
    ),
    "The network": ("listen", "unread", "store", "proxy", "web", "fallback", "token_store", "token_dir"),
    "Records and traces": ("call_log", "tracing"),
}  # fmt: skip
"""Subject -> the keys at the top of a file."""
OF_ENTRY: Final[Mapping[str, Sequence[str]]] = {
    "A program": ("command", "args", "env", "env_file", "cwd"),
    "An address": (
        "url", "transport", "headers", "api_key", "api_key_header", "auth", "proxy", "ca", "client_cert", "client_key",
        "cookies",
    ),
    "Something of the hub's own": (
        "tools_dir", "builtin", "profile", "headless", "executable", "roots", "policy", "allow_over_network",
    ),
    "When it runs, and for whom": (
        "enabled", "required", "lazy", "session", "max_sessions", "idle", "era", "allow", "max_questions",
        "keep_catalog", "max_frame", "health", "deadlines", "timeout", "idle_timeout",
    ),
    "Its tools": (
        "namespace", "enable_tools", "disable_tools", "enable_resources", "disable_resources", "enable_prompts",
        "disable_prompts", "include_tags", "exclude_tags", "tags", "preset", "tools", "descriptions", "schemas",
        "confirm", "labels", "pins", "screen",
    ),
    "Its calls": (
        "validate_arguments", "max_result_bytes", "max_result_tokens", "postprocess", "retry", "breaker", "limits",
    ),
}  # fmt: skip
"""Subject -> the keys of an entry."""
OF_OTHER_PROGRAMS: Final[Mapping[str, str]] = {
    name: key.meaning for name, key in entry_keys.KEYS.items() if key.meaning and name not in chain(*OF_ENTRY.values())
}
"""Keys of an entry that another key stands for here -> what each means."""
KEYS_OF_ENTRY: Final = tuple(
    dict.fromkeys(
        name
        for name in chain(*OF_ENTRY.values(), entry_keys.KEYS, (key.name for key in KEYS.entry))
        if name not in OF_OTHER_PROGRAMS
    )
)
"""The keys of an entry, first those that stand below a subject."""
DEFAULTED: Final[Mapping[str, str]] = {
    "expose": "`auto`",
    "expose_budget": "`20000`",
    "tools_dir": "`tools` beside the file, its folders only",
    "cache_dir": "the user's cache directory",
    "proxy": "`HTTPS_PROXY` and its like",
    "token_dir": "in the user's data directory",
    "guard": "on",
    "fallback": "on",
    "call_log": "to stderr",
    "tracing": "`off`",
}
"""Key of the root -> its default, where the model does not show it."""
DEFAULTED_IN_ENTRY: Final[Mapping[str, str]] = {
    "namespace": "the entry's name",
    "transport": "inferred",
    "cwd": "that of the hub",
    "proxy": "that of the root",
    "max_sessions": "`64`; `8` for a browser",
    "session": "`shared`; `client` for browsers",
    "validate_arguments": "`lenient`; `strict` for own tools",
    "timeout": "`20m`",
}
"""Key of an entry -> its default, where the model does not show it."""
DEFAULTED_KEYS: Final = tuple(
    f"`{key}`" for key in KEYS_OF_ENTRY if key in entry_keys.IN_DEFAULTS or key in KEYS.defaults
)
"""The keys that `defaults` may have, as code."""
MEANINGS: Final[Mapping[str, str]] = {
    "servers": "The entries by name: [settings of a server](settings-servers.md). Of equal names the first counts.",
    "tools_dir": "The directory of Python files with tools and of its folders. The tools become the server `local`.",
    "skills": "Directories that each contain a `SKILL.md`. The hub serves their files as resources.",
    "defaults": f"Values for every server whose entry does not set them: {', '.join(DEFAULTED_KEYS)}.",
    "expose": settings.meanings(ExposeSettings)["mode"],
    "expose_budget": settings.meanings(ExposeSettings)["budget"],
    "expose_always": settings.meanings(ExposeSettings)["always"],
    "listen": "The listener for a network: [its settings](settings-listen.md), or a text `HOST:PORT`.",
}
"""Key of the root that no model has, or that users read of otherwise -> its meaning."""
MEANINGS_OF_ENTRY: Final[Mapping[str, str]] = {
    **{name: key.meaning for name, key in entry_keys.KEYS.items() if key.meaning},
    "timeout": "How long one call may take in total: short for `deadlines.call`.",
    "idle_timeout": "How long one call may take without progress: short for `deadlines.idle`.",
    "enable_tools": "Patterns over the names of its tools that may be used; if not set, all.",
    "disable_tools": "Patterns over the names of tools that may not be used.",
    "enable_resources": "Patterns over the URIs of resources that may be read; if not set, all.",
    "disable_resources": "Patterns over the URIs of resources that may not be read.",
    "enable_prompts": "Patterns over the names of prompts that may be used; if not set, all.",
    "disable_prompts": "Patterns over the names of prompts that may not be used.",
    "include_tags": "Only tools with one of these tags may be used; if not set, all.",
    "exclude_tags": "Tools with one of these tags may not be used.",
}
"""Key of an entry that no model has -> its meaning."""
SEE_ALSO: Final[Mapping[str, str]] = {
    "blacklist": "rules.md#allow-and-block-tools", "tool_sets": "rules.md#allow-and-block-tools",
    "profiles": "rules.md#allow-and-block-tools", "groups": "groups.md", "group_scope": "groups.md",
    "state_file": "groups.md#another-configuration",
    "guard": "rules.md#the-guard-hugging-face-datasets-and-urls-of-yours",
    "confirm": "trust.md#confirm-ask-a-person-before-a-call",
    "flows": "trust.md#flows-limit-what-one-session-may-combine",
    "labels": "trust.md#flows-limit-what-one-session-may-combine", "pins": "trust.md#pins-detect-changed-definitions",
    "screen": "trust.md#screen-find-suspicious-texts", "expose": "context.md#what-is-listed",
    "expose_budget": "context.md#what-is-listed", "expose_always": "context.md#what-is-listed",
    "meta_tools": "groups.md#clients-that-read-the-list-only-once",
    "search": "context.md#finding-tools", "code_mode": "context.md#programs-that-call-tools",
    "output_strategy": "formats.md#toolformatter", "max_hub_depth": "configuration.md#hubs-behind-hubs",
    "tools_dir": "tools.md", "skills": "tools.md#skills", "proxy": "networks.md#behind-a-companys-proxy",
    "web": "browser.md#pages", "fallback": "browser.md#pages", "token_store": "credentials.md#where-tokens-are-kept",
    "token_dir": "credentials.md#where-tokens-are-kept", "call_log": "observability.md#records-of-calls",
    "tracing": "observability.md#spans", "auth": "credentials.md#signing-in",
    "ca": "networks.md#certificates-of-your-own",
    "client_cert": "networks.md#certificates-of-your-own", "client_key": "networks.md#certificates-of-your-own",
    "cookies": "networks.md#a-balancer-that-sets-cookies", "builtin": "builtins.md",
    "roots": "builtins.md#files-below-roots",
    "policy": "builtins.md#raw-text-files", "profile": "browser.md#a-browser", "headless": "browser.md#a-browser",
    "executable": "browser.md#a-browser", "allow": "protocol.md#requests-of-servers-to-clients",
    "max_questions": "protocol.md#requests-of-servers-to-clients", "era": "protocol.md#a-server-that-speaks-both-eras",
    "preset": "rules.md#names-descriptions-and-preset-arguments",
    "descriptions": "context.md#smaller-lists", "schemas": "context.md#smaller-lists",
    "Config.schemas": "clients.md#schemas-that-providers-take",
    "validate_arguments": "rules.md#argument-validation", "max_result_bytes": "rules.md#results",
    "max_result_tokens": "context.md#shorter-results", "postprocess": "rules.md#results",
    "retry": "rules.md#deadlines-retries-and-limits", "breaker": "rules.md#deadlines-retries-and-limits",
    "limits": "rules.md#deadlines-retries-and-limits",
}  # fmt: skip
"""Key -> the page that shows it at work."""
HEAD: Final = ("key", "default", "meaning")

Row = tuple[str, str, str]


def subjects(placed: Mapping[str, Sequence[str]], names: Iterable[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields each subject with its keys; the keys that stand below none are the last one."""
    yield from placed.items()
    remaining = [name for name in names if name not in chain(*placed.values())]
    if remaining:
        yield "Other rules", remaining


def of_root() -> Iterator[tuple[str, list[Row]]]:
    """Yields each subject of the top of a file with its rows: key, default, meaning."""
    for subject, names in subjects(OF_ROOT, [key.name for key in KEYS.root]):
        yield subject, [row(name, Config, KEYS.root, MEANINGS, DEFAULTED) for name in names]


def of_entry() -> Iterator[tuple[str, list[Row]]]:
    """Yields each subject of an entry with its rows: key, default, meaning."""
    for subject, names in subjects(OF_ENTRY, KEYS_OF_ENTRY):
        yield subject, [row(name, Server, KEYS.entry, MEANINGS_OF_ENTRY, DEFAULTED_IN_ENTRY) for name in names]


def row(
    name: str,
    model: type[Frozen],
    keys: Sequence[EntryKey[Any] | RootKey[Any]],
    meanings: Mapping[str, str],
    defaults: Mapping[str, str],
) -> Row:
    """Returns the row of one key."""
    holder = EgressSettings if model is Server and name in EgressSettings.model_fields else model
    field, hint = holder.model_fields.get(name), settings.hints_of(holder).get(name)
    key = next((key for key in keys if key.name == name), None)
    default: Any = key.default if key is not None else field.default if field is not None else None
    meaning = meanings.get(name) or (meaning_of_key(key) if key else settings.meanings(holder).get(name))
    path, own = mapping_of(name, default)
    meaning = meaning or (inspect.getdoc(own) if own is not None else None)
    assert meaning, f"nothing says what {name!r} means: write a docstring below the key, or of the model of its value"
    default_text = defaults.get(name)
    if default_text is None:
        default_text = settings.default_word(field, hint) if field is not None else settings.value_word(default)
    page = SEE_ALSO.get(f"{model.__name__}.{name}", SEE_ALSO.get(name))
    link = f" See [{page.partition('.')[0]}](../{page})." if page is not None else ""
    label = f"`{name}`" if own is None else f"[`{name}`]({settings.page_of(path)}#{settings.anchor(path)})"
    return label, default_text, settings.said_to_users(meaning) + link


def mapping_of(name: str, default: Any) -> tuple[str, type[Frozen] | None]:
    """Returns the path and the model of the mapping that is the value of a key; None if its value is no mapping."""
    for model, path in settings.paths_of_models().items():
        if (isinstance(default, model) and path == name) or path == f"{name}.NAME":
            return path, model
    return "", None


@cache
def docstrings() -> dict[int, str]:
    """Returns the docstring below each key of a policy, by the id of the key."""
    texts: dict[int, str] = {}
    for module in [module for name, module in sys.modules.items() if name.startswith(f"{policy.__name__}.")]:
        body = parsed_text(inspect.getsource(module)).body
        for assigned, statement in pairwise(body):
            if isinstance(assigned, ast.AnnAssign) and isinstance(assigned.target, ast.Name):
                policy_key = getattr(module, assigned.target.id)
                if isinstance(policy_key, EntryKey | RootKey) and isinstance(statement, ast.Expr):
                    texts[id(policy_key)] = str(ast.literal_eval(statement.value))
    return texts


def meaning_of_key(key: EntryKey[Any] | RootKey[Any]) -> str | None:
    """Returns the docstring of a key in the module of its policy; None if only its model has one."""
    return docstrings().get(id(key))


def spellings() -> Iterator[tuple[str, str]]:
    """Yields each key of an entry that has other spellings, and these."""
    halves = {half: key for key, half in FILTERS.items() if key in KEYS_OF_ENTRY}
    written: dict[str, list[str]] = {}
    deadlines = {"call": "timeout", "connect": "deadlines.connect", "idle": "idle_timeout"}
    pairs = [
        *entry_keys.NAMES.items(),
        *((key, halves[half]) for key, half in FILTERS.items()),
        *((key, deadlines[deadline]) for key, (deadline, _) in TIMEOUTS.items()),
    ]
    for spelling, name in pairs:
        if spelling != name:
            written.setdefault(name, []).append(spelling)
    for name, variants in written.items():
        if name.partition(".")[0] in KEYS_OF_ENTRY:
            yield f"`{name}`", ", ".join(f"`{variant}`" for variant in variants)
