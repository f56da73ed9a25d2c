"""The configuration as frozen models: the whole of it, and each upstream server.

`ConfigReader` reads files of any dialect into these; no other part of the project parses configuration.
All durations are seconds, all sizes bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mcp_hub.config.credentials import OAuthSettings, TokenStore, is_private_channel
from mcp_hub.config.dialect import TRANSPORTS, schemes_of
from mcp_hub.config.egress_settings import EgressSettings, ProxyAddress
from mcp_hub.config.entry_rules import (
    Filter,
    HealthSettings,
    PostProcessStep,
    ToolRules,
    Validation,
)
from mcp_hub.config.field_types import After, Duration, SecretStr, Size, Synonyms
from mcp_hub.config.listen import Listen, UnreadLimits
from mcp_hub.config.root_rules import (
    ExposeSettings,
    OutputStrategy,
    ProfileSettings,
    SearchSettings,
    ToolGroupSettings,
    ToolSetSettings,
    TracingSettings,
    WebSettings,
)
from mcp_hub.config.settings import Frozen, Key, keys_of
from mcp_hub.config.store import StoreSettings
from mcp_hub.protocol.questions import MAX_QUESTIONS
from mcp_hub.security.file_access import RawTextPolicy, RootMode

__all__ = ["Config", "Deadlines", "Listen", "Server"]


def _check_transport(value: str) -> str:
    if value != "auto" and value not in TRANSPORTS:
        raise ValueError(f"must be one of {', '.join(TRANSPORTS)}, auto")
    return value


Transport = Annotated[str, After(_check_transport)]
"""How an upstream is reached. `auto`: by streamable HTTP, and by SSE if that answers 4xx."""

SessionMode = Annotated[Literal["shared", "client", "call"], Synonyms({"persistent": "shared", "per_call": "call"})]
WrittenBuiltin = Literal["web", "browser", "code", "shell", "text_files", "files"]
Builtin = Literal[WrittenBuiltin, "native", "skills"]
LOCAL_BUILTINS: tuple[Builtin, ...] = ("code", "shell", "text_files", "files")
"""Built-in servers that give callers access to this machine."""
Origin = Literal["native", "builtin", "mcp"]
"""Where a tool comes from: a REST endpoint, a function or server of the hub, or any MCP server."""
TARGETS = ("command", "url", "tools_dir", "builtin")
"""The targets of an entry, of which it has exactly one."""
OnConflict = Annotated[Literal["keep_first", "raise", "override", "rename", "prefix"], Synonyms({"skip": "keep_first"})]
GroupScope = Literal["session", "hub"]
EraPin = Literal["auto", "handshake", "modern"]

CONNECT_DEADLINE = 30.0
CONNECT_DEADLINE_OF_INSTALLERS = 120.0
"""In seconds. npx and others download the package on the first start."""
INSTALLERS = frozenset({"npx", "uvx", "bunx", "pipx", "docker", "podman", "dnx"})
LIST_DEADLINE = 10.0
WRITE_DEADLINE = 5.0
CALL_DEADLINE = 1200.0
LIST_WAIT = 10.0
"""How long the first list of a client of which nothing is known waits, in seconds from the start of the hub."""
MAX_FRAME = 64 * 1024 * 1024
MAX_HUB_DEPTH = 4
"""The maximum number of hubs in a row, the first and the last included."""


_FIELDS_OF_HUB = frozenset({"filters", "settings", "disabled_reason", "secrets"})
"""Fields that are no keys and that never reach the server."""


class Deadlines(Frozen):
    """The deadlines for each kind of wait."""

    connect: Duration = CONNECT_DEADLINE
    """The time from the start of a server to the end of the handshake; `120s` for npx, uvx and others that download."""
    list: Duration = LIST_DEADLINE
    """The time for one page of one list."""
    write: Duration = WRITE_DEADLINE
    """The time until a server has read one message from the pipe."""
    call: Duration = CALL_DEADLINE
    """The time for one call in total, with the wait for the connection, retries and the fallback."""
    idle: Duration | None = None
    """The time for one call without a progress notification. None: only `call` applies."""

    @property
    def keys(self) -> Mapping[str, str]:
        """The keys of a file that set them, such as `mcpServers.a.timeout`, by name. Equality ignores them."""
        keys: Mapping[str, str] = self.__dict__.get("keys", {})
        return keys


class FileRoot(Frozen):
    """A directory that the file tools may use, and its path for their callers."""

    at: str
    """The path for callers, with a slash at both ends."""
    path: Path
    mode: RootMode


class Server(Frozen):
    """One upstream server."""

    id: str
    """The key of the entry in the file. It is unique."""
    transport: Annotated[Transport, Key(effect="reach", spellings=("type", "transportType", "protocol"))]
    """`stdio`, `http` (streamable HTTP), `sse` or `auto`. `auto` tries `http`, then `sse` if the server answers 4xx."""
    command: Annotated[str | None, Key(effect="reach", spellings=("cmd",))] = None
    """The program: a path, or a name that the hub looks up in `PATH` and in the usual places of Homebrew, nvm, uv and
    others."""
    args: Annotated[tuple[str, ...], Key(effect="reach")] = ()
    """The arguments of the program."""
    env: Annotated[dict[str, SecretStr], Key(effect="reach", spellings=("environment", "envs"))] = msgspec.field(
        default_factory=dict
    )
    """Environment variables of the program, besides a small base."""
    cwd: Annotated[
        Path | None, Key(effect="reach", spellings=("working_dir", "working_directory", "workingDirectory"))
    ] = None
    """The working directory of the program."""
    url: Annotated[str | None, Key(effect="reach", spellings=("httpUrl", "serverUrl", "mcp_server_url", "uri"))] = None
    """The address of a server on a network: `http://` or `https://`."""
    headers: Annotated[dict[str, SecretStr], Key(effect="reach", spellings=("http_headers", "static_headers"))] = (
        msgspec.field(default_factory=dict)
    )
    """Headers of every request to `url`."""
    oauth: OAuthSettings | None = None
    """How the hub signs in to the server; None: it does not."""
    egress: EgressSettings = EgressSettings()
    """The way to the server: proxy, certificates, cookies."""
    tools_dir: Annotated[Path | None, Key(effect="reach")] = None
    """A directory of Python files. Their `@mcp_hub.tool` functions are the tools of this server."""

    functions: str | None = None
    """The name of a set of functions of the program that the hub runs in. Never in a file."""

    namespace: Annotated[str, Key(in_defaults=True, effect="offer", reconnects=False, keeps_empty=True)]
    """Prefix of the exposed names; `""` exposes the original names."""
    enabled: Annotated[bool, Key(effect="offer", keeps_empty=True, spellings=("isActive",))] = True
    """Whether it is used; `false` keeps the entry without starting it."""
    disabled_reason: str | None = None
    """Why the hub has switched the entry off, as a text for the user, such as a variable that is not set."""
    required: Annotated[bool, Key(in_defaults=True, effect="offer", reconnects=False)] = False
    """Whether `serve` ends with exit code 1, and `check` fails, if the hub cannot connect to it."""
    lazy: Annotated[bool, Key(in_defaults=True, effect="offer", reconnects=False)] = False
    """Whether it is started by the first call, not with the hub. The hub still starts it once to read its lists."""
    session: Annotated[SessionMode, Key(in_defaults=True, effect="offer", spellings=("perSessionClient",))] = "shared"
    """Who shares a connection. `shared`: all callers of one era. `client`: each caller has its own. `call`: each call
    has its own."""
    allow: Annotated[tuple[Literal["sampling", "elicitation", "roots"], ...], Key(in_defaults=True, restricts=True)] = (
        "sampling",
        "elicitation",
        "roots",
    )
    """What the server may ask of the client whose call it runs."""
    max_questions: Annotated[int, Meta(ge=1), Key(in_defaults=True, effect="offer")] = MAX_QUESTIONS
    """How many questions the server may ask during one call."""
    max_sessions: Annotated[int, Meta(ge=1), Key(in_defaults=True, effect="offer")] = 64
    """With `session: client`: how many callers can have a session at the same time."""
    era: Annotated[EraPin, Key(in_defaults=True, effect="offer")] = "auto"
    """The era of the protocol: `handshake` or `modern`. `auto`: the era of each caller, if the server supports both."""
    keep_catalog: Annotated[bool, Key(in_defaults=True, effect="offer", reconnects=False)] = True
    """Whether its last catalog is kept on disk."""
    deadlines: Annotated[Deadlines, Key(in_defaults=True, effect="offer")] = Deadlines()
    max_frame: Annotated[Size, Key(in_defaults=True, effect="offer")] = MAX_FRAME
    """The largest message that the hub accepts from this server."""

    builtin: Annotated[Builtin | None, Key(effect="reach")] = None
    """The name of a built-in server."""
    native: SecretStr | None = None
    """For `builtin: native`: the REST endpoints that it serves as tools, as JSON."""
    secrets: tuple[SecretStr, ...] = ()
    """Further secrets: those of REST endpoints, and the presets that a program has set for its tools."""
    skills: tuple[Any, ...] = ()
    """For `builtin: skills`: objects of `Skill`, whose module imports this one."""
    browser: bool = False
    """Whether it is a browser. Then callers have sessions of their own, and the guard reads all arguments."""
    profile: Annotated[Path | None, Key(effect="reach", builtins=("browser",))] = None
    """For the built-in browser: the directory for cookies and logins; None: the browser drops them with the session.
    Session cookies, which have no date of expiry, go with the browser in any case."""
    headless: Annotated[bool, Key(effect="reach", builtins=("browser",))] = True
    """For the built-in browser: whether it has no window."""
    executable: Annotated[Path | None, Key(effect="reach", builtins=("browser",))] = None
    """For the built-in browser: the Chromium to start; None: the one that the hub finds."""
    policy: Annotated[RawTextPolicy | None, Key(effect="reach", builtins=("text_files",), keeps_empty=True)] = None
    """For `text_files`: what it may do. The stricter of this and `AGENTSCOPE_DANGEROUS_TEXT_IO` applies."""
    roots: Annotated[tuple[FileRoot, ...], Key(effect="reach", builtins=("files",), keeps_empty=True)] = ()
    """For `files`: its directories."""
    allow_over_network: Annotated[bool, Key(builtins=LOCAL_BUILTINS, reconnects=False)] = False
    """Whether a built-in server with access to this machine may also be served over a network."""
    idle: Annotated[Duration, Key(in_defaults=True, effect="offer")] = 1800.0
    """For `session: client`: how long a caller's session is kept after its last call and subscription."""

    tags: Annotated[tuple[str, ...], Key(effect="offer", reconnects=False)] = ()
    """Tags of all its tools."""
    filters: dict[str, Filter] = msgspec.field(default_factory=dict)
    """Kind (`tools`, `resources`, `prompts`) -> the names of it that may be used."""
    tools: Annotated[dict[str, ToolRules], Key(restricts=True, reconnects=False)] = msgspec.field(default_factory=dict)
    """Pattern over original names -> rules for these tools. All that match apply; later ones override earlier ones."""
    validate_arguments: Annotated[
        Validation | None, Key(in_defaults=True, restricts=True, effect="offer", reconnects=False)
    ] = None
    """How arguments are checked; None: `strict` for local and built-in tools, `lenient` for all others."""
    max_result_bytes: Annotated[
        Size | None, Key(in_defaults=True, restricts=True, effect="offer", reconnects=False)
    ] = None
    """The largest result. The hub shortens longer ones. None: results are not shortened."""
    postprocess: Annotated[
        tuple[PostProcessStep, ...],
        Key(in_defaults=True, restricts=True, reconnects=False, spellings=("postprocess_func",)),
    ] = ()
    """Steps that change its results, in their order."""
    health: Annotated[HealthSettings, Key(in_defaults=True, effect="offer", reconnects=False)] = HealthSettings()
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """The settings of policies by the name of their key: `EntryKey.of` reads them."""

    def __post_init__(self) -> None:
        targets = [name for name in (*TARGETS, "functions") if getattr(self, name) is not None]
        if len(targets) != 1:
            actual = " and ".join(targets) if targets else "none of them"
            raise ValueError(f"an entry has exactly one of {', '.join(TARGETS)}; this one has {actual}")
        if bool(schemes_of(self.transport)) != (self.url is not None):
            needed_target = "a 'url'" if schemes_of(self.transport) else "a 'command'"
            raise ValueError(f"transport '{self.transport}' needs {needed_target}")

    @property
    def origin(self) -> Origin:
        """Where its tools come from."""
        if self.native is not None:
            return "native"
        is_local = self.tools_dir is not None or self.builtin is not None or self.functions is not None
        return "builtin" if is_local else "mcp"

    @property
    def can_sign_in(self) -> bool:
        """Whether `mcp-hub login` works for it although its entry says nothing of a sign-in.

        Tokens are sent over https or inside this machine only, and a configured Authorization is not replaced.
        """
        if self.url is None or self.oauth is not None or not is_private_channel(self.url):
            return False
        user = self.url.partition("://")[2].partition("/")[0].rpartition("@")[0]
        return not user and "authorization" not in {name.lower() for name in self.headers}

    def key_of_deadline(self, name: str) -> str:
        """Returns the key that sets a deadline, as it is written in the file if it is."""
        return self.deadlines.keys.get(name) or f"servers.{self.id}.deadlines.{name}"

    @property
    def of_this_machine(self) -> bool:
        """Whether it gives callers access to this machine and must not be served over a network."""
        return self.builtin in LOCAL_BUILTINS and not self.allow_over_network

    @property
    def connection(self) -> str:
        """All fields that a connection is made from, as JSON. It has secrets: do not show or store it."""
        without = {name for name, key in keys_of(Server).items() if not key.reconnects} | _FIELDS_OF_HUB
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in without}
        entry = msgspec.to_builtins(fields, enc_hook=_as_text)
        for name in ("call", "idle"):
            del entry["deadlines"][name]
        return json.dumps(entry, sort_keys=True)


