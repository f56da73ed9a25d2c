"""The key `auth` of an entry with a `url`, where it says how to sign in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from mcp_hub.config.canonical import only_known
from mcp_hub.config.checks import ValidationError
from mcp_hub.config.fields import Fields, Given
from mcp_hub.config.findings import Findings
from mcp_hub.config.oauth import Algorithm, ClientAuth, Grant, OAuth, is_loopback
from mcp_hub.config.secret_str import SecretStr

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, 3.3."""
_OTHER_KEYS: Final = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scopes"}
"""As other hosts spell them."""


def read_oauth(fields: Fields, findings: Findings) -> OAuth | None:
    """`auth: oauth` or a mapping; None for anything else, which is a bearer token or nothing."""
    given = fields.given.get("auth")
    if given is None or not (given.value == "oauth" or isinstance(given.value, dict)):
        return None
    url = fields.text("url")
    if url is None:
        fields.error(given.at, "is for an entry with a 'url'")
        return None
    if not _is_private_channel(url):
        fields.error(given.at, "needs a url with https:// (or one on this machine): tokens could be read on the way")
    values: Mapping[str, Any] = {} if given.value == "oauth" else given.value
    values = {_OTHER_KEYS.get(key, key): value for key, value in values.items()}
    if values.get("type", "oauth") != "oauth":
        fields.error((*given.at, "type"), "must be oauth")
    known = only_known(values, ("type", *OAuth.model_fields), given.at, findings)
    inner = fields.inner({name: Given(item, (*given.at, name)) for name, item in known.items()})
    read: dict[str, Any] = {
        "grant": inner.choice("grant", {word: word for word in get_args(Grant)}),
        "client_id": inner.text("client_id"),
        "client_secret": _secret(inner, "client_secret"),
        "token_endpoint_auth_method": inner.choice(
            "token_endpoint_auth_method", {word: word for word in get_args(ClientAuth)}
        ),
        "private_key": _secret(inner, "private_key"),
        "signing_algorithm": inner.choice("signing_algorithm", {word: word for word in get_args(Algorithm)}),
        "scopes": inner.parsed("scopes", _scopes),
        "issuer": inner.parsed("issuer", _address),
        "redirect_port": inner.parsed("redirect_port", _port),
        "client_metadata_url": inner.parsed("client_metadata_url", _document),
    }
    try:
        return OAuth(**{name: item for name, item in read.items() if item is not None})
    except ValidationError as error:
        for _, text in error.errors:
            fields.error(given.at, text)
        return None


def _secret(fields: Fields, name: str) -> SecretStr | None:
    text = fields.text(name)
    return None if text is None else SecretStr(text.strip())


def _is_private_channel(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or is_loopback(parts.hostname)
    except ValueError:
        return True  # told where the url is read


def _scopes(value: Any) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) and _SCOPE.fullmatch(word) for word in words):
        raise ValueError("must be a list of scopes, or a text with spaces between them")
    return tuple(dict.fromkeys(words))


def _port(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError("must be a port, a whole number from 1 to 65535")
    return value


def _address(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.startswith(("https://", "http://")):
        raise ValueError("must be the https:// address of an authorization server")
    return value


def _document(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.startswith("https://"):
        raise ValueError("must be an https:// address with a path")
    if urlsplit(value).path in ("", "/"):
        raise ValueError("must be an https:// address with a path")
    return value
