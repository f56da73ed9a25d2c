"""Gets tokens: the SDK's OAuth client decides what to request next, and this module sends it where it is allowed.

This module imports the SDK, which takes half a second: import it only where a token is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
import warnings
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError
from yarl import URL

from mcp_hub.config.credentials import OAuthSettings, is_loopback
from mcp_hub.config.models import Server
from mcp_hub.oauth.token_store import Json, SignIn, SignInError, TokenUnavailable
from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.proxies import ProxySettingError
from mcp_hub.security.redaction import LEARNED, Redactor
from mcp_hub.text import printable
from mcp_hub.transport import Challenge
from mcp_hub.transport.egress import PROXIED_LOOKUP, Egress, ResponseBodyTooLarge, egress_failure, whole
from mcp_hub.transport.http1.client_response import HttpFailure
from mcp_hub.transport.trust_store import UnusableCertificates

MAX_BODY: Final = 256 * 1024
"""Bytes of one answer; metadata and tokens have a few thousand."""
RESOLVE_WAIT: Final = 10.0
STEP_WAIT: Final = 10.0
"""Seconds to connect, and between two pieces of an answer."""
MAX_ADDRESSES: Final = 4
"""Addresses of one host that are tried."""
_PUBLIC: Final = AddressRules()


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to allowed addresses only. `allow` adds addresses, as `web.allow_addresses` does.

    Raises SignInError for a refused address, TokenUnavailable for one that does not answer.
    """

    def __init__(self, server_url: str, allow: Sequence[str], egress: Egress) -> None:
        self._server = httpx2.URL(server_url)
        self._allowed = AddressRules(tuple(allow))
        self._egress = egress

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request and returns the answer with its whole body."""
        url = request.url
        check_url(str(self._server), str(url))
        timeouts = request.extensions.get("timeout", {})
        connect, read = timeouts.get("connect") or STEP_WAIT, timeouts.get("read") or STEP_WAIT
        body = await request.aread()
        proxy = None
        try:
            proxy = self._egress.proxy_for(url.scheme, url.host, _port_of(url))
            addresses = (await self._addresses(url))[:MAX_ADDRESSES]
            # No connection is kept: one that is checked for a name must not serve another name of the same address.
            exchange = (self._egress if _origin(url) == _origin(self._server) else self._egress.anonymous).response(
                request.method,
                URL(str(url), encoded=True),
                {
                    name.decode(): value.decode()
                    for name, value in request.headers.raw
                    if name.lower() not in _OF_THE_HOP
                },
                body if body or request.method == "POST" else None,
                connect=connect,
                addresses=None if proxy is not None else addresses,
            )
            async with asyncio.timeout(connect + read), exchange as response:
                if (response.get("content-encoding") or "identity").lower() not in ("", "identity"):
                    raise TokenUnavailable("the authorization server compresses its answers, which was not requested")
                answer = await whole(response, MAX_BODY)
        except ResponseBodyTooLarge:
            raise TokenUnavailable(f"the authorization server answers with more than {MAX_BODY:,} bytes") from None
        except (HttpFailure, ProxySettingError, UnusableCertificates, ValueError, TimeoutError) as error:
            reason = egress_failure(error, proxy) or type(error).__name__
            raise TokenUnavailable(f"{_display_url(url)} cannot be reached: {reason}") from None
        headers = [(name, value) for name, value in answer.headers if name.encode() not in _OF_THE_HOP]
        return httpx2.Response(answer.status, headers=headers, content=answer.content)

    async def _addresses(self, url: httpx2.URL) -> list[str]:
        """Returns the addresses of a URL's host, all of them checked; [] if only a proxy can resolve it.

        Raises SignInError for an address that is not allowed, TokenUnavailable for an unknown host.
        """
        port = _port_of(url)
        addresses = await self._resolved(url)
        if _origin(url) == _origin(self._server) or is_loopback(self._server.host):
            return addresses  # the user has named it, or the server runs on this machine and reaches everything itself
        server_addresses = await self._resolved(self._server)
        if any(_PUBLIC.refused("", address, 0) is not None for address in server_addresses):
            # A server on a private network may name private addresses, but not this machine.
            if any(_is_loopback(address) for address in addresses) and self._refused(url.host, addresses, port):
                raise SignInError(f"{_display_url(url)} leads to this machine, but the server runs elsewhere")
            return addresses
        reason = self._refused(url.host, addresses, port) if addresses else self._allowed.refused_name(url.host, port)
        if reason is not None:
            raise SignInError(f"{_display_url(url)} is not allowed: {reason}")
        return addresses

    async def _resolved(self, url: httpx2.URL) -> list[str]:
        """Returns the addresses of a host; [] if it is unknown here but is reached through a proxy that may know it."""
        proxied = self._egress.proxy_for(url.scheme, url.host, _port_of(url)) is not None
        try:
            async with asyncio.timeout(PROXIED_LOOKUP if proxied else RESOLVE_WAIT):
                infos = await asyncio.get_running_loop().getaddrinfo(url.host, url.port or 443, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError):
            if proxied:
                return []
            raise TokenUnavailable(f"cannot find the host of {_display_url(url)}") from None
        return list(dict.fromkeys(str(info[4][0]) for info in infos))

    def _refused(self, host: str, addresses: Sequence[str], port: int) -> str | None:
        return next(
            (reason for address in addresses if (reason := self._allowed.refused(host, address, port)) is not None),
            None,
        )


class AuthorizationServer:
    """Sends the requests of a sign-in and remembers the last answer. `allow` is as for CheckedTransport."""

    def __init__(self, server_url: str, allow: Sequence[str] = (), egress: Egress | None = None) -> None:
        self._url = server_url
        self._egress = Egress.of() if egress is None else egress
        self._allow = allow
        self.status: int | None = None
        """HTTP status of the last answer."""
        self.error = ""
        """The error code of the last answer (RFC 6749)."""

    @property
    def last(self) -> str:
        """The last answer in words, for an error message."""
        return f"HTTP {self.status}{': ' + self.error if self.error else ''}"

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Opens an HTTP client to `send` with."""
        async with httpx2.AsyncClient(
            transport=CheckedTransport(self._url, self._allow, self._egress),
            timeout=STEP_WAIT,
            headers={"Accept-Encoding": "identity", "User-Agent": "mcp-hub"},
            follow_redirects=False,
            trust_env=False,
        ) as http:
            yield http

    async def send(self, http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Sends one request and returns its answer. Raises SignInError, TokenUnavailable, and what httpx2 raises."""
        request.headers.setdefault("Accept", "application/json")
        request.headers["Accept-Encoding"] = "identity"
        response = await http.send(request)
        self.status, self.error = response.status_code, ""
        try:
            body = response.json() if response.status_code >= 400 else None
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict):
            self.error = error_code(body.get("error"))
        return response


def error_code(value: Any) -> str:
    """Returns an error code of RFC 6749, safe to show."""
    return printable(value, 60) if isinstance(value, str) and value else "no reason given"


def check_url(server_url: str, url: str) -> None:
    """Checks a URL that a server has named.

    Raises:
        SignInError: nothing may be sent to it, and it must not be opened.
    """
    try:
        server, target = httpx2.URL(server_url), httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise SignInError("the server names an invalid URL") from None
    if not url.isascii() or any(char in url for char in " \"'<>\\^`{|}") or not url.isprintable() or target.userinfo:
        raise SignInError(f"the server names a URL with characters that are not allowed: {_display_url(target)}")
    both_local = is_loopback(server.host) and is_loopback(target.host)
    if target.scheme == "https" and target.host:
        return
    if target.scheme == "http" and (both_local or _origin(target) == _origin(server)):
        return
    raise SignInError(f"the server names {_display_url(target)}, which is not https://")


_OF_THE_HOP: Final = frozenset({b"connection", b"transfer-encoding", b"content-length", b"content-encoding"})


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _port_of(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _is_loopback(address: str) -> bool:
    return is_loopback(address.partition("%")[0])


def _display_url(url: httpx2.URL) -> str:
    return printable(str(url.copy_with(userinfo=b"", query=None, fragment=None)), 200)


MAX_TOKEN: Final = 16 * 1024
"""Characters of a token; no server accepts longer headers."""
MAX_STEPS: Final = 32
"""Requests of one sign-in; the longest one takes about ten."""
SHOWN: Final = 200

# The SDK logs tracebacks of errors that the user is told anyway, with bodies that may have secrets in them.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class SignInUser(Protocol):
    """The user's side of a sign-in: the redirect address, and the browser that opens a URL and returns there."""

    redirect_uri: str

    async def comes_back(self, url: str, state: str) -> dict[str, str]:
        """Shows the URL and returns the parameters with which the browser returns. Raises SignInError."""


@dataclass
class _Memory:
    """The SDK's storage during one flow."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    received: bool = False

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        LEARNED.learn(tokens.access_token, tokens.refresh_token)
        self.tokens, self.received = tokens, True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        LEARNED.learn(client_info.client_secret)
        self.client = client_info


class TokenFlow:
    """One flow to get or renew the tokens of one server. `allow` adds addresses, as `web.allow_addresses` does."""

    def __init__(self, server: Server, allow: Sequence[str] = (), user: SignInUser | None = None) -> None:
        assert server.url is not None
        assert server.oauth is not None
        self._server = server
        self._url = server.url
        self._oauth: OAuthSettings = server.oauth
        self._user = user
        self._authorization_server = AuthorizationServer(self._url, allow, Egress.of(server.egress))

    async def refresh(self, previous: SignIn) -> SignIn:
        """Renews tokens by the refresh token.

        Raises:
            SignInError: the authorization server refused to.
            TokenUnavailable: it cannot be done at the moment.
        """
        memory = _Memory(_model(OAuthToken, previous.tokens), _model(OAuthClientInformationFull, previous.client))
        if memory.tokens is None or memory.client is None:
            raise SignInError("the stored sign-in is incomplete")
        provider = self._provider(memory, previous)
        provider.context.token_expiry_time = 1.0
        await self._drive(provider, None)
        if memory.received:
            return self._to_sign_in(provider, memory)
        if self._authorization_server.status in range(400, 500) and self._authorization_server.status not in (408, 429):
            raise SignInError(f"it could not be renewed ({self._authorization_server.last})")
        raise TokenUnavailable(f"the authorization server does not renew it ({self._authorization_server.last})")

    async def sign_in(self, challenge: Challenge, previous: SignIn | None) -> SignIn:
        """Signs in from the beginning, as the server's challenge asks.

        Raises:
            SignInError: the authorization server or the user refused.
            TokenUnavailable: it cannot be done at the moment.
        """
        memory = _Memory(client=self._client(previous))
        is_step_up = challenge.status == 403 and previous is not None
        if is_step_up and previous is not None:
            memory.tokens = _model(OAuthToken, previous.tokens)
        provider = self._provider(memory, previous if is_step_up else None)
        await self._drive(provider, self._challenge(challenge))
        if not memory.received:
            raise TokenUnavailable(f"the authorization server gave no token ({self._authorization_server.last})")
        return self._to_sign_in(provider, memory)

    async def revoke(self, signed_in: SignIn) -> bool:
        """Revokes the tokens at the authorization server (RFC 7009); returns False if it has no way to."""
        metadata = _model(OAuthMetadata, signed_in.metadata)
        client = _model(OAuthClientInformationFull, signed_in.client)
        token = signed_in.refresh_token or signed_in.access_token
        if metadata is None or client is None or metadata.revocation_endpoint is None or token is None:
            return False
        provider = self._provider(_Memory(client=client), signed_in)
        provider.context.client_info = client
        data, headers = provider.context.prepare_token_auth({"token": token, "client_id": client.client_id}, {})
        async with self._authorization_server.open() as http:
            endpoint = str(metadata.revocation_endpoint)
            response = await self._authorization_server.send(
                http, http.build_request("POST", endpoint, data=data, headers=headers)
            )
        return response.status_code == 200

    # --- the SDK's provider ------------------------------------------------------------------------------------

    def _provider(self, memory: _Memory, previous: SignIn | None) -> OAuthClientProvider:
        oauth = self._oauth
        provider = self._client_credentials_provider() if oauth.grant == "client_credentials" else None
        if provider is None:
            redirect = [AnyUrl(self._user.redirect_uri)] if self._user is not None else [AnyUrl("http://127.0.0.1/")]
            provider = OAuthClientProvider(
                self._url,
                OAuthClientMetadata(
                    redirect_uris=redirect,
                    client_name="mcp-hub",
                    scope=" ".join(oauth.scopes) or None,
                    token_endpoint_auth_method=oauth.token_endpoint_auth_method,
                ),
                memory,
                self._show,
                self._come_back,
                oauth.client_metadata_url,
            )
        provider.context.storage = memory
        self._context = provider.context
        if previous is not None:
            provider.context.oauth_metadata = _model(OAuthMetadata, previous.metadata)
            provider.context.protected_resource_metadata = _model(ProtectedResourceMetadata, previous.resource)
            provider.context.auth_server_url = previous.authorization_server
        return provider

    def _client_credentials_provider(self) -> OAuthClientProvider:
        """Returns the provider for the hub as itself, without a user (client credentials)."""
        oauth, scope = self._oauth, " ".join(self._oauth.scopes) or None
        assert oauth.client_id is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDK warns that no issuer is named, which is optional
            if oauth.private_key is not None:
                signed = SignedJWTParameters(
                    issuer=oauth.client_id,
                    subject=oauth.client_id,
                    signing_key=oauth.private_key.get_secret_value(),
                    signing_algorithm=oauth.signing_algorithm,
                )
                assertion = signed.create_assertion_provider()
                return PrivateKeyJWTOAuthProvider(
                    self._url, _Memory(), oauth.client_id, assertion, scope=scope, issuer=oauth.issuer
                )
            assert oauth.client_secret is not None
            method = oauth.token_endpoint_auth_method
            return ClientCredentialsOAuthProvider(
                self._url, _Memory(), oauth.client_id, oauth.client_secret.get_secret_value(),
                token_endpoint_auth_method="client_secret_basic" if method is None or method == "none" else method,
                scope=scope, issuer=oauth.issuer,
            )  # fmt: skip

    def _client(self, previous: SignIn | None) -> OAuthClientInformationFull | None:
        """Returns the configured client, or the one registered for the redirect address; else None."""
        oauth = self._oauth
        if oauth.client_id is not None:
            secret = oauth.client_secret.get_secret_value() if oauth.client_secret is not None else None
            return OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=secret,
                redirect_uris=[AnyUrl(self._user.redirect_uri)] if self._user is not None else None,
                token_endpoint_auth_method=oauth.token_endpoint_auth_method or ("none" if secret is None else None),
                issuer=oauth.issuer,
            )
        registered = _model(OAuthClientInformationFull, previous.client) if previous is not None else None
        uris = [str(uri) for uri in registered.redirect_uris or ()] if registered is not None else []
        return registered if self._user is not None and self._user.redirect_uri in uris else None

    def _challenge(self, challenge: Challenge) -> httpx2.Response:
        """Returns the server's challenge with the configured scopes in place of its own; for a 403 it has both."""
        scopes = " ".join(self._oauth.scopes) or challenge.field("scope")
        if challenge.status == 403:
            scopes = " ".join(dict.fromkeys([*(challenge.field("scope") or "").split(), *self._oauth.scopes]))
        fields = {
            "error": challenge.field("error"),
            "resource_metadata": challenge.field("resource_metadata"),
            "scope": scopes,
        }
        parts = [f'{name}="{value}"' for name, value in fields.items() if value and value.isascii()]
        header = f"Bearer {', '.join(parts)}".strip()
        return httpx2.Response(challenge.status, headers={"WWW-Authenticate": header}, content=b"")

    async def _show(self, url: str) -> None:
        client, metadata, oauth = self._context.client_info, self._context.oauth_metadata, self._oauth
        if client is None or (oauth.client_id is not None and client.client_id != oauth.client_id):
            raise SignInError(f"the server names another authorization server than {oauth.issuer} (auth.issuer)")
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise SignInError("the authorization server does not say that it supports PKCE (S256)")
        if client.client_secret is not None and client.token_endpoint_auth_method is None:
            supported = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
            methods = ("client_secret_basic", "client_secret_post", "none")
            client.token_endpoint_auth_method = next(
                (method for method in methods if method in (supported or methods)), methods[0]
            )
        check_url(self._url, url)
        self._authorize_url = url

    async def _come_back(self) -> AuthorizationCodeResult:
        if self._user is None:
            raise SignInError("signing in needs a user")
        state = parse_qs(urlsplit(self._authorize_url).query).get("state", [""])[0]
        params = await self._user.comes_back(self._authorize_url, state)
        if "error" in params or "code" not in params:
            code = error_code(params.get("error"))
            raise SignInError(f"the authorization server refused ({code})")
        return AuthorizationCodeResult(code=params["code"], state=params.get("state"), iss=params.get("iss"))

    # --- sending -----------------------------------------------------------------------------------------------

    async def _drive(self, provider: OAuthClientProvider, challenge: httpx2.Response | None) -> None:
        """Runs the SDK's flow until it would send the authorized request itself."""
        mcp_request = httpx2.Request("POST", self._url, headers={"MCP-Protocol-Version": "2025-11-25"})
        flow = provider.async_auth_flow(mcp_request)
        async with self._authorization_server.open() as http:
            try:
                outgoing = await anext(flow)
                for _ in range(MAX_STEPS):
                    if outgoing is not mcp_request:
                        response = await self._authorization_server.send(http, outgoing)
                    elif challenge is not None:
                        challenge.request = mcp_request
                        response, challenge = challenge, None
                    else:
                        return
                    outgoing = await flow.asend(response)
                raise TokenUnavailable(f"the sign-in took more than {MAX_STEPS} requests")
            except StopAsyncIteration:
                return
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise TokenUnavailable(f"a request of the sign-in failed ({type(error).__name__})") from None
            except (OAuthFlowError, ValidationError, ValueError) as error:
                raise self._user_error(error) from None
            finally:
                await flow.aclose()

    def _user_error(self, error: Exception) -> Exception:
        """Makes the error for the user. Bodies of answers are left out, as they may hold secrets."""
        if isinstance(error, ValidationError | OAuthRegistrationError):
            failure = (
                "did not register the hub" if isinstance(error, OAuthRegistrationError) else "sent an invalid answer"
            )
            advice = "where it has to be done by hand, give client_id under auth"
            if self._context.oauth_metadata is None:  # the request to register was a guess
                advice += f"; if the server needs a key or token, write it into servers.{self._server.id}.headers"
            return SignInError(f"the authorization server {failure} ({self._authorization_server.last}); {advice}")
        status = self._authorization_server.status or 0
        if status >= 500 or status == 429:
            return TokenUnavailable(f"the authorization server failed ({self._authorization_server.last})")
        if status >= 400 and self._authorization_server.error:
            return SignInError(f"the authorization server refused ({self._authorization_server.last})")
        oauth = self._oauth
        secrets = [
            secret.get_secret_value() for secret in (oauth.client_secret, oauth.private_key) if secret is not None
        ]
        return SignInError(printable(Redactor(secrets).text(str(error) or type(error).__name__), SHOWN))

    def _to_sign_in(self, provider: OAuthClientProvider, memory: _Memory) -> SignIn:
        """Returns the sign-in to keep. Raises TokenUnavailable for a token that no header can carry."""
        tokens, context = memory.tokens, provider.context
        assert tokens is not None
        token = tokens.access_token
        if not 0 < len(token) <= MAX_TOKEN or not all("\x21" <= char <= "\x7e" for char in token):
            raise TokenUnavailable("the authorization server gave a token that no header can carry")
        expires = None if tokens.expires_in is None else time.time() + tokens.expires_in
        client = context.client_info if self._oauth.grant == "authorization_code" else None
        return SignIn(
            tokens=_json(tokens),
            expires_at=expires,
            client=_json(client),
            metadata=_json(context.oauth_metadata),
            resource=_json(context.protected_resource_metadata),
            authorization_server=context.auth_server_url,
        )


def _json(model: BaseModel | None) -> Json | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _model(model: type[Any], value: Json | None) -> Any:
    """Returns a stored value as a model; None if it is missing or not valid any more."""
    try:
        return None if value is None else model.model_validate(value)
    except ValidationError:
        return None
