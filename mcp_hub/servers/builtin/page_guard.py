"""Applies the URL rules inside the browser: each request of a page, frame or worker is checked before it is sent.

One CDP session with the browser itself, not one for each page, has `Fetch` enabled. It pauses every request of every
present and future target, including each redirect, so a popup is watched from its first request.
"""

from __future__ import annotations

import base64
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urldefrag, urlsplit

from mcp_hub.security.lru import Lru
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin.checked_lookups import RequestRefused
from mcp_hub.servers.builtin.chromium import READY_HOST
from mcp_hub.servers.builtin.proxy import USER, Proxy
from mcp_hub.servers.builtin.proxy_http import TargetUnreachable, refusal_page
from mcp_hub.transport.background import TaskSet

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession

MAX_REMEMBERED: Final = 1000
"""Most refused pages that are remembered, to recognise a tab that shows one."""
MAX_NOTES: Final = 50
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class PageGuard:
    """Watches one browser. A refused page is replaced by one that says so; any other refused request fails."""

    def __init__(self, urls: UrlRules, proxy: Proxy) -> None:
        self._urls = urls
        self._proxy = proxy
        self._session: CDPSession | None = None
        self._refused_pages: Lru[str, RequestRefused] = Lru(MAX_REMEMBERED)
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._tasks = TaskSet()
        self._answered_challenges: Lru[str, None] = Lru(MAX_REMEMBERED)
        self._download_frames: set[str] = set()
        self._content_types: Lru[str, str] = Lru(MAX_REMEMBERED)
        proxy.on_refused = self._note

    async def attach(self, browser: Browser, on_end: Callable[[], None]) -> None:
        """Starts watching. `on_end` is called if the watching ends; nothing may be opened after that."""
        self._session = session = await browser.new_browser_cdp_session()
        session.on("Fetch.requestPaused", lambda event: self._tasks.start(self._on_request_paused(event)))
        session.on("Fetch.authRequired", lambda event: self._tasks.start(self._on_auth_required(event)))
        session.on("close", lambda _: on_end())
        await session.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}], "handleAuthRequests": True})

    def check(self, url: str) -> None:
        """Raises RequestRefused if the rules forbid a URL. Its address is checked when it is opened."""
        if (refusal := self._urls.refusal(url)) is not None:
            raise RequestRefused("guard_blocked", refusal)

    def refusal_at(self, url: str) -> RequestRefused | None:
        """Returns why a tab at this URL must not be shown, or None.

        That is the case if the page was refused, or if its scripts have changed its URL to one that the rules forbid.
        """
        if url.startswith("http") and (refusal := self._urls.refusal(url)) is not None:
            return RequestRefused("guard_blocked", refusal)
        return self._refused_pages.get(urldefrag(url).url)

    def take_notes(self) -> list[str]:
        """Returns what was refused inside pages since the last call, one line each."""
        notes = list(dict.fromkeys(self._notes))
        self._notes.clear()
        return notes

    def websocket(self, url: str) -> None:
        """Ends an open WebSocket if the rules forbid its URL, which the proxy could not see because it is encrypted."""
        if (refusal := self._urls.refusal(url)) is None:
            return
        target = urlsplit(url)
        self._note(url, refusal)
        self._proxy.cut(target.hostname or "", target.port or (443 if target.scheme == "wss" else 80))

    @contextlib.contextmanager
    def keeping_as_file(self, frame_id: str) -> Iterator[None]:
        """Within the block, the frame downloads whatever it opens, no matter which type the server declares."""
        self._download_frames.add(frame_id)
        try:
            yield
        finally:
            self._download_frames.discard(frame_id)

    def content_type(self, url: str) -> str | None:
        """Returns the content type that the server declared for the download from this URL."""
        return self._content_types.get(url)

    def _note(self, url: str, reason: str) -> None:
        display_url = url if len(url) <= 200 else url[:200] + "…"
        self._notes.append(f"Refused: {display_url}: {reason}")

    async def _send(self, method: str, params: dict[str, Any]) -> None:
        from playwright.async_api import Error

        assert self._session is not None
        with contextlib.suppress(Error):  # the request or its page is gone
            await self._session.send(method, params)

    async def _on_request_paused(self, event: dict[str, Any]) -> None:
        url, request_id = event["request"]["url"], event["requestId"]
        if "responseStatusCode" in event:
            await self._on_response(event)
            return
        try:
            refusal = await self._refusal(url, event.get("resourceType"))
        except Exception as error:  # a URL that cannot be checked is refused
            refusal = RequestRefused("guard_blocked", f"The URL cannot be checked ({type(error).__name__}).")
        is_page = event.get("resourceType") == "Document"
        if refusal is None:
            if is_page:
                self._refused_pages.pop(url, None)
            is_download = is_page and event.get("frameId") in self._download_frames
            await self._send("Fetch.continueRequest", {"requestId": request_id, "interceptResponse": is_download})
        elif is_page:
            self._refused_pages[url] = refusal
            await self._send("Fetch.fulfillRequest", {
                "requestId": request_id, "responseCode": 403,
                "responseHeaders": [
                    {"name": "Content-Type", "value": "text/html; charset=utf-8"},
                    {"name": "Cache-Control", "value": "no-store"},
                ],
                "body": base64.b64encode(refusal_page(str(refusal)).encode()).decode(),
            })  # fmt: skip
        else:
            self._note(url, str(refusal))
            await self._send("Fetch.failRequest", {"requestId": request_id, "errorReason": "BlockedByClient"})

    async def _refusal(self, url: str, kind: str | None) -> RequestRefused | None:
        target = urlsplit(url)
        if target.scheme == "file":
            return RequestRefused("guard_blocked", "Files of this machine are not opened.")
        if (refusal := self._urls.refusal(url)) is not None:
            return RequestRefused("guard_blocked", refusal)
        # The proxy checks each connection again before it dials. This check gives pages a clear refusal.
        if kind == "Document" and target.scheme in _DEFAULT_PORTS and target.hostname not in (None, "", READY_HOST):
            try:
                await self._proxy.check(target.hostname, target.port or _DEFAULT_PORTS[target.scheme], target.scheme)
            except RequestRefused as refusal:
                return refusal
            except TargetUnreachable:
                return None
        return None

    async def _on_response(self, event: dict[str, Any]) -> None:
        """Turns a successful answer into a download; passes on a redirect or an error as it is."""
        status, headers = event["responseStatusCode"], event.get("responseHeaders", [])
        params: dict[str, Any] = {"requestId": event["requestId"]}
        if 200 <= status < 300:
            header_values = {header["name"].lower(): header["value"] for header in headers}
            disposition = header_values.get("content-disposition", "attachment").replace("inline", "attachment", 1)
            other_headers = [header for header in headers if header["name"].lower() != "content-disposition"]
            params |= {
                "responseCode": status,
                "responseHeaders": [*other_headers, {"name": "Content-Disposition", "value": disposition}],
            }
            self._content_types[event["request"]["url"]] = header_values.get("content-type", "")
        await self._send("Fetch.continueResponse", params)

    async def _on_auth_required(self, event: dict[str, Any]) -> None:
        """Gives the credentials to our own proxy, once for each request, and to nobody else."""
        challenge, request_id = event.get("authChallenge", {}), event["requestId"]
        is_own_proxy = challenge.get("source") == "Proxy" and challenge.get("origin") == self._proxy.url
        answer: dict[str, Any] = {"response": "Default"}
        if is_own_proxy and request_id not in self._answered_challenges:
            self._answered_challenges[request_id] = None
            answer = {"response": "ProvideCredentials", "username": USER, "password": self._proxy.password}
        await self._send("Fetch.continueWithAuth", {"requestId": request_id, "authChallengeResponse": answer})
