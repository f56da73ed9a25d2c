"""The actions of an admin on a running hub, from its page, sign-ins included. Each is recorded like a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mcp_hub.config.credentials import is_loopback
from mcp_hub.downstream.page import RETURN
from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageError, PageRequest, not_found
from mcp_hub.downstream.page.runs import CLIENT
from mcp_hub.errors import CallError, ConfigError, HubError
from mcp_hub.hub.server_switch import SWITCHED_OFF_ON_PAGE, CannotSwitch
from mcp_hub.oauth import UpstreamTokens
from mcp_hub.oauth.token_store import SignInError, token_store_for
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.pins import listed_record, merge_pins, pin_mode, pins_file, pins_text
from mcp_hub.policy.sharing import ChangeKind
from mcp_hub.security.pinning import PARTS
from mcp_hub.text import printable
from mcp_hub.upstream.sign_in import CONNECT, USER_WAIT, BrowserReturn, find_oauth_server, sign_in

if TYPE_CHECKING:
    from mcp_hub.config.models import Server
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page_access import Reload
    from mcp_hub.hub import Engine
    from mcp_hub.security import Principal
    from mcp_hub.upstream import Upstream

MAX_WAITING: Final = 8
"""The most sign-ins that wait for their user; with one more, the oldest ends."""


class SignIns:
    """The sign-ins that wait for their user. `ended(server, problem)` is called at the end; None means success."""

    def __init__(self, hub: Engine, on_end: Callable[[str, str | None], None]) -> None:
        self._hub = hub
        self._on_end = on_end
        self._waiting: dict[str, tuple[BrowserReturn, asyncio.Task[None]]] = {}

    async def begin(self, id: str, return_uri: str) -> str:
        """Returns the URL at which a person signs in to a server. Raises PageError.

        The sign-in goes on in the background for `USER_WAIT` seconds. `return_uri`: where the browser comes back to.
        """
        server = self._server(id)
        by_hand = f"Run `mcp-hub login {printable(id, 100)}` on the machine of the hub."
        if server.oauth is not None and (server.oauth.client_id is not None or server.oauth.redirect_port is not None):
            text = f"The client of {id} is registered for the address of `mcp-hub login`, not for that of this page."
            raise PageError(409, "registered", text, by_hand)
        url_parts = urlsplit(return_uri)
        if url_parts.scheme != "https" and not is_loopback(url_parts.hostname):
            text = "An authorization server sends its answer over https or to this machine only."
            raise PageError(409, "not_private", text, by_hand)
        self._end(id)
        while len(self._waiting) >= MAX_WAITING:
            self._end(next(iter(self._waiting)))
        login_url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        user = BrowserReturn(return_uri, lambda url: None if login_url.done() else login_url.set_result(url))
        task = asyncio.get_running_loop().create_task(self._sign_in(server, user), name=f"sign-in {id}")
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # `_on_end` reports it
        self._waiting[id] = user, task
        futures: set[asyncio.Future[Any]] = {login_url, task}
        await asyncio.wait(futures, timeout=CONNECT, return_when=asyncio.FIRST_COMPLETED)
        if task.cancelled():
            text = f"This sign-in to {id} has ended, as another one has begun."
            raise PageError(409, "replaced", text, "Go on with the newest one, or begin again.")
        if login_url.done():
            return login_url.result()
        task.cancel()  # `_end` could end a newer one
        problem = task.exception() if task.done() and not task.cancelled() else None
        text = str(problem) if problem is not None else "The server did not ask for a sign-in in time."
        raise PageError(502, "sign_in", printable(text, 1000), by_hand)

    def returned(self, query: Mapping[str, str]) -> bool:
        """Takes the query with which a browser comes back; returns whether a sign-in waits for it."""
        return any([user.take(query) for user, _ in self._waiting.values()])

    def close(self) -> None:
        """Ends every sign-in."""
        for id in list(self._waiting):
            self._end(id)

    def _end(self, id: str) -> None:
        if (entry := self._waiting.pop(id, None)) is not None:
            entry[1].cancel()

    def _server(self, id: str) -> Server:
        try:
            server = find_oauth_server(self._hub.config, id)
        except ConfigError as error:
            cure = "`mcp-hub doctor` says what its entry needs."
            raise PageError(409, "no_sign_in", printable(str(error), 1000), cure) from None
        if server.oauth is not None and server.oauth.grant == "client_credentials":
            text = f"{id} is signed in to by the hub itself, without a person."
            raise PageError(409, "no_sign_in", text, "Look at client_id, its secret and scopes under `auth`.")
        return server

    async def _sign_in(self, server: Server, user: BrowserReturn) -> None:
        config = self._hub.config
        tokens = UpstreamTokens(server, token_store_for(config), config.web.allow_addresses, user)
        problem: str | None = "it did not end in time"
        try:
            async with asyncio.timeout(USER_WAIT + CONNECT):
                await sign_in(server, tokens)
            problem = None
            upstream = self._hub.upstreams.get(server.id)
            if upstream is not None:
                upstream.wake()
        except asyncio.CancelledError:
            problem = "it was cancelled"
            raise
        except (HubError, SignInError) as error:
            problem = str(error)
            raise
        finally:
            if (entry := self._waiting.get(server.id)) is not None and entry[0] is user:
                del self._waiting[server.id]
            self._on_end(server.id, problem)


MAX_ACTION: Final = 64 * 1024
"""Bytes of an action."""
MAX_CONNECT: Final = 30.0
"""Seconds that a server has to connect, when what it lists is to be pinned."""

Action = Callable[[Json, PageRequest], Awaitable[Json]]
"""Carries out an action with its arguments. Returns `{"text": str, ...}`, what was done. Raises PageError."""


class ActionsPart:
    """Serves `POST /actions/NAME`, for admins only. No action changes the configuration; a reload undoes a switch."""

    def __init__(self, dispatcher: Dispatcher, reload: Callable[[], Awaitable[Reload | None]]) -> None:
        """`reload` reads the configuration again."""
        self._dispatcher = dispatcher
        self._reload_files = reload
        self._hub = dispatcher.hub
        self.sign_ins = SignIns(dispatcher.hub, self._signed_in)
        self._pinning = asyncio.Lock()
        self._actions: dict[str, Action] = {
            "restart": self._restart,
            "disable": self._disable,
            "enable": self._enable,
            "sign_in": self._sign_in,
            "end_session": self._end_session,
            "groups": self._groups,
            "pin": self._pin,
            "reload": self._reload,
        }

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns the one endpoint."""
        return {("POST", "/actions/"): self.act}

    async def act(self, page_request: PageRequest) -> Json:
        """Carries out an action and records it, also one that is refused. Raises PageError."""
        name, viewer = page_request.rest, page_request.session.viewer
        if not viewer.admin:
            cure = "Ask an administrator: `listen.principals.NAME.admin: true` makes one."
            refusal = PageError(403, "not_admin", "Only an administrator of the hub may do this.", cure)
            self._record(viewer.principal, name, {}, refusal, "refused")
            raise refusal
        action = self._actions.get(name)
        if action is None:
            raise not_found("such action")
        body = await page_request.body(MAX_ACTION)
        try:
            outcome = await action(body, page_request)
        except PageError as error:
            self._record(viewer.principal, name, body, error, "error")
            raise
        except CallError as error:
            text = "done at this replica only, as the store is unavailable"
            page_error = PageError(503, error.code, text, "Do it again when the store is back.")
            self._record(viewer.principal, name, body, page_error, "error")
            raise page_error from None
        except (CannotSwitch, ConfigError) as error:
            page_error = PageError(409, error.hub_code or "refused", printable(str(error), 1000), _SEE_STATE)
            self._record(viewer.principal, name, body, page_error, "error")
            raise page_error from None
        self._record(viewer.principal, name, body, None, "ok")
        return {"done": True, **outcome, "text": printable(outcome["text"], 1000)}

    async def _publish(self, kind: ChangeKind, value: Any) -> None:
        """Tells every other replica of the hub to do the same. Raises CallError while the store is unreachable."""
        sharing = self._hub.sharing
        await sharing.broadcast(kind, None, value)

    def _record(self, principal: Principal, name: str, body: Json, error: PageError | None, verdict: str) -> None:
        target = body.get("server", body.get("client"))
        group_names = ", ".join(map(str, body["states"])) if isinstance(body.get("states"), dict) else None
        facts: Json = {"client": CLIENT["name"], "name": printable(name, 100), "verdict": verdict}
        if isinstance(target, str) or group_names is not None:
            facts["upstream" if "server" in body else "target"] = target if isinstance(target, str) else group_names
        if error is not None:
            facts |= {"code": error.code, "reason": str(error)}
        rules = self._hub.rules
        rules.trace.record_action(principal, facts)

    # --- servers -----------------------------------------------------------------------------------------------

    async def _restart(self, body: Json, page_request: PageRequest) -> Json:
        id = self._server(body)
        await self._hub.switch.restart(id)
        await self._publish("switch", [id, "restart"])
        return {"text": f"{id} is being started again"}

    async def _disable(self, body: Json, page_request: PageRequest) -> Json:
        id = self._server(body)
        await self._hub.switch.disable(id, SWITCHED_OFF_ON_PAGE)
        await self._publish("switch", [id, "disable"])
        return {"text": f"{id} is switched off until the configuration is read again"}

    async def _enable(self, body: Json, page_request: PageRequest) -> Json:
        id = self._server(body)
        await self._hub.switch.enable(id)
        await self._publish("switch", [id, "enable"])
        return {"text": f"{id} is switched on until the configuration is read again"}

    async def _reload(self, body: Json, page_request: PageRequest) -> Json:
        reload = await self._reload_files()
        if reload is None or reload.problem is not None:
            text = "This hub has no file." if reload is None else printable(reload.problem or "", 1000)
            raise PageError(409, "refused", text, "Correct the file, and read it again.")
        return {"text": f"the configuration was read again: {'; '.join(reload.changed)}"}

    async def _sign_in(self, body: Json, page_request: PageRequest) -> Json:
        id = self._server(body)
        origin = page_request.request.values(b"origin")[0]  # which was checked to be this listener's own
        url = await self.sign_ins.begin(id, origin + RETURN)
        return {"text": f"open the address to sign in to {id}", "url": url}

    def _signed_in(self, server: str, problem: str | None) -> None:
        facts = {"client": CLIENT["name"], "name": "signed_in", "upstream": server}
        outcome = {"verdict": "ok"} if problem is None else {"verdict": "error", "reason": problem}
        rules = self._hub.rules
        rules.trace.record_action(None, {**facts, **outcome})

    async def _pin(self, body: Json, page_request: PageRequest) -> Json:
        upstream = self._upstream(body)
        server, config = upstream.server, self._hub.config
        path = pins_file(config)
        if path is None:
            raise PageError(409, "no_file", "Pins need a file.", "Set pins.file in the configuration.")
        try:
            async with asyncio.timeout(MAX_CONNECT):
                await upstream.connected()
        except (CallError, TimeoutError):
            reason = printable(upstream.error or "it is not connected yet", 1000)
            text = f"{server.id} is unavailable: {reason}"
            raise PageError(409, "not_there", text, "Restart it, or wait for it.") from None
        async with self._pinning:
            record = await in_thread(listed_record, upstream)
            await in_thread(merge_pins, path, {server.id: record})
        if (watch := self._hub.generation.pin_watch) is not None:
            watch.check()
        await self._publish("pins", pins_text({server.id: record}))
        counts = ", ".join(f"{len(record.items.get(kind, {}))} {kind.name}" for kind in PARTS)
        note = "; pins are off for it: set pins to warn or enforce" if pin_mode(config, server) == "off" else ""
        return {"text": f"pinned {counts} of {server.id}{note}"}

    def _server(self, body: Json) -> str:
        return self._upstream(body).server.id

    def _upstream(self, body: Json) -> Upstream:
        id = body.get("server")
        upstream = self._hub.upstreams.get(id) if isinstance(id, str) else None
        if upstream is None:
            raise not_found("such server")
        return upstream

    # --- callers -----------------------------------------------------------------------------------------------

    async def _end_session(self, body: Json, page_request: PageRequest) -> Json:
        id, connections = body.get("client"), self._dispatcher.connections
        connection = next((connection for connection in connections if connection.caller.label == id), None)
        if connection is None:
            text = "This client has no session that could end: it is gone, or each of its requests stands alone."
            raise PageError(404, "not_found", text, "Take its token out of the configuration to keep it out.")
        if connection.end is None:
            text = "A client over stdio ends with its own program."
            raise PageError(409, "stdio", text, "Quit the program that started the hub.")
        await connection.end()
        return {"text": f"the session {id} has ended"}

    async def _groups(self, body: Json, page_request: PageRequest) -> Json:
        states: Any = body.get("states")
        group_names = [group.name for group in self._hub.config.groups]
        if not isinstance(states, dict) or not states or not all(isinstance(is_on, bool) for is_on in states.values()):
            text = "`states` has true or false for each group."
            raise PageError(400, "invalid", text, "Mend the request.")
        unknown = [name for name in states if name not in group_names]
        if unknown:
            text = f"There is no group {printable(unknown[0], 100)!r}; there are: {', '.join(group_names) or 'none'}."
            raise PageError(404, "not_found", text, "Reload the page.")
        groups = self._hub.groups
        for active in (True, False):
            names = [name for name, is_on in states.items() if is_on is active]
            if names:
                groups.update(names, active)
        await groups.spread()
        changes = ", ".join(f"{name} {'on' if is_on else 'off'}" for name, is_on in states.items())
        return {"text": f"switched for all callers without a choice of their own: {changes}"}


_SEE_STATE: Final = "The row of the server says how it is; `mcp-hub doctor` says what to mend."
