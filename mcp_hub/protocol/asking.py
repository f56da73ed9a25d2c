"""Asking a client something on behalf of a server: sampling, elicitation, roots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

Json = dict[str, Any]

COMPLETED: Final = "notifications/elicitation/complete"
ELICITATION_ID: Final = "elicitationId"
ELICITATION: Final = "elicitation/create"
MAX_REQUESTS: Final = 16
"""Questions of one round."""

CAPABILITY: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    ELICITATION: "elicitation",
    "roots/list": "roots",
}
"""Method of a server's request -> the client capability it needs."""


class Asker(Protocol):
    """One client that can be asked, and what it has declared."""

    @property
    def capabilities(self) -> Json:
        """As the client declared them."""
        ...

    @property
    def parked(self) -> bool | None:
        """Whether it has been asked and no request of the client's is open until it comes back with the answer.

        None: it can be asked at any time, whatever is open.
        """
        ...

    async def turn(self) -> None:
        """Wait until the call may be sent to its server."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """The client's result. Raises ProtocolError, with the client's own error if it answered one."""
        ...

    def hear(self, message: Json) -> None:
        """Pass on a log message of a server's, if the client wants to hear it."""
        ...

    def tell(self, method: str, params: Json) -> None:
        """Notify the client outside of any request, if its era has that."""
        ...


def askable(capabilities: Mapping[str, Any]) -> Json:
    """Of a client's capabilities those that a server's requests can be about."""
    return {name: capabilities[name] for name in CAPABILITY.values() if isinstance(capabilities.get(name), dict)}


def lacks(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> str | None:
    """The capability a request needs and the client has not declared; None if it may be asked."""
    name = CAPABILITY[method]
    declared = capabilities.get(name)
    if not isinstance(declared, dict):
        return name
    if name == "elicitation":
        mode = params.get("mode", "form")
        # A client of before the modes declares neither and knows the form.
        if mode != "form" and mode not in declared:
            return f"elicitation.{mode}"
        if mode == "form" and declared and "form" not in declared and "url" in declared:
            return "elicitation.form"
    if name == "sampling" and "tools" in params and "tools" not in declared:
        return "sampling.tools"
    return None
