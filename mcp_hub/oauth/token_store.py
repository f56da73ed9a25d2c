"""Sign-ins and their store: a file for each, or the system's keyring with a file that shows when it changed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.extras import KeyringError, delete_secret, read_secret, write_secret
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import HubError
from mcp_hub.security.private_files import PrivateDirectory, lock, newer_format
from mcp_hub.transport import Challenge

SERVICE: Final = "mcp-hub"
"""The service name in the keyring."""
MAX_SIZE: Final = 1024 * 1024
LOCK_WAIT: Final = 35.0
"""Seconds to wait for another process that renews the same tokens, a little more than a renewal may take."""
LOCK_LOOK: Final = 0.05

Stamp = tuple[int, int, int]
"""Modification time, inode and size: changes when a file is replaced."""


class TokenStoreError(HubError):
    """Tokens cannot be read or saved. `str()` is for the user."""


def default_directory() -> Path:
    """Returns the directory of tokens unless the configuration names another one."""
    import platformdirs

    return Path(platformdirs.user_data_dir("mcp-hub", appauthor=False)) / "tokens"


def token_store_for(config: Config) -> TokenStore:
    """Returns the store that a configuration names."""
    return TokenStore(config.token_dir or default_directory(), in_keyring=config.token_store == "keyring")


class TokenStore:
    """Stores sign-ins by id, URL and client of a server, so that tokens never go to another address or client."""

    def __init__(self, directory: Path, *, in_keyring: bool = False) -> None:
        self._files = PrivateDirectory(directory)
        self._in_keyring = in_keyring

    def where(self, server: Server) -> str:
        """Returns where a sign-in is stored, in words."""
        return "the system's keyring" if self._in_keyring else str(self._files.directory / self._name(server))

    def stamp(self, server: Server) -> Stamp | None:
        """Returns a value that changes when another process changes the sign-in; None if there is none."""
        try:
            status = (self._files.directory / self._name(server)).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def load(self, server: Server) -> SignIn | None:
        """Loads a sign-in; None if there is none. Raises TokenStoreError."""
        try:
            stored = json.loads(self._files.read(self._name(server), MAX_SIZE))
            self._refuse_newer(server, stored)
            if self._in_keyring and isinstance(stored, dict):
                secret_json = read_secret(SERVICE, self._user(server))
                stored |= json.loads(secret_json) if secret_json is not None else dict.fromkeys(SECRET)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError, KeyringError) as error:
            raise TokenStoreError(
                f"the tokens of {server.id!r} cannot be read: {_reason(error)}; to forget them, run: mcp-hub logout"
            ) from None
        return SignIn.from_json(stored)

    def save(self, server: Server, sign_in: SignIn) -> None:
        """Saves a sign-in. Raises TokenStoreError."""
        stored = sign_in.to_json()
        try:
            with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
                self._refuse_newer(server, json.loads(self._files.read(self._name(server), MAX_SIZE)))
            if self._in_keyring:
                secret_members = {name: stored.pop(name) for name in sorted(SECRET)}
                write_secret(SERVICE, self._user(server), json.dumps(secret_members))
                stored["changed"] = secrets.token_hex(8)
            self._files.make()
            self._files.write(self._name(server), json.dumps(stored).encode())
        except (OSError, ValueError, KeyringError) as error:
            raise TokenStoreError(f"the tokens of {server.id!r} cannot be kept: {_reason(error)}") from None

    def delete(self, server: Server) -> bool:
        """Deletes a sign-in; returns False if there was none. Raises TokenStoreError."""
        try:
            if self._in_keyring:
                delete_secret(SERVICE, self._user(server))
            (self._files.directory / self._name(server)).unlink()
        except FileNotFoundError:
            return False
        except (OSError, KeyringError) as error:
            raise TokenStoreError(f"the tokens of {server.id!r} cannot be deleted: {_reason(error)}") from None
        return True

    @contextlib.asynccontextmanager
    async def locked(self, server: Server) -> AsyncIterator[None]:
        """Runs the block while no other process renews the same tokens, which would spend the refresh token twice.

        Each client over stdio starts a hub of its own, so several processes are common. If nothing can be locked, or
        the other process takes longer than `LOCK_WAIT`, the block runs all the same.
        """
        try:
            self._files.make()
            path = self._files.directory / f"{self._name(server)}.lock"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except (OSError, ValueError):
            yield
            return
        try:
            deadline = time.monotonic() + LOCK_WAIT
            while time.monotonic() < deadline:
                try:
                    lock(fd)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_LOOK)
                except OSError:  # the file system has no locks
                    break
            yield
        finally:
            os.close(fd)

    def _refuse_newer(self, server: Server, stored: Any) -> None:
        if (newer := newer_format(stored, FORMAT)) is not None:
            path = self._files.directory / self._name(server)
            raise TokenStoreError(f"the tokens of {server.id!r} in {path} are not used: {newer}")

    def _name(self, server: Server) -> str:
        return f"{_digest(server)}.json"

    def _user(self, server: Server) -> str:
        return f"{server.id} {_digest(server)[:16]}"


def _digest(server: Server) -> str:
    grant, client = (server.oauth.grant, server.oauth.client_id) if server.oauth is not None else ("", None)
    return hashlib.sha256(repr((server.id, server.url, grant, client)).encode("utf-8", "surrogatepass")).hexdigest()


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


Json = dict[str, Any]

FORMAT: Final = 1
SECRET: Final = frozenset({"tokens", "client"})
"""The members that are secret."""


class SignInError(Exception):
    """A token can only be got with the user's help. `str()` is for the user."""


class TokenUnavailable(Exception):
    """A token cannot be got at the moment, but perhaps later. `str()` is for the user."""


class SignIn(msgspec.Struct, frozen=True):
    """The tokens for one server, and what is needed to renew them without the user."""

    tokens: Json | None = None
    """The token response, unchanged."""
    expires_at: float | None = None
    """Seconds since the epoch; None: unknown."""
    client: Json | None = None
    """The OAuth client that the hub is registered as."""
    metadata: Json | None = None
    """The authorization server's metadata."""
    resource: Json | None = None
    """The protected resource's metadata."""
    authorization_server: str | None = None
    challenge: Challenge | None = None
    """The challenge with which the server refused the tokens; the next sign-in begins with it."""

    @property
    def access_token(self) -> str | None:
        """The access token."""
        return _text(self.tokens, "access_token")

    @property
    def refresh_token(self) -> str | None:
        """The refresh token."""
        return _text(self.tokens, "refresh_token")

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """The values that must be redacted."""
        return (self.access_token, self.refresh_token, _text(self.client, "client_secret"))

    def refused(self, challenge: Challenge) -> SignIn:
        """Returns a copy with the challenge of a server that refused the tokens."""
        return msgspec.structs.replace(self, challenge=challenge)

    def to_json(self) -> Json:
        """Returns the sign-in as JSON."""
        return {"format": FORMAT, **msgspec.to_builtins(self)}

    @classmethod
    def from_json(cls, value: Any) -> SignIn | None:
        """Reads a sign-in from JSON; None if it is not valid."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            return None
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError:
            return None


def _text(value: Json | None, name: str) -> str | None:
    text = value.get(name) if value is not None else None
    return text if isinstance(text, str) and text else None
