"""`store` as a frozen model: the Redis or Valkey server through which several replicas are one hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from mcp_hub.config.field_types import After, SecretStr
from mcp_hub.config.settings import Frozen

MIN_KEY: Final = 32
"""The minimum length of a replica key, in bytes; shorter ones can be guessed."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _check_url(value: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(value.get_secret_value())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as redis://redis.internal:6379/0") from None
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return value
    if parts.scheme not in ("redis", "rediss") or not host or parts.query or parts.fragment:
        raise ValueError("must be a URL such as redis://redis.internal:6379/0, rediss://... or unix:///path")
    return value


def _check_prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError("must be 1 to 64 letters, digits, '.', '_' and '-'")
    return value


def _check_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/") or parts.query:
        raise ValueError("must be the URL of this replica's listener, such as http://10.0.0.7:8808")
    return f"{parts.scheme}://{parts.netloc}"


def _check_keys(value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    if any(len(key.get_secret_value().encode()) < MIN_KEY for key in value):
        raise ValueError(f"each key must have at least {MIN_KEY} bytes; make one with: openssl rand -hex 32")
    return value


class StoreSettings(Frozen):
    """The Redis or Valkey server that the replicas of one hub share."""

    SHORT: ClassVar[Mapping[type, str]] = {str: "url"}
    NOT_SHOWN: ClassVar[frozenset[str]] = frozenset({"url", "keys"})

    url: Annotated[SecretStr, After(_check_url)]
    """`redis://[user[:password]@]host[:port][/database]`, `rediss://` for TLS, `unix:///path` for a socket."""
    prefix: Annotated[str, After(_check_prefix)] = "mcp-hub"
    """The first part of every key in the store. Replicas with the same prefix are one hub."""
    keys: Annotated[tuple[SecretStr, ...], After(_check_keys)] = ()
    """The replica keys: the first seals, all of them open. None: the replicas make a key and keep it in the store."""
    address: Annotated[str, After(_check_address)] | None = None
    """The URL under which other replicas reach this one; None: the address of its listener."""

    @property
    def place(self) -> str:
        """The place of the store, without user and password: a host with its port, or the path of a socket."""
        parts = urlsplit(self.url.get_secret_value())
        return parts.path if parts.hostname is None else f"{parts.hostname}:{parts.port or 6379}"
