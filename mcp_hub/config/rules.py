"""The rules a file sets, as frozen models: what may be reached, how it looks, how hard the hub tries, what it records.

All durations are seconds, all sizes bytes. Names of tools are patterns (`*`, `?`, `[...]`) over original names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from mcp_hub.config.checks import After
from mcp_hub.config.frozen import Frozen
from mcp_hub.config.quantities import Duration, OptionalDuration, Size
from mcp_hub.config.secret_str import SecretStr
from mcp_hub.security.screening import MAX_DESCRIPTION, SAYS

HF_MESSAGE = (
    "You are trying to scrape a Hugging Face dataset for answers, please do not use the scrape tool for this purpose."
)
SCRAPE_TOOLS = ("scrape", "scrape_website")

Validation = Literal["strict", "lenient", "off"]
PinMode = Literal["off", "warn", "enforce"]
ScreenMode = Literal["off", "flag", "quarantine"]
Label = Literal["reads_private", "reads_untrusted", "writes_external"]
FlowMode = Literal["off", "warn", "refuse"]
FailureClass = Literal["transport", "timeout", "tool_error"]


class PostProcess(Frozen):
    """One step that changes a result: a built-in by its name, or `module:function`."""

    step: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    on_error: Literal["fail", "keep"] = "fail"
    """`fail`: the call ends in `tool_error`, for the step may have been there to hide something."""


def _is_a_schema(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    if value.keys() - {"properties", "required", "$defs"} or not isinstance(value.get("properties"), dict):
        raise ValueError("must be a mapping with properties, and perhaps required and $defs")
    if not all(isinstance(one, dict | bool) for one in value["properties"].values()):
        raise ValueError("every property must be a JSON schema: a mapping, such as {type: string}")
    required = value.get("required", [])
    if not isinstance(required, list) or not all(name in value["properties"] for name in required):
        raise ValueError("required must be a list of names of its properties")
    if not isinstance(value.get("$defs", {}), dict):
        raise ValueError("$defs must be a mapping of names to JSON schemas")
    return value


class ToolRules(Frozen):
    """What is special about some tools of one upstream; None and empty: nothing."""

    NOT_SHOWN: ClassVar[frozenset[str]] = frozenset({"preset", "in_program"})

    name: str | None = None
    """The name clients see instead, before the namespace is put in front."""
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    preset: dict[str, Any] = msgspec.field(default_factory=dict)
    """Argument, or path of one (`options.limit`, `items[].token`) -> the value that is always sent."""
    extend_schema: Annotated[dict[str, Any] | None, After(_is_a_schema)] = None
    """Further arguments: `properties`, `required` and `$defs` of a JSON schema."""
    strip_titles: bool = False
    """Whether the titles in its input schema are left out."""
    timeout: Duration | None = None
    idle_timeout: Duration | None = None
    validate_arguments: Validation | None = None
    max_result_bytes: Size | None = None
    postprocess: tuple[PostProcess, ...] = ()
    retry: bool | None = None
    """Whether a call may be repeated though it may have been executed; None: as the tool's annotations say."""
    input_schema: dict[str, Any] | None = None
    """Of a program that wrote it by hand: what is listed in the place of the tool's own. Never in a file."""
    in_program: Any = None
    """What a program of the user's does with arguments and results, an `InProgram`. Never in a file."""


class Filter(Frozen):
    """Names of one kind that may be reached: all of `allow` (None: all there are) but those in `deny`."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    allow_tags: tuple[str, ...] | None = None
    """Only what has one of these tags."""
    deny_tags: tuple[str, ...] = ()


class Retry(Frozen):
    """Repeating what failed, only where that cannot do harm."""

    attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    """In all, the first one included."""
    backoff: Duration = 0.5
    """The longest wait before the second attempt; it doubles, and the real one is drawn between zero and it."""
    max_backoff: Duration = 8.0
    tools: tuple[str, ...] = ()
    """Tools that may be repeated though their annotations do not say so."""
    budget: Annotated[float, Meta(ge=0, le=1)] = 0.2
    """Retries may be this share of the calls, so that they do not finish off a server in trouble."""


class Breaker(Frozen):
    """Not asking, for a while, an upstream whose transport keeps failing."""

    failures: Annotated[int, Meta(ge=0)] = 5
    """In a row, until it opens; 0: never."""
    cooldown: Duration = 30.0


class Health(Frozen):
    """How the hub notices that a connection is dead or that lists have changed; None (`off`): not at all."""

    ping: OptionalDuration = 30.0
    """Silence after which an idle server of the handshake era is asked whether it lives."""
    relist: OptionalDuration = 300.0
    """How often the lists of a server are asked for that cannot be relied on to tell of changes."""
    unlist_after: OptionalDuration = 60.0
    """How long the tools of a server that is away stay listed."""


class Limits(Frozen):
    """Calls at once and per time; beyond them the answer is `overloaded`."""

    at_once: Annotated[int, Meta(ge=1)] = 64
    per_caller: Annotated[int, Meta(ge=1)] | None = None
    """Of `at_once`, how many one caller may have."""
    waiting: Annotated[int, Meta(ge=0)] = 1024
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Calls per second, all callers together; as many may come at once."""
    rate_per_caller: Annotated[float, Meta(gt=0)] | None = None