def _as_text(value: Any) -> str:
    return str(value.get_secret_value()) if isinstance(value, SecretStr) else str(value)


class Config(Frozen):
    """A whole configuration."""

    path: Path | None = None
    """Absolute path of the file, None for a configuration built in code."""
    overlays: tuple[Path, ...] = ()
    """Absolute paths of further files that are laid over it."""
    servers: tuple[Server, ...] = ()
    """The servers in the order of the file, which decides which of two equal names is the first."""
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)
    """Fields of a Server that `defaults` set, and its `deadlines` by name, for the servers that a program adds."""
    on_conflict: OnConflict = "keep_first"
    """What happens if two tools or prompts have the same exposed name, or two skills the same URI.
    `keep_first` (or `skip`) leaves it out, `override` leaves the first out. `rename` gives it a name with a hash,
    `prefix` one with its server's name. `raise` leaves it out and makes `check` fail."""
    list_wait: Duration | None = None
    """How long the first list waits for servers that are still connecting and have no kept catalog. By default as
    long as the client waits for a list after its start: Codex 0.6 s, Claude Code 1.2 s, most 10 s; but never for a
    server that did not come in time at the last start."""
    cache_dir: Path | None = None
    """The directory of the catalog cache; None: a directory in the user's cache directory."""
    max_hub_depth: Annotated[int, Meta(ge=1)] = MAX_HUB_DEPTH
    """How many hubs may stand in a row, this one included."""
    watch: bool = True
    """Whether a running hub loads the file again when it or another file of the configuration has changed."""
    token_store: TokenStore = "file"
    """Where the tokens of a sign-in are kept."""
    token_dir: Path | None = None
    """The directory of the tokens; None: a directory in the user's data directory."""
    proxy: ProxyAddress | None = None
    """The proxy for all connections that the hub itself makes; None: the proxy of the environment variables."""
    listen: Listen = Listen()
    unread: UnreadLimits = UnreadLimits()
    web: WebSettings = WebSettings()
    tracing: TracingSettings = TracingSettings(enabled=False)
    store: StoreSettings | None = None
    """The Redis or Valkey server that the replicas of this hub share; None: the hub is one process."""
    output_strategy: OutputStrategy = OutputStrategy()
    search: SearchSettings = SearchSettings()
    tool_sets: tuple[ToolSetSettings, ...] = ()
    profiles: tuple[ProfileSettings, ...] = ()
    groups: tuple[ToolGroupSettings, ...] = ()
    group_scope: GroupScope = "session"
    """`session`: a client switches a group for itself. `hub`: it switches it for everybody."""
    expose: ExposeSettings = ExposeSettings()
    meta_tools: bool = False
    """Whether the hub offers tools that search all tools and call them by name, for clients that list only once."""
    state_file: Path | None = None
    """The file that stores which groups are on for everybody; None: the hub does not store them."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """The settings of policies by the name of their key: `RootKey.of` reads them."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The absolute paths of all its files; none for a configuration built in code."""
        return () if self.path is None else (self.path, *self.overlays)
