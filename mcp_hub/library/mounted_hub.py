"""`mcp_hub.asgi`: the hub as an ASGI application, alone or mounted in another one (Starlette, FastAPI)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.models import Config
from mcp_hub.downstream.app import END_GRACE, App
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.mount import Authenticate, Mount
from mcp_hub.downstream.verifier import Verifier
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.library.engine_host import EngineHost, load
from mcp_hub.policy.quotas import Quotas
from mcp_hub.transport.asgi import AsgiFront, Receive, Scope, Send
from mcp_hub.transport.egress import Egress

log = logging.getLogger("mcp_hub.library")

DRAIN_GRACE: Final = 10.0
"""Seconds that running calls get at the end."""
_NOT_RUNNING: Final = (
    "The hub is not running. An application that it is mounted in starts it in its own lifespan: `async with hub:`."
)


def asgi(
    config: Config | Mapping[str, Any] | str | Path, *, authenticate: Authenticate | None = None, sse: bool = False
) -> MountedHub:
    """Returns the hub as an ASGI application, which serves `/mcp` below the path where it is mounted.

    `config`: a configuration file, or a mapping with the content of one. `authenticate(headers)` is a coroutine
    function that returns the name of a request's sender (or a `Principal`, which may have a profile), or None if it is
    unknown; it is called for each request without a token of the configuration. `sse`: also serves `/sse`. Raises
    ConfigError if the configuration cannot be used or has no way to authenticate requests, and TypeError for an
    `authenticate` that would block.
    """
    return MountedHub(load(config).config, Mount(authenticate), sse=sse)


class MountedHub:
    """The hub as an ASGI application. It runs from its lifespan's start to its end, or in `async with hub:`."""

    def __init__(self, config: Config, mount: Mount, *, sse: bool) -> None:
        listen = config.listen.with_options()
        hook = mount.authenticate
        if hook is not None and not any(map(inspect.iscoroutinefunction, (hook, getattr(hook, "__call__", None)))):  # noqa: B004
            raise TypeError("authenticate= must be a coroutine function (`async def`): it runs in the server's loop")
        objection = mount.objection(listen)
        if objection is not None:
            raise ConfigError(objection, objection.code)
        refuse_over_network(config)
        self._config = config
        self._listen = listen
        self._mount = mount
        self._sse = sse
        self._host: EngineHost | None = None
        self._app: App | None = None
        self._asgi_front: AsgiFront | None = None
        self._verifier: Verifier | None = None

    async def __aenter__(self) -> MountedHub:
        """Starts the hub in the running loop. Raises ConfigError, and RuntimeError if it is running."""
        if self._host is not None:
            raise RuntimeError("this hub is running already; it is entered once, by the application or its server")
        self._host = EngineHost(self._config)
        try:
            hub = await self._host.hub()
            verify = self._listen.verify
            if verify is not None:
                profiles = [profile.name for profile in self._config.profiles]
                egress = Egress.of(EgressSettings(proxy=self._config.proxy))
                # In a thread, as its imports take a second.
                self._verifier = await asyncio.to_thread(Verifier, verify, profiles, egress=egress)
            quotas = Quotas(self._listen)
            self._app = App(
                Dispatcher(hub, quotas),
                self._listen,
                sse=self._sse,
                verifier=self._verifier,
                quotas=quotas,
                mount=self._mount,
            )
            self._asgi_front = AsgiFront(self._app, self._app.refusals)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Lets running calls finish, ends every stream and session, and stops the servers."""
        await self.drain()
        await self._end()

    async def drain(self, grace: float = DRAIN_GRACE) -> None:
        """Refuses new requests, lets running ones finish for at most `grace` seconds, and ends streams and sessions.

        If you can, call it before the server of the application waits for its connections to end: otherwise a stream
        lasts until its client closes it.
        """
        if self._app is not None and self._asgi_front is not None:
            await self._app.drain(grace)
            await self._asgi_front.close(END_GRACE)

    async def _end(self) -> None:
        host, app, verifier = self._host, self._app, self._verifier
        self._host = self._app = self._asgi_front = self._verifier = None
        if app is not None:
            app.refusals.close()
        if verifier is not None:
            await verifier.close()
        if host is not None:
            await host.close()

    # --- ASGI ----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one scope of ASGI."""
        kind = scope["type"]
        if kind == "http" and self._asgi_front is not None:
            await self._asgi_front(scope, receive, send)
        elif kind == "http":
            log.error(_NOT_RUNNING)
            text = _NOT_RUNNING.encode() + b"\n"
            lines = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
            await send({"type": "http.response.start", "status": 503, "headers": lines})
            await send({"type": "http.response.body", "body": text})
        elif kind == "lifespan":
            await self._run_lifespan(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # the server answers 403

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Runs the hub from the start of its server to its end."""
        await receive()
        try:
            await self.__aenter__()
        except HubError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})
