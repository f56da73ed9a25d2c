"""The rules at the top of a file that belong to no single policy, as frozen models, and their reader.

All durations are seconds, all sizes bytes. Names of tools are patterns (`*`, `?`, `[...]`) over original names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from mcp_hub.config.extras import Extra, missing
from mcp_hub.config.field_types import After, Duration, SecretStr, Size, ValidationError
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.listen import UnreadLimits
from mcp_hub.config.settings import Exposed, Frozen, KeyReading, RootKey, read_model
from mcp_hub.config.store import StoreSettings
from mcp_hub.security.address_rules import problem_of_entries

SCRAPE_TOOLS = ("scrape", "scrape_website")
"""Usual names of tools that read pages."""


class WebSettings(Frozen):
    """How the hub itself fetches pages: for `builtin: web`, the fallback and the built-in browser."""

    allow_addresses: tuple[str, ...] = ()
    """Private addresses that are allowed: `10.0.0.0/8`, `192.168.1.7`, `wiki.intranet`, `127.0.0.1:8000`."""
    max_bytes: Size = 32 * 1024 * 1024
    """The largest page that is fetched."""
    timeout: Duration = 60.0
    """How long fetching and converting one page may take."""
    max_memory: Size = 2 * 1024**3
    """Memory of one conversion to Markdown, where the system can limit it. Two run at once."""
    docintel_endpoint: str | None = None
    """The endpoint of Azure Document Intelligence for MarkItDown; None: it is not used."""
    javascript: bool = True
    """Whether a page that is empty without JavaScript is opened in a browser."""

    def __post_init__(self) -> None:
        if (problem := problem_of_entries(self.allow_addresses)) is not None:
            raise ValueError(problem)


class OutputStrategy(Frozen):
    """How ToolFormatter describes tools to a model. The hub itself does not talk to models."""

    function_calling: bool = True
    """Whether function calling is used with models that have it."""
    fallback_to_structured_output: bool = True
    """Whether a prompt is used with models that have no function calling."""


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL that begins with http:// or https://")
    return value


def _check_headers(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, secret in value.items():
        text = secret.get_secret_value()
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not text.isprintable() or not text.isascii():
            raise ValueError("has a name or a value that no HTTP header can have")
    return value


class TracingSettings(Frozen):
    """Tracing: spans of calls, sent to a collector by OTLP over HTTP."""

    OFF: ClassVar[Mapping[str, Any]] = {"enabled": False}
    SHORT: ClassVar[Mapping[type, str]] = {str: "endpoint"}

    enabled: bool = True
    """Whether spans are sent."""
    endpoint: Annotated[str, After(_check_url)] = "http://localhost:4318"
    """The URL of the collector. Without a path `/v1/traces` is added."""
    service_name: str | None = None
    """The name of the service in spans; None: the value of OTEL_SERVICE_NAME, else `mcp-hub`."""
    headers: Annotated[dict[str, SecretStr], After(_check_headers)] = msgspec.field(default_factory=dict)
    """Headers for the collector, such as a token."""
    arguments: bool = True
    """Whether spans have redacted, shortened copies of arguments and results."""

    @property
    def traces_url(self) -> str:
        """The URL that spans are sent to."""
        parts = urlsplit(self.endpoint)
        return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else self.endpoint


class SearchSettings(Frozen):
    """The model by which `hub_search` compares meanings."""

    model: str | None = None
    """The directory of a model of static vectors: one `.safetensors` and one `tokenizer.json`; None: wordllama's."""


class ToolSetSettings(Frozen):
    """A named list of tools: `server/tool` patterns, exposed names or original names."""

    name: str
    description: str = ""
    """What the set is for."""
    tools: tuple[str, ...] = ()
    """Its tools: `server/tool` patterns, exposed or original names."""


class ToolGroupSettings(Frozen):
    """Tools that are switched on and off together: `server/tool` patterns, exposed or original names, and servers."""

    name: str
    description: str = ""
    """What the group is for; clients read it before they switch it on."""
    notes: str | None = None
    """How to use the tools. Clients get this text while the group is on."""
    active: bool = False
    """Whether the group is on at the start."""
    tools: tuple[str, ...] = ()
    """Its tools: `server/tool` patterns, exposed or original names."""
    servers: tuple[str, ...] = ()
    """Patterns over the ids of servers."""