class Guard(Frozen):
    """URLs that tools must not be used for."""

    huggingface: bool = True
    """Datasets and spaces of Hugging Face."""
    tools: tuple[str, ...] = SCRAPE_TOOLS
    """Guarded tools, as `tool` or `server/tool`. All tools of a browser are guarded as well."""
    message: str = HF_MESSAGE
    deny_urls: tuple[str, ...] = ()
    """More URLs: `host`, `host/path`, `*.host/path*`."""
    allow_urls: tuple[str, ...] = ()
    """URLs that are let through whatever else says; same form."""
    filter_results: tuple[str, ...] = ()
    """Tools from whose JSON results guarded links are dropped, as `tool` or `server/tool`."""


class Web(Frozen):
    """How the hub itself fetches pages: for `builtin: web`, the fallback and the built-in browser."""

    allow_addresses: tuple[str, ...] = ()
    """Private targets that may be reached: `10.0.0.0/8`, `192.168.1.7`, `wiki.intranet`, `127.0.0.1:8000`."""
    max_bytes: Size = 32 * 1024 * 1024
    timeout: Duration = 60.0
    """Fetching and converting one page."""
    max_memory: Size = 2 * 1024**3
    """Of one conversion to Markdown, where the system can enforce it; two run at once."""
    docintel_endpoint: str | None = None
    """Azure Document Intelligence for MarkItDown; not passed when unset."""
    javascript: bool = True
    """Whether a page that holds nothing without JavaScript is opened in a browser."""


class Fallback(Frozen):
    """Fetching the page ourselves when an upstream's scrape fails."""

    tools: tuple[str, ...] = SCRAPE_TOOLS
    on: tuple[FailureClass, ...] = ("transport", "timeout")
    timeout: Duration = 60.0
    """The most an attempt of such a tool may take, so that time is left."""


class CallLog(Frozen):
    """One line per call."""

    enabled: bool = True
    file: Path | None = None
    """Where the lines go besides stderr."""
    stderr: bool = True
    arguments: bool = True
    """Whether a redacted, shortened copy of the arguments is in it."""


class OutputStrategy(Frozen):
    """How a model is told of tools, for ToolFormatter; the hub itself speaks to no model."""

    function_calling: bool = True
    """Whether a model's own function calling is used where it has it."""
    fallback_to_structured_output: bool = True
    """Whether a prompt takes its place where it has none."""


def _is_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL that begins with http:// or https://")
    return value


def _can_be_sent(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, secret in value.items():
        text = secret.get_secret_value()
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not text.isprintable() or not text.isascii():
            raise ValueError("holds a header that HTTP cannot say")
    return value


class Tracing(Frozen):
    """Spans of calls, sent to a collector by OTLP over HTTP."""

    enabled: bool = True
    endpoint: Annotated[str, After(_is_url)] = "http://localhost:4318"
    """Of the collector; without a path that of traces, `/v1/traces`, is added."""
    service_name: str | None = None
    """None: what OTEL_SERVICE_NAME says, else `mcp-hub`."""
    headers: Annotated[dict[str, SecretStr], After(_can_be_sent)] = msgspec.field(default_factory=dict)
    """What the collector wants to be sent, a token say."""
    arguments: bool = True
    """Whether redacted, shortened copies of arguments and results are in the spans."""

    @property
    def traces_url(self) -> str:
        """Where spans are sent."""
        parts = urlsplit(self.endpoint)
        return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else self.endpoint


class Pins(Frozen):
    """What servers list, held against what was recorded by `mcp-hub pin`."""

    mode: PinMode = "off"
    """`warn`: what differs is told of; `enforce`: it is hidden and refused until it is pinned."""
    file: Path | None = None
    """Where the record is; None: beside the configuration, `servers.pins.json` for `servers.yaml`."""


class Flows(Frozen):
    """What one session may combine of what servers are labelled with."""

    mode: FlowMode = "off"
    """`refuse`: the call that would complete the three labels; `warn`: the record of each call says them."""
    window: Duration = 3600.0
    """How long a principal of the modern era, who has no sessions, has to be quiet to begin anew."""


def _known(rules: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [rule for rule in rules if rule not in SAYS]
    if unknown:
        raise ValueError(f"must be names of rules: {', '.join(SAYS)}")
    return rules


class Screen(Frozen):
    """Signs of harm in what servers say of their items."""

    mode: ScreenMode = "flag"
    """`flag`: they are told of, only names with hidden characters are kept back; `quarantine`: all of it is."""
    quarantine: Annotated[tuple[str, ...], After(_known)] = ()
    """Rules that keep an item back with `flag` as well."""
    ignore: Annotated[tuple[str, ...], After(_known)] = ()
    """Rules that are not looked for."""
    allow: tuple[str, ...] = ()
    """Items (original names, `server/name`) that are served whatever is found in them."""
    max_description: Annotated[int, Meta(ge=1)] = MAX_DESCRIPTION


class ToolSet(Frozen):
    """A named list of tools: `server/tool` patterns, exposed names or original names."""

    name: str
    description: str = ""
    tools: tuple[str, ...] = ()


class ToolGroup(Frozen):
    """Tools that are switched on and off together: `server/tool` patterns, exposed or original names, and servers."""

    name: str
    description: str = ""
    notes: str | None = None
    """How they are to be used; told to clients while the group is on."""
    active: bool = False
    tools: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    """Patterns over their ids."""


class Profile(Frozen):
    """What one kind of user gets: tool sets and single tools, merged."""

    name: str
    tool_sets: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
