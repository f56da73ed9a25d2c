"""An authorization server on loopback, as far as a verifier uses it: keys, and introspection of tokens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from joserfc import jwk, jwt

from tests.fakes.loopback_site import loopback_site

AUDIENCE = "https://hub.example/mcp"
CLIENT = ("hub-client", "the-secret-of-the-hub-client")


@dataclass
class Issuer:
    """`requested_paths` has the paths of all requests; `status` is that of its responses."""

    url: str = ""
    requested_paths: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    status: int = 200
    hold: asyncio.Event | None = None
    """Every response waits until it is set."""
    padding: int = 0
    """Bytes that are added to every answer."""
    keys: dict[str, Any] = field(default_factory=dict)
    introspections: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The introspection response of each token."""

    def key(self, kid: str, kind: str = "RSA") -> None:
        key_type = {"RSA": (jwk.RSAKey, 2048), "EC": (jwk.ECKey, "P-256"), "OKP": (jwk.OKPKey, "Ed25519")}[kind]
        self.keys[kid] = key_type[0].generate_key(key_type[1], {"kid": kid})  # type: ignore[arg-type]

    def with_key(self, kid: str) -> Issuer:
        self.key(kid)
        return self

    def claims(self, **overrides: Any) -> dict[str, Any]:
        now = int(time.time())
        values = {"iss": self.url, "sub": "ann", "aud": AUDIENCE, "iat": now, "exp": now + 600, "scope": "use"}
        values |= overrides
        return {name: value for name, value in values.items() if value is not None}

    def token(self, kid: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
        """A token; a claim that is None is left out."""
        head = {"alg": algorithm, "kid": kid}
        return jwt.encode(head, self.claims(**claims), self.keys[kid], algorithms=[algorithm])

    def odd_token(self, header: dict[str, Any]) -> str:
        """A token that is well signed, with a header that no library would write."""
        head = json.dumps({"alg": "RS256", "kid": "one", **header}).encode()
        signed = f"{_part(head)}.{_part(json.dumps(self.claims()).encode())}"
        private = serialization.load_pem_private_key(self.keys["one"].as_pem(private=True), None)
        assert isinstance(private, rsa.RSAPrivateKey)
        return f"{signed}.{_part(private.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    @property
    def public_key(self) -> str:
        pem: bytes = self.keys["one"].as_pem(private=False)
        return pem.decode()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requested_paths.append(request.path)
        if self.hold is not None:
            await self.hold.wait()
        if request.path == "/introspect":
            form = {name: str(value) for name, value in (await request.post()).items()}
            self.forms.append(form)
            self.authorizations.append(request.headers.get("authorization"))
            value: Any = self.introspections.get(form["token"], {"active": False})
        elif request.path == "/elsewhere":
            raise web.HTTPFound("/keys")
        else:
            value = {"keys": [key.as_dict(private=False) for key in self.keys.values()]}
        if self.padding:
            value = {**value, "padding": "x" * self.padding}
        return web.json_response(value, status=self.status)


@contextlib.asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    async with loopback_site(issuer.answer) as port:
        issuer.url = f"http://127.0.0.1:{port}"
        issuer.key("one")
        yield issuer


def unsigned(claims: dict[str, Any]) -> str:
    """A token with the algorithm `none`."""
    return f"{_part(json.dumps({'alg': 'none'}).encode())}.{_part(json.dumps(claims).encode())}."


def with_secret(claims: dict[str, Any], secret: str) -> str:
    """A token with the algorithm HS256, whatever the secret is."""
    head = json.dumps({"alg": "HS256", "kid": "one"}).encode()
    signed = f"{_part(head)}.{_part(json.dumps(claims).encode())}"
    return f"{signed}.{_part(hmac.digest(secret.encode(), signed.encode(), 'sha256'))}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
