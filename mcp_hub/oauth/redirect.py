"""The redirect of a sign-in: an address on this machine to which the user's browser returns with the code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from mcp_hub.oauth.token_store import SignInError

if TYPE_CHECKING:
    from aiohttp import web

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
MAX_QUERY: Final = 16 * 1024
"""Characters of a query; some servers' codes are tokens of several thousand."""
_DONE: Final = "Signed in. This window can be closed."
_REFUSED: Final = "The sign-in was refused; the terminal says more. This window can be closed."
_STRANGE: Final = "This is not the answer to the sign-in that is waited for."
_WITH_SCREEN: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set on POSIX where a browser can open a window."""


class RedirectListener:
    """A SignInUser that shows a URL and waits until the browser returns. `show(url)` is called once."""

    def __init__(self, port: int, show: Callable[[str], None], wait: float) -> None:
        self.redirect_uri = f"http://{HOST}:{port}{PATH}"
        self._show = show
        self._wait = wait
        self._state: str | None = None
        self._given: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def comes_back(self, url: str, state: str) -> dict[str, str]:
        """Shows the URL and waits for the browser (SignInUser)."""
        self._state = state
        self._show(url)
        try:
            async with asyncio.timeout(self._wait):
                return await asyncio.shield(self._given)
        except TimeoutError:
            raise SignInError(f"nobody has signed in within {self._wait:g} s") from None

    async def answer(self, request: web.Request) -> web.Response:
        """Answers the browser's request. Only one with the right state counts."""
        from aiohttp import web

        given = {name: value for name, value in request.query.items() if len(value) <= MAX_QUERY}
        state = given.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode(), self._state.encode()):
            return web.Response(status=400, text=_STRANGE)
        if not self._given.done():
            self._given.set_result(given)
        return web.Response(text=_DONE if "code" in given else _REFUSED, headers={"Cache-Control": "no-store"})


@contextlib.asynccontextmanager
async def redirect_listener(
    ports: list[int], show: Callable[[str], None], wait: float
) -> AsyncIterator[RedirectListener]:
    """Listens on the first free port of `ports`; 0 is any. Raises SignInError if none is free."""
    from aiohttp import web

    redirects: list[RedirectListener] = []

    async def answer(request: web.Request) -> web.Response:
        return await redirects[0].answer(request)

    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app, access_log=None, max_line_size=2 * MAX_QUERY)
    await runner.setup()
    try:
        for port in ports:
            try:
                await web.TCPSite(runner, HOST, port).start()
                break
            except OSError:
                continue
        else:
            raise SignInError(f"the port {ports[-1]} on {HOST} is taken; set another auth.redirect_port")
        redirects.append(RedirectListener(runner.addresses[0][1], show, wait))
        yield redirects[0]
    finally:
        await runner.cleanup()


def open_browser(url: str) -> bool:
    """Opens a URL in the user's browser, without a shell; returns whether there is one."""
    if not url.startswith(("https://", "http://")):
        return False
    if os.name == "posix" and sys.platform != "darwin" and not any(os.environ.get(name) for name in _WITH_SCREEN):
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
