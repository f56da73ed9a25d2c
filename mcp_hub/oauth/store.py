"""Where sign-ins are kept: a file each, or the system's keyring and beside it a file that says when it changed."""

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
from typing import Final

from mcp_hub.config.models import Config, Server
from mcp_hub.config.system_keyring import KeyringFailed, delete_secret, read_secret, write_secret
from mcp_hub.errors import HubError
from mcp_hub.oauth.sign_in import SECRET, SignIn
from mcp_hub.security.private_files import PrivateFiles

SERVICE: Final = "mcp-hub"
"""Under which the keyring has what is kept in it."""
MAX_SIZE: Final = 1024 * 1024
LOCK_WAIT: Final = 35.0
"""Seconds another process gets to renew the same tokens: a little more than it takes at most."""
LOCK_LOOK: Final = 0.05

Stamp = tuple[int, int, int]
"""By which a file that was replaced is told from the one before."""


class StoreFailed(HubError):
    """Tokens can be neither read nor kept. `str()` is for the user."""


def default_directory() -> Path:
    """Where tokens are kept unless the configuration says otherwise."""
    import platformdirs

    return Path(platformdirs.user_data_dir("mcp-hub", appauthor=False)) / "tokens"


def store_of(config: Config) -> TokenStore:
    """The one a configuration names."""
    return TokenStore(config.token_dir or default_directory(), in_keyring=config.token_store == "keyring")


class TokenStore:
    """By id, URL and client of a server: tokens of one address never go to another, nor to another client."""

    def __init__(self, directory: Path, *, in_keyring: bool = False) -> None:
        self._files = PrivateFiles(directory)
        self._in_keyring = in_keyring

    def where(self, server: Server) -> str:
        """The place in words."""
        return "the system's keyring" if self._in_keyring else str(self._files.directory / self._name(server))

    def stamp(self, server: Server) -> Stamp | None:
        """Differs whenever another process has changed what is kept; None where nothing is."""
        try:
            status = (self._files.directory / self._name(server)).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def load(self, server: Server) -> SignIn | None:
        """What is kept; None if nothing is. Raises StoreFailed."""
        try:
            kept = json.loads(self._files.read(self._name(server), MAX_SIZE))
            if self._in_keyring and isinstance(kept, dict):
                hidden = read_secret(SERVICE, self._user(server))
                kept |= json.loads(hidden) if hidden is not None else dict.fromkeys(SECRET)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyringFailed) as error:
            raise StoreFailed(
                f"the tokens of {server.id!r} cannot be read: {_reason(error)}; to forget them, run: mcp-hub logout"
            ) from None
        return SignIn.from_json(kept)

    def save(self, server: Server, sign_in: SignIn) -> None:
        """Keep it. Raises StoreFailed."""
        kept = sign_in.to_json()
        try:
            if self._in_keyring:
                hidden = {name: kept.pop(name) for name in sorted(SECRET)}
                write_secret(SERVICE, self._user(server), json.dumps(hidden))
                kept["changed"] = secrets.token_hex(8)
            self._files.make()
            self._files.write(self._name(server), json.dumps(kept).encode())
        except (OSError, ValueError, KeyringFailed) as error:
            raise StoreFailed(f"the tokens of {server.id!r} cannot be kept: {_reason(error)}") from None

    def delete(self, server: Server) -> bool:
        """Forget it; False if there was nothing. Raises StoreFailed."""
        try:
            if self._in_keyring:
                delete_secret(SERVICE, self._user(server))
            (self._files.directory / self._name(server)).unlink()
        except FileNotFoundError:
            return False
        except (OSError, KeyringFailed) as error:
            raise StoreFailed(f"the tokens of {server.id!r} cannot be deleted: {_reason(error)}") from None
        return True

    @contextlib.asynccontextmanager
    async def locked(self, server: Server) -> AsyncIterator[None]:
        """While no other process renews the same tokens, which would spend the refresh token twice.

        Each client over stdio starts a hub of its own, so that several are the rule. Where nothing can be locked, or
        the other does not come back within `LOCK_WAIT`, the block runs all the same.
        """
        try:
            import fcntl

            self._files.make()
            path = self._files.directory / f"{self._name(server)}.lock"
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except (ImportError, OSError, ValueError):
            yield
            return
        try:
            until = time.monotonic() + LOCK_WAIT
            while time.monotonic() < until:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    await asyncio.sleep(LOCK_LOOK)
            yield
        finally:
            os.close(lock)

    def _name(self, server: Server) -> str:
        return f"{_digest(server)}.json"

    def _user(self, server: Server) -> str:
        return f"{server.id} {_digest(server)[:16]}"


def _digest(server: Server) -> str:
    grant, client = (server.oauth.grant, server.oauth.client_id) if server.oauth is not None else ("", None)
    return hashlib.sha256(repr((server.id, server.url, grant, client)).encode("utf-8", "surrogatepass")).hexdigest()


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