class ProfileSettings(Frozen):
    """What one kind of user sees: tool sets and single tools, merged."""

    name: str
    tool_sets: tuple[str, ...] = ()
    """Names of tool sets."""
    tools: tuple[str, ...] = ()
    """Further tools: `server/tool` patterns, exposed or original names."""
    tags: tuple[str, ...] = ()
    """Tags whose tools belong to the profile."""
    confirm: tuple[str, ...] = ()
    """Tools that its users confirm before each call."""
    expose: Exposed | None = None
    """How the tools are listed to its users; None: as the root sets it."""
    output_strategy: OutputStrategy | None = None
    """How ToolFormatter describes its tools to a model; None: as the root sets it."""


class ExposeSettings(Frozen):
    """Which of the tools that a client may call are listed to it. Tools that are not listed can be called too."""

    mode: Exposed = "auto"
    """`all`: all tools; `search`: a few, `hub_search`, `hub_read` and `hub_call`; `code`: a few, with `hub_run` in
    place of `hub_read`; `auto`: all, but a few to a client that is known to need less."""
    budget: Annotated[int, Meta(ge=1)] = 20_000
    """Estimated tokens up to which `auto` lists everything to a known client that shows each tool to its model."""
    always: tuple[str, ...] = ()
    """The tools that are listed to every client: `server/tool` patterns, exposed or original names."""


N = TypeVar("N", bound=Frozen)


BASIC: Final = "basic"
"""The group of all tools without another group."""


_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


WEB_KEYS_OF_FALLBACK: Final = ("docintel_endpoint", "allow_addresses")
"""Keys of `web` that are also accepted below `fallback`."""


def read_root_rules(
    root: Mapping[str, FieldValue],
    ids: Collection[str],
    findings: Findings,
    more_sets: Callable[[Mapping[str, ToolSetSettings]], Iterable[ToolSetSettings]] = lambda own: (),
) -> dict[str, Any]:
    """Reads the fields of a Config whose models are in this module. Keys that the file does not have are absent.

    `more_sets` gets the tool sets of the file by name, and returns those of other files.
    """
    rules: dict[str, Any] = {
        "tool_sets": _named_models(ToolSetSettings, root.get("tool_sets"), findings),
        "profiles": _named_models(ProfileSettings, root.get("profiles"), findings),
        "groups": _named_models(ToolGroupSettings, root.get("groups"), findings),
    }
    sets = rules["tool_sets"] or ()
    rules["tool_sets"] = (*sets, *more_sets({tool_set.name: tool_set for tool_set in sets})) or None
    models: tuple[type[Frozen], ...] = (UnreadLimits, TracingSettings, OutputStrategy, SearchSettings, StoreSettings)
    for name, model in zip(("unread", "tracing", "output_strategy", "search", "store"), models, strict=True):
        if (item := _first(root, name)) is not None:
            rules[name] = read_model(model, item.value, item.at, findings)
    if (web := _web_value(root)) is not None:
        rules["web"] = read_model(WebSettings, web.value, web.at, findings)
    rules["expose"] = _read_expose(root, findings)
    _check_profiles(rules, root, findings)
    _check_groups(rules["groups"] or (), ids, findings)
    if (tracing_rules := rules.get("tracing")) is not None and tracing_rules.enabled:
        warn_if_missing("otel", ("tracing",), findings)
    if rules.get("store") is not None and (reason := missing("store")) is not None:
        findings.error(("store",), reason)
    if rules.get("search") is not None:
        warn_if_missing("search", ("search",), findings)
    return {name: value for name, value in rules.items() if value is not None}


def not_by_default(tools: Iterable[str]) -> tuple[str, ...]:
    """Returns the tools without those that settings about scraping have by default."""
    return tuple(name for name in tools if name not in SCRAPE_TOOLS)


EXPOSE_KEYS: Final = {
    "expose": "mode",
    "expose_budget": "budget",
    "always": "always",
    "expose_always": "always",
}
"""Keys of the root -> fields of ExposeSettings."""


