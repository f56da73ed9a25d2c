"""The configuration as frozen models: what a file means once it is read.

`load.py` turns a file of any dialect into these; nothing else of the project parses configuration.
All durations are seconds, all sizes bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mcp_hub.config.ancestry import MAX_HUB_DEPTH
from mcp_hub.config.frozen import Frozen
from mcp_hub.config.listen import Listen, Unread
from mcp_hub.config.oauth import OAuth, TokenStore
from mcp_hub.config.quantities import Duration, Size
from mcp_hub.config.rules import (
    Breaker,
    CallLog,
    Fallback,
    Filter,
    Flows,
    Guard,
    Health,
    Label,
    Limits,
    OutputStrategy,
    PinMode,
    Pins,
    PostProcess,
    Profile,
    Retry,
    Screen,
    ToolGroup,
    ToolRules,
    ToolSet,
    Tracing,
    Validation,
    Web,
)
from mcp_hub.config.secret_str import SecretStr
from mcp_hub.security.raw_text_policy import RawTextPolicy
from mcp_hub.security.virtual_paths import Mode

__all__ = ["Config", "Deadlines", "Listen", "Server"]

Transport = Literal["stdio", "http", "sse", "auto"]
"""How an upstream is reached. `auto`: a URL without a type; streamable HTTP first, SSE when that answers 4xx."""

SessionMode = Literal["shared", "client", "call"]
Builtin = Literal["web", "browser", "code", "shell", "text_files", "files", "native", "skills"]
OF_THIS_MACHINE: tuple[Builtin, ...] = ("code", "shell", "text_files", "files")
"""Built-in servers that do to this machine what a caller says."""
NO_ENTRY: tuple[Builtin, ...] = ("native", "skills")
"""Those that no entry names: native tools are found in their folder, skills stand under their own key."""
Origin = Literal["native", "builtin", "mcp"]
"""What a tool is: a REST endpoint, a function or server of the hub's own, or any MCP server's."""
TARGETS = ("command", "url", "tools_dir", "builtin")
"""What an entry can lead to; it has exactly one of these."""
OnConflict = Literal["keep_first", "raise", "override", "rename", "prefix"]
GroupScope = Literal["session", "hub"]
EraPin = Literal["auto", "handshake", "modern"]

CONNECT_DEADLINE = 30.0
CONNECT_DEADLINE_OF_INSTALLERS = 120.0
"""npx and its like download the package on the first start."""
INSTALLERS = frozenset({"npx", "uvx", "bunx", "pipx", "docker", "podman"})
LIST_DEADLINE = 10.0
WRITE_DEADLINE = 5.0
CALL_DEADLINE = 1200.0
LIST_WAIT = 3.0
"""Some clients give up on `tools/list` after 5 s."""
MAX_FRAME = 64 * 1024 * 1024


RULES_OF_LISTS = frozenset({
    "tags", "filters", "tools", "validate_arguments", "max_result_bytes", "postprocess", "retry", "breaker", "limits",
    "idle", "health", "pins", "screen", "labels",
})  # fmt: skip
"""What the hub does with the lists of a server, not what the server lists."""
_OF_THE_HUB = frozenset(
    {"namespace", "required", "lazy", "keep_catalog", "disabled_reason", "allow_over_network", "secrets"}
)
"""What else of an entry never reaches the server."""


class Deadlines(Frozen):
    """How long each kind of wait may take, in seconds."""

    connect: Duration = CONNECT_DEADLINE
    """From the start of an upstream to its answered handshake."""
    list: Duration = LIST_DEADLINE
    """One page of one list."""
    write: Duration = WRITE_DEADLINE
    """Until an upstream has taken one message off the pipe."""
    call: Duration = CALL_DEADLINE
    """One call in total: waiting for the connection, the call itself, retries and fallback, everything."""
    idle: Duration | None = None
    """One call without progress; every progress notification starts it anew. None: only `call` counts."""


class Root(Frozen):
    """A directory that the file tools may use, and under which path their callers know it."""

    at: str
    """With a slash at both ends."""
    path: Path
    mode: Mode


class Server(Frozen):
    """One upstream."""

    id: str
    """The key of the entry in the file; unique."""
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, SecretStr] = msgspec.field(default_factory=dict)
    cwd: Path | None = None
    url: str | None = None
    headers: dict[str, SecretStr] = msgspec.field(default_factory=dict)
    oauth: OAuth | None = None
    """How the hub signs in; None: it does not."""
    tools_dir: Path | None = None
    """A directory of Python files whose `@mcp_hub.tool` functions are this upstream's tools."""

    functions: str | None = None
    """Of a hub in a program of its user's: functions of that very program, under a name. Never in a file."""

    namespace: str
    """Prefix of the exposed names; `""` exposes the original names."""
    enabled: bool = True
    disabled_reason: str | None = None
    """Why the hub itself switched the entry off, in words for the user (an unset variable, say)."""
    required: bool = False
    lazy: bool = False
    """Start at the first call, not with the hub."""
    session: SessionMode = "shared"
    allow: tuple[Literal["sampling", "elicitation", "roots"], ...] = ()
    """What a server shared by several clients of a network may ask of the one whose call it is."""
    max_sessions: Annotated[int, Meta(ge=1)] = 64
    """With `session: client`, callers that can have one at the same time; 8 for a browser."""
    era: EraPin = "auto"
    keep_catalog: bool = True
    deadlines: Deadlines = Deadlines()
    max_frame: Size = MAX_FRAME
    """Largest message accepted from this upstream."""

    builtin: Builtin | None = None
    """An upstream the hub brings along."""
    native: SecretStr | None = None
    """Of `builtin: native`: the REST endpoints it serves as tools, as JSON."""
    secrets: tuple[SecretStr, ...] = ()
    """What else must not be shown: of the REST endpoints, and the presets a program has set for its tools."""
    skills: tuple[Any, ...] = ()
    """Of `builtin: skills`, which needs no process: each a `Skill`, a class that only those with skills import."""
    browser: bool = False
    """Whether it is a browser: its callers are kept apart, and the guard reads all its arguments."""
    profile: Path | None = None
    """Of the built-in browser: where cookies and logins are kept; None: they end with the session."""
    headless: bool = True
    executable: Path | None = None
    """Of the built-in browser: the Chromium to start; None: the one found."""
    policy: RawTextPolicy | None = None
    """Of `text_files`: what it may do; None: what the environment says."""
    roots: tuple[Root, ...] = ()
    """Of `files`."""
    allow_over_network: bool = False
    """Whether a built-in server of this machine may be there for a network as well."""
    idle: Duration = 1800.0
    """Of `session: client`: how long a caller's session is kept after its last call."""

    tags: tuple[str, ...] = ()
    filters: dict[str, Filter] = msgspec.field(default_factory=dict)
    """Name of a kind (`tools`, `resources`, `prompts`) -> what of it may be reached."""
    tools: dict[str, ToolRules] = msgspec.field(default_factory=dict)
    """Pattern over original names -> what is special about these tools; all that match apply, the last word wins."""
    validate_arguments: Validation | None = None
    """None: strict for local and built-in tools, lenient for all others."""
    max_result_bytes: Size | None = None
    postprocess: tuple[PostProcess, ...] = ()
    retry: Retry = Retry()
    breaker: Breaker = Breaker()
    limits: Limits = Limits()
    health: Health = Health()
    labels: dict[Label, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Label -> patterns over the original names of what does this."""
    pins: PinMode | None = None
    """None: as the root says."""
    screen: Screen | None = None
    """What it says counts in the place of what the root says."""

    def __post_init__(self) -> None:
        given = [name for name in (*TARGETS, "functions") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise ValueError(f"an entry has exactly one of {', '.join(TARGETS)}; this one has {found}")
        if (self.transport == "stdio") == (self.url is not None):
            other = "a 'command'" if self.transport == "stdio" else "a 'url'"
            raise ValueError(f"transport '{self.transport}' needs {other}")

    @property
    def origin(self) -> Origin:
        """What its tools are."""
        if self.native is not None:
            return "native"
        own = self.tools_dir is not None or self.builtin is not None or self.functions is not None
        return "builtin" if own else "mcp"

    @property
    def of_this_machine(self) -> bool:
        """Whether nobody on a network may reach it."""
        return self.builtin in OF_THIS_MACHINE and not self.allow_over_network

    @property
    def connection(self) -> str:
        """Everything a connection to the upstream is made from, secrets included: never to be shown or kept."""
        excluded: dict[str, Any] = {name: True for name in RULES_OF_LISTS - {"idle"} | _OF_THE_HUB}
        return self.described({**excluded, "deadlines": {"call", "idle"}})

    def described(self, exclude: Any) -> str:
        """The entry as JSON, secrets included, without some of its fields."""
        return json.dumps(self.model_dump(exclude=exclude), sort_keys=True, default=_plain)


def _plain(value: Any) -> str:
    return str(value.get_secret_value()) if isinstance(value, SecretStr) else str(value)


class Config(Frozen):
    """One configuration file."""

    path: Path | None = None
    """Absolute path of the file, None for a configuration built in code."""
    servers: tuple[Server, ...] = ()
    """In the order of the file, which decides who is first when names are equal."""
    on_conflict: OnConflict = "keep_first"
    list_wait: Duration = LIST_WAIT
    """How long the first list waits for upstreams that are still connecting."""
    cache_dir: Path | None = None
    """Where catalogs are kept; None: the user's cache directory."""
    max_hub_depth: Annotated[int, Meta(ge=1)] = MAX_HUB_DEPTH
    """How many hubs may stand in a row, this one included."""
    watch: bool = True
    """Whether a running hub loads the file again when it, or what it is made of, has changed."""
    token_store: TokenStore = "file"
    """Where the tokens of a sign-in are kept."""
    token_dir: Path | None = None
    """Their directory; None: in the user's data directory."""
    listen: Listen = Listen()
    unread: Unread = Unread()
    blacklist: tuple[tuple[str, str], ...] = ()
    """(pattern over upstream ids, pattern over original names or URIs), of every kind."""
    guard: Guard = Guard()
    web: Web = Web()
    fallback: Fallback = Fallback()
    call_log: CallLog = CallLog()
    tracing: Tracing = Tracing(enabled=False)
    output_strategy: OutputStrategy = OutputStrategy()
    tool_sets: tuple[ToolSet, ...] = ()
    profiles: tuple[Profile, ...] = ()
    groups: tuple[ToolGroup, ...] = ()
    group_scope: GroupScope = "session"
    """Whom it concerns that a client switches groups: that client, or everybody."""
    meta_tools: bool = False
    """Whether clients can search all tools and call them by name, for those that read the list only once."""
    state_file: Path | None = None
    """Where it is kept which groups are on for everybody; None: nowhere."""
    flows: Flows = Flows()
    pins: Pins = Pins()
    screen: Screen = Screen()

    @property
    def pins_file(self) -> Path | None:
        """Where pins are recorded; None for a configuration that neither is a file nor names one."""
        if self.pins.file is not None or self.path is None:
            return self.pins.file
        return self.path.with_name(f"{self.path.stem}.pins.json")

    def pins_of(self, server: Server) -> PinMode:
        """What holds for one server."""
        return self.pins.mode if server.pins is None else server.pins

    def screen_of(self, server: Server) -> Screen:
        """What holds for one server."""
        if server.screen is None:
            return self.screen
        said = {field: getattr(server.screen, field) for field in server.screen.model_fields_set}
        return self.screen.model_copy(update=said)
