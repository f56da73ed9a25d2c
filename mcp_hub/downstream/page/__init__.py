"""The live page shows a person in a web browser what a hub is doing. It is imported at the first request for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.downstream.admission import Admission, Gate
from mcp_hub.downstream.page.endpoints import (
    NO_STORE,
    Endpoint,
    Json,
    PageError,
    PageRequest,
    json_body,
    not_found,
    query_of,
)
from mcp_hub.downstream.page.sessions import AT_THE_MACHINE, OneTimeLinks, PageSession, PageSessions, Viewer
from mcp_hub.downstream.page.static_files import CONFINED, INDEX, send_file
from mcp_hub.downstream.page_access import RETURN, UI
from mcp_hub.security import Principal
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest

if TYPE_CHECKING:
    from mcp_hub.downstream.page.endpoints import Part
    from mcp_hub.downstream.page.feed import Feed

log = logging.getLogger("mcp_hub.downstream")

STATIC: Final = "/ui/static/"
API: Final = "/ui/api"
SESSION: Final = "/session"
HEADER: Final = b"x-mcp-hub-page"
MAX_LOGIN: Final = 16 * 1024
"""Bytes of a request that begins a session."""
COOKIE_SECONDS: Final = 12 * 3600

_UNKNOWN_SIGN_IN: Final = "This does not belong to a sign-in that the hub waits for."
OPEN_AGAIN: Final = "Run `mcp-hub open` on the machine of the hub, and open the link that it prints."


class PageFront(msgspec.Struct, frozen=True):
    """The checks of the listener that received a request; `admission` is None if only one-time links let in."""

    gate: Gate
    admission: Admission | None = None
    note: Callable[[HttpRequest, str, int], None] = lambda request, cause, status: None
    """Counts and records a request that is refused."""


class LivePage:
    """Serves `/ui` of one hub on all its listeners: the page's files, its sessions, and the endpoints of its parts."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        """The newest calls, kept from the first session on."""
        self.links = OneTimeLinks()
        self.sessions = PageSessions()
        self.closing = False
        self.returned: Callable[[Mapping[str, str]], bool] = lambda query: False
        """Takes the query with which a browser comes back from a sign-in; returns False if no sign-in waits for it."""
        self.on_close: list[Callable[[], object]] = []
        """Called when the hub ends."""
        self._endpoints: dict[tuple[str, str], Endpoint] = {}

    def add(self, part: Part) -> None:
        """Adds the endpoints of a part."""
        self._endpoints.update(part.endpoints())

    async def serve(self, request: HttpRequest, reply: HttpReply, fronts: Callable[[], PageFront]) -> None:
        """Answers one request under `/ui`. Raises nothing but CancelledError and ClientGone.

        `fronts()` returns the listener's checks as they are now: they may change while a stream is open.
        """
        try:
            await self._serve(request, reply, fronts)
        except PageError as error:
            if not reply.started:
                await reply.json(error.status, error.body, [*CONFINED, *NO_STORE])
        except ClientGone:
            raise
        except Exception:
            log.exception("a request of the page failed inside the hub")
            internal_error = PageError(500, "internal", "The hub failed to answer.", "Its log says why.")
            if not reply.started:
                await reply.json(500, internal_error.body, [*CONFINED, *NO_STORE])

    async def _serve(self, request: HttpRequest, reply: HttpReply, fronts: Callable[[], PageFront]) -> None:
        path, method, front = request.path, request.method, fronts()
        if path in (UI, UI + "/") or path.startswith(STATIC):
            if method not in ("GET", "HEAD"):
                raise _method_not_allowed("GET")
            if not await send_file(request, reply, path.removeprefix(STATIC) if path.startswith(STATIC) else INDEX):
                raise not_found("such file")
            return
        if path == RETURN:
            await self._finish_sign_in(request, reply)
            return
        if not path.startswith(API + "/"):
            raise not_found("such page")
        if method not in ("GET", "HEAD"):
            self._check_origin(request, front)
        subpath = path.removeprefix(API)
        if (method, subpath) == ("POST", SESSION):
            await self._begin_session(request, reply, front)
            return
        session = await self._session(request, fronts)
        request.let_in()
        if (method, subpath) == ("DELETE", SESSION):
            self.sessions.end(session)
            cookie = f"{session.cookie_name}=; Max-Age=0; Path={UI}; HttpOnly; SameSite=Strict"
            await reply.json(200, {"done": True}, [*CONFINED, *NO_STORE, (b"set-cookie", cookie.encode())])
            return
        endpoint, remainder = self._endpoint(method, subpath)
        verify = partial(self._verify, session, request, fronts)
        answer = await endpoint(PageRequest(request, reply, session, remainder, verify))
        if answer is not None:
            await reply.json(200, answer, [*CONFINED, *NO_STORE])

    async def _finish_sign_in(self, request: HttpRequest, reply: HttpReply) -> None:
        """Answers a browser that comes back from a sign-in: it sends no cookie, but the sign-in's secret `state`."""
        if request.method != "GET":
            raise _method_not_allowed("GET")
        is_expected = self.returned(query_of(request))
        text = "This window can be closed; the page of the hub says what came of it."
        await reply.text(200 if is_expected else 400, text if is_expected else _UNKNOWN_SIGN_IN, [*CONFINED, *NO_STORE])

    def _endpoint(self, method: str, subpath: str) -> tuple[Endpoint, str]:
        directory, _, name = subpath.rpartition("/")
        for path, remainder in ((subpath, ""), (directory + "/", name)):
            endpoint = self._endpoints.get((method, path))
            if endpoint is not None:
                return endpoint, remainder
            allowed_method = next(
                (known_method for known_method, known_path in self._endpoints if known_path == path), None
            )
            if allowed_method is not None:
                raise _method_not_allowed(allowed_method)
        raise not_found("such endpoint")

    # --- sessions ----------------------------------------------------------------------------------------------

    @staticmethod
    def _check_origin(request: HttpRequest, front: PageFront) -> None:
        """Raises PageError unless the request was sent by a page of this listener itself."""
        origins = request.head.raw(b"origin")
        if len(origins) != 1 or not front.gate.is_own_origin(origins[0], request.port):
            front.note(request, "origin", 403)
            text = "Only the page of the hub itself may send this request."
            raise PageError(403, "origin", text, "Open the page of the hub in its own tab.")

    async def _begin_session(self, request: HttpRequest, reply: HttpReply, front: PageFront) -> None:
        body = await json_body(request, MAX_LOGIN)
        secret, token = body.get("secret"), body.get("token")
        if isinstance(secret, str) and token is None:
            if not self.links.redeem(secret):
                front.note(request, "bad_token", 401)
                raise PageError(401, "link", "This link was used already, or is older than 60 seconds.", OPEN_AGAIN)
            viewer: Viewer | None = AT_THE_MACHINE
        elif isinstance(token, str) and secret is None:
            viewer = await _viewer(token, request, front)
        else:
            raise PageError(400, "no_secret", "The request has neither a link's secret nor a token.", OPEN_AGAIN)
        if viewer is None:
            front.note(request, "bad_token", 401)
            cure = "Enter the token that your client uses for this hub."
            raise PageError(401, "token", "This token is not known here, or not valid any more.", cure)
        request.let_in()
        session = self.sessions.begin(viewer)
        self.feed.watch()
        secure = "; Secure" if request.head.raw(b"origin")[0].lower().startswith(b"https:") else ""
        cookie = f"{session.cookie_name}={session.cookie}; Max-Age={COOKIE_SECONDS}; Path={UI}; HttpOnly"
        lines = [(b"set-cookie", f"{cookie}; SameSite=Strict{secure}".encode())]
        await reply.json(200, {"token": session.token, "who": viewer.facts}, [*CONFINED, *NO_STORE, *lines])

    async def _session(self, request: HttpRequest, fronts: Callable[[], PageFront]) -> PageSession:
        """Returns the session that cookie and token of a request name together. Raises PageError."""
        tokens = request.values(HEADER)
        session = self.sessions.find(tokens[0], request.values(b"cookie")) if len(tokens) == 1 else None
        if session is None:
            raise PageError(401, "session", "This page is not signed in, or not any more.", OPEN_AGAIN)
        if not await self._verify(session, request, fronts):
            self.sessions.end(session)
            raise PageError(401, "token", "Your token is not valid any more.", "Sign in with your new token.")
        return session

    @staticmethod
    async def _verify(session: PageSession, request: HttpRequest, fronts: Callable[[], PageFront]) -> bool:
        """Returns whether a session is valid: the token that began it is valid and belongs to the same principal."""
        viewer = session.viewer
        if viewer.token is None:
            return not session.ended
        current = await _viewer(viewer.token, request, fronts())
        if session.ended or current is None or current.principal != viewer.principal:
            return False
        session.viewer = current
        return True

    def close(self) -> None:
        """Ends every session; the hub ends."""
        self.closing = True
        self.sessions.end_all()
        for callback in self.on_close:
            callback()
        self.feed.close()


async def _viewer(token: str, request: HttpRequest, front: PageFront) -> Viewer | None:
    """Returns the viewer that a bearer token belongs to; None if it is not valid."""
    if front.admission is None or not front.gate.authenticates or not token.isascii():
        return None
    headers = [(b"authorization", b"Bearer " + token.encode())]
    admitted = front.gate.admit(headers)
    principal = admitted if isinstance(admitted, Principal) else await front.admission.admit(headers, request.port)
    if not isinstance(principal, Principal):
        return None
    admin = isinstance(admitted, Principal) and front.gate.is_admin(admitted)
    return Viewer(principal, principal.label or str(principal), admin, network=True, token=token)


def _method_not_allowed(method: str) -> PageError:
    return PageError(405, "method", f"This takes {method} alone.", "Reload the page.")


__all__ = ["RETURN", "UI", "Json", "LivePage", "PageFront"]
