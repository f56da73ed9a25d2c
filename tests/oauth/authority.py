"""An MCP server that has to be signed in to, and its authorization server: fastmcp's, on loopback, with counters.

It runs in the test's own loop, so that a test can take tokens away and look at what was asked. The hub and its
commands are processes of their own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import secrets
import socket
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import fastmcp
import uvicorn
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.dependencies import get_access_token
from mcp.server.auth.provider import AccessToken, TokenError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

PATIENCE = 60.0
HOLD_LIMIT = 1.0
SCOPES = ["read", "admin"]
CLIENT, SECRET = "the-hub", "canary-client-secret-31415"


class Provider(InMemoryOAuthProvider):
    """Any registered client may ask for any scope; tokens live as long as a test wants."""

    def __init__(self, base: str) -> None:
        super().__init__(
            base_url=base,
            client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES),
            revocation_options=RevocationOptions(enabled=True),
            required_scopes=["read"],
        )
        self.life = 3600
        """Seconds the next tokens are said to live."""
        self.refuses_refresh = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        client = await super().get_client(client_id)
        return None if client is None else client.model_copy(update={"scope": " ".join(SCOPES)})

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> OAuthToken:
        issued = await super().exchange_authorization_code(client, authorization_code)
        return issued.model_copy(update={"expires_in": self.life})

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        if self.refuses_refresh:
            raise TokenError("invalid_grant", f"not {refresh_token.token}")
        issued = await super().exchange_refresh_token(client, refresh_token, scopes)
        return issued.model_copy(update={"expires_in": self.life})

    def own_token(self, scopes: list[str]) -> dict[str, Any]:
        """For a client that asks as itself."""
        token = f"canary_own_token_{secrets.token_hex(16)}"
        expires = int(time.time()) + self.life + 60
        self.access_tokens[token] = AccessToken(token=token, client_id=CLIENT, scopes=scopes, expires_at=expires)
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.life, "scope": " ".join(scopes)}

    def lapse(self) -> None:
        """The server takes no access token that was given up to now."""
        self.access_tokens.clear()

    def forget(self) -> None:
        """Nobody is signed in any more."""
        self.access_tokens.clear()
        self.refresh_tokens.clear()


class Authority:
    """What a test sees of it."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.url = f"{base}/mcp"
        self.provider = Provider(base)
        self.asked: Counter[str] = Counter()
        """`METHOD /path`, and `token GRANT` for what was asked of the token endpoint."""
        self.forms: list[dict[str, str]] = []
        self.bearers: list[str] = []
        """Of requests to the MCP server."""
        self.seen_elsewhere = ""
        """All headers of requests to anything but the MCP server."""
        self.wants: str | None = None
        """A scope that calls of tools have to have."""
        self.refusals = 0
        """How many of the next requests to the MCP server get 401, whatever their token."""
        self.methods: list[str] = []
        """What the MCP server was asked."""
        self.holds_tokens_until: asyncio.Event | None = None
        """The token endpoint waits for it, at most `HOLD_LIMIT` seconds."""
        self.broken_tokens = False
        """The token endpoint answers 503."""
        self.server = fastmcp.FastMCP("guarded", auth=self.provider)
        self.executed: Counter[str] = Counter()

        @self.server.tool
        def effect(word: str) -> str:
            """Done once for each call."""
            self.executed[word] += 1
            return f"{word} done"

        @self.server.tool
        def whoami() -> str:
            """The scopes of the caller."""
            token = get_access_token()
            return " ".join(sorted(token.scopes)) if token is not None else "nobody"

    @property
    def tokens(self) -> list[str]:
        """All that were ever given and must be seen nowhere."""
        return [*self.provider.access_tokens, *self.provider.refresh_tokens]

    def app(self, inner: Any) -> Any:
        """Counts, and does what fastmcp's server has no switch for."""

        async def asgi(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await inner(scope, receive, send)
                return
            self.asked[f"{scope['method']} {scope['path']}"] += 1
            headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
            body = b""
            if scope["method"] == "POST":
                has_more = True
                while has_more:
                    message = await receive()
                    body, has_more = body + message.get("body", b""), message.get("more_body", False)
            if scope["path"] == "/token" and await self._token(headers, body, send):
                return
            if scope["path"] not in ("/mcp", "/sse"):
                self.seen_elsewhere += str(headers)
            if scope["path"] in ("/mcp", "/sse"):
                self.bearers.append(headers.get("authorization", "").removeprefix("Bearer "))
                if body:
                    self.methods.append(json.loads(body).get("method", ""))
                    if self.methods[-1] == "initialize" and self.holds_tokens_until is not None:
                        self.holds_tokens_until.set()
                if self.refusals:
                    self.refusals -= 1
                    await answer(send, 401, {"error": "invalid_token"}, 'Bearer error="invalid_token"')
                    return
                if await self._lacks(body, send):
                    return
            is_replayed = False

            async def receive_again() -> Any:
                nonlocal is_replayed
                if not is_replayed:
                    is_replayed = True
                    return {"type": "http.request", "body": body, "more_body": False}
                return await receive()

            await inner(scope, receive_again, send)

        return asgi

    async def _token(self, headers: dict[str, str], body: bytes, send: Any) -> bool:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.forms.append(form)
        self.asked[f"token {form.get('grant_type')}"] += 1
        if self.holds_tokens_until is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_LIMIT):
                    await self.holds_tokens_until.wait()
        if self.broken_tokens:
            await answer(send, 503, {"error": "temporarily_unavailable"})
            return True
        if form.get("grant_type") != "client_credentials":
            return False
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if headers.get("authorization") != f"Basic {expected}":
            await answer(send, 401, {"error": "invalid_client", "error_description": f"not {headers}"})
        else:
            await answer(send, 200, self.provider.own_token(form.get("scope", "read").split()))
        return True

    async def _lacks(self, body: bytes, send: Any) -> bool:
        message = json.loads(body) if body else {}
        token = self.provider.access_tokens.get(self.bearers[-1])
        if self.wants is None or message.get("method") != "tools/call" or token is None or self.wants in token.scopes:
            return False
        challenge = f'Bearer error="insufficient_scope", scope="{self.wants}"'
        await answer(send, 403, {"error": "insufficient_scope"}, challenge)
        return True


async def answer(send: Any, status: int, value: Any, challenge: str | None = None) -> None:
    """One JSON answer."""
    headers = [(b"content-type", b"application/json")]
    headers += [(b"www-authenticate", challenge.encode())] if challenge is not None else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


@contextlib.asynccontextmanager
async def served(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """An ASGI application on an open socket."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await running
        with warnings.catch_warnings():
            # The SDK's servers forget to close memory streams of theirs.
            warnings.filterwarnings("ignore", "Unclosed <MemoryObject", ResourceWarning)
            gc.collect()


@contextlib.asynccontextmanager
async def authority(transport: str = "http") -> AsyncIterator[Authority]:
    """Serves an authority on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Authority(f"http://127.0.0.1:{listener.getsockname()[1]}")
    path = "/mcp" if transport == "http" else "/sse"
    server.url = server.base + path
    app = server.server.http_app(path=path, transport="http" if transport == "http" else "sse")
    async with served(server.app(app), listener):
        yield server
