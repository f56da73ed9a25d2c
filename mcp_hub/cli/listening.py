"""Who is let in, as the configuration says now: what of `listen` can change while the hub runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mcp_hub.config.models import Config, Listen
from mcp_hub.errors import ConfigError

if TYPE_CHECKING:
    from mcp_hub.downstream.app import App

FIXED: Final = ("host", "port", "tls", "verify", "max_body")
"""What the sockets and the web server were made from."""


class Listening:
    """`of(config)` is the listener a configuration and the command line ask for, and raises ConfigError."""

    def __init__(self, app: App, listen: Listen, of: Callable[[Config], Listen]) -> None:
        self._app = app
        self._listen = listen
        self._of = of

    def wanted(self, config: Config) -> Listen:
        """The listener as it can be from now on. Raises ConfigError for one that must not be."""
        from mcp_hub.downstream.security import check_listener

        fixed = {name: getattr(self._listen, name) for name in FIXED}
        listen = self._of(config).model_copy(update=fixed)
        objection = check_listener(listen)
        if objection is not None:
            raise ConfigError(objection)
        return listen

    def take(self, listen: Listen) -> None:
        """Let in whom it says; sessions of those who are not let in any more end."""
        self._listen = listen
        self._app.take(listen)