def _read_expose(root: Mapping[str, FieldValue], findings: Findings) -> ExposeSettings | None:
    fields = {field: root[key] for key, field in EXPOSE_KEYS.items() if key in root and root[key].value is not None}
    values = {field: item.value for field, item in fields.items()}
    try:
        return ExposeSettings.model_validate(values) if values else None
    except ValidationError as error:
        for (field, *inner), text in error.errors:
            findings.error((*fields[str(field)].at, *inner), text)
        return None


def read_policy_keys(
    keys: Iterable[RootKey[Any]], root: Mapping[str, FieldValue], reading: KeyReading
) -> dict[str, Any]:
    """Reads the keys of policies. Returns {name: setting} for those that the file has."""
    settings: dict[str, Any] = {}
    for key in keys:
        item = _first(root, *key.names)
        setting = key.read(item, reading) if item is not None else None
        if setting is not None:
            settings[key.name] = setting
    return settings


def _web_value(root: Mapping[str, FieldValue]) -> FieldValue | None:
    """Returns the value of `web`, with those of its keys that were written below `fallback`."""
    web, fallback = _first(root, "web", "scrape"), _first(root, "fallback", "scrape_fallback")
    if fallback is None or not isinstance(fallback.value, dict):
        return web
    fallback_values = {key: fallback.value[key] for key in WEB_KEYS_OF_FALLBACK if key in fallback.value}
    if not fallback_values:
        return web
    web_values = web.value if web is not None and isinstance(web.value, dict) else {}
    return FieldValue({**fallback_values, **web_values}, web.at if web is not None else fallback.at)


def warn_if_missing(extra: Extra, at: KeyPath, findings: Findings) -> None:
    """Warns that a key has no effect if an extra that it needs is not installed."""
    reason = missing(extra)
    if reason is not None:
        findings.warning(at, f"has no effect: {reason}")


def _first(root: Mapping[str, FieldValue], *names: str) -> FieldValue | None:
    return next((root[name] for name in names if name in root and root[name].value is not None), None)


def _named_models(model: type[N], field: FieldValue | None, findings: Findings) -> tuple[N, ...] | None:
    """Reads a mapping of names to mappings (a list stands for `tools`), or a list of mappings with a `name`."""
    if field is None or field.value is None:
        return None
    items: list[tuple[KeyPath, Any, Any]]
    if isinstance(field.value, dict):
        items = [((*field.at, name), name, value) for name, value in field.value.items()]
    elif isinstance(field.value, list):
        items = [
            ((*field.at, index), value.get("name") if isinstance(value, dict) else None, value)
            for index, value in enumerate(field.value)
        ]
    else:
        findings.error(field.at, "must be a mapping of names to lists of tools")
        return None
    models: dict[str, N] = {}
    for at, name, value in items:
        if not isinstance(name, str) or not name:
            findings.error(at, "needs a name, a text")
        elif name in models:
            findings.error(at, f"the name {name!r} is already taken")
        else:
            values = {"tools": value} if isinstance(value, list) else value
            setting = read_model(model, {**values, "name": name} if isinstance(values, dict) else values, at, findings)
            if setting is not None:
                models[name] = setting
    return tuple(models.values())


def _check_profiles(rules: Mapping[str, Any], root: Mapping[str, FieldValue], findings: Findings) -> None:
    sets = {tool_set.name for tool_set in rules["tool_sets"] or ()}
    for profile in rules["profiles"] or ():
        for name in profile.tool_sets:
            if name not in sets:
                names = ", ".join(sorted(sets)) or "none"
                at = (*root["profiles"].at, profile.name, "tool_sets")
                findings.error(at, f"there is no tool set {name!r} in this file (there is: {names})")


def _check_groups(groups: Sequence[ToolGroupSettings], ids: Collection[str], findings: Findings) -> None:
    for group in groups:
        at: KeyPath = ("groups", group.name)
        if group.name == BASIC:
            findings.error(at, "is reserved: it is always on, and has the tools of no other group")
        elif not group.name.isprintable():
            findings.error(at, "must be a name without control characters")
        elif _GROUP_NAME.fullmatch(group.name) is None:
            findings.warning(at, "is not a name that every model accepts: at most 64 letters, digits, '_', '-' and '.'")
        for pattern in group.servers:
            if not any(fnmatchcase(id, pattern) for id in ids):
                findings.warning((*at, "servers"), "names a server that is not in this file")
