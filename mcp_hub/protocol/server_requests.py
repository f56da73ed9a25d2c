"""Requests from servers to clients (sampling, elicitation, roots) and the capabilities and extensions they need.

A handshake server sends such a request itself; a modern server answers a call with questions, and the client sends the
call again with the answers. `questions.py` has the rules for questions, and the rounds with a modern server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from mcp_hub.protocol.era import Era
from mcp_hub.protocol.skill_entries import SKILLS_EXTENSION

Json = dict[str, Any]

ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
ELICITATION_ID: Final = "elicitationId"
ELICITATION: Final = "elicitation/create"
MAX_INPUT_REQUESTS: Final = 16
"""Questions that a server may ask in one round."""

CAPABILITY: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    ELICITATION: "elicitation",
    "roots/list": "roots",
}
"""The client capability that each method of a server's request needs."""


class Asker(Protocol):
    """A client that servers can ask, and what it has declared."""

    @property
    def capabilities(self) -> Json:
        """The capabilities as the client declared them."""
        ...

    @property
    def parked(self) -> bool | None:
        """Whether the call is parked: the client has a question, and no open request until it sends the answer.

        None: the client can be asked at any time, even without an open request.
        """
        ...

    async def wait_for_turn(self) -> None:
        """Waits until the call may be sent to its server."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """Asks the client and returns its result.

        Raises ProtocolError, also if the client answers with an error; CarrierEnded if the call of this Asker ends.
        """
        ...

    def hear(self, message: Json) -> None:
        """Passes on a server's log message if the client wants its level."""
        ...

    def notify(self, method: str, params: Json) -> None:
        """Notifies the client outside of any request, if its era allows that."""
        ...


def requestable_capabilities(capabilities: Mapping[str, Any]) -> Json:
    """Returns the client's capabilities that requests of servers can need."""
    return {name: capabilities[name] for name in CAPABILITY.values() if isinstance(capabilities.get(name), dict)}


def missing_capability(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> str | None:
    """Returns the capability that a request needs but the client has not declared; None if there is none."""
    name = CAPABILITY[method]
    declared = capabilities.get(name)
    if not isinstance(declared, dict):
        return name
    if name == "elicitation":
        mode = params.get("mode", "form")
        # A client from before the modes declares none of them and supports the form.
        if mode != "form" and mode not in declared:
            return f"elicitation.{mode}"
        if mode == "form" and declared and "form" not in declared and "url" in declared:
            return "elicitation.form"
    if name == "sampling" and "tools" in params and "tools" not in declared:
        return "sampling.tools"
    return None


UI_EXTENSION: Final = "io.modelcontextprotocol/ui"
"""The extension for apps: `ui://` resources that show the results of tools."""
SHOWS_APPS: Final[Json] = {"extensions": {UI_EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
"""Declared to servers whose clients are not known yet, as some list tools of apps only to clients that show apps."""
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension for tasks: calls that continue after their request was answered."""

TASK_CHANGED: Final = "notifications/tasks"
WATCHED_TASK: Final = "\0task:"
"""Put before the id of a task, where tasks are watched as resources are by their URIs; it begins no URI."""

FORWARDED_EXTENSIONS: Final[Mapping[Era, tuple[str, ...]]] = {
    "handshake": (UI_EXTENSION,),
    "modern": (UI_EXTENSION, TASKS_EXTENSION, SKILLS_EXTENSION),
}
"""The extensions that the hub passes between two peers of an era. It declares no others to them."""
_ALWAYS: Final[Mapping[Era, Mapping[str, Json]]] = {"handshake": {}, "modern": {SKILLS_EXTENSION: {}}}
"""The extensions that the hub always declares, with its settings, even if none of its servers has them."""


def extension_settings(capabilities: Mapping[str, Any], name: str) -> Json | None:
    """Returns a peer's settings of an extension; None if the peer has not declared it."""
    declared = capabilities.get("extensions")
    settings = declared.get(name) if isinstance(declared, dict) else None
    return settings if isinstance(settings, dict) else None


def with_extension(capabilities: Json, name: str) -> Json:
    """Returns the capabilities of a client with an extension added if it is not declared yet."""
    if extension_settings(capabilities, name) is not None:
        return capabilities
    declared = capabilities.get("extensions")
    return {**capabilities, "extensions": {**(declared if isinstance(declared, dict) else {}), name: {}}}


def forwarded_capabilities(capabilities: Mapping[str, Any], era: Era) -> Json:
    """Returns the capabilities of a client to declare to a server if both use `era`."""
    if not capabilities:
        return {}
    extensions = {
        name: settings
        for name in FORWARDED_EXTENSIONS[era]
        if (settings := extension_settings(capabilities, name)) is not None
    }
    return {**requestable_capabilities(capabilities), **({"extensions": extensions} if extensions else {})}


def forwarded_extensions(servers: Iterable[tuple[Era, Mapping[str, Any]]], era: Era) -> Json:
    """Returns the servers' extensions that a client of `era` can use. `servers` are (era, capabilities) pairs."""
    extensions: Json = dict(_ALWAYS[era])
    for server_era, capabilities in servers:
        for name in FORWARDED_EXTENSIONS[era]:
            settings = extension_settings(capabilities, name) if name in FORWARDED_EXTENSIONS[server_era] else None
            if settings is not None:
                extensions[name] = {**settings, **extensions.get(name, {})}
    return extensions
