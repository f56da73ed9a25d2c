"""The last catalog of each upstream on disk, so that from the second start on the list is complete at once.

What is kept is raw: policies run on it exactly as on a live answer. Whatever is wrong with a file, it is ignored.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.models import RULES_OF_LISTS, Server
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.security.private_files import PendingWrites, PrivateFiles
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.upstream")

FORMAT: Final = 2
"""Part of every key: a file of another format is simply not found."""
MAX_SIZE: Final = 64 * 1024 * 1024
_KEY_FILE: Final = "key"
_KEY_SIZE: Final = 32


class Kept(msgspec.Struct, frozen=True):
    """What is kept of one upstream. `lists` holds the raw items by `Kind.name`."""

    era: str
    protocol_version: str
    capabilities: dict[str, Any]
    instructions: str | None
    server_info: dict[str, Any]
    lists: dict[str, list[Any]]
    only: bool = False
    """Whether the server is known to have no other era."""


def default_directory() -> Path:
    """Where catalogs are kept unless the configuration says otherwise."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("mcp-hub", appauthor=False)) / "catalogs"


class KeptCatalogs:
    """The store; no method ever raises. The directory is made 0700 on demand, the files are 0600."""

    def __init__(self, directory: Path) -> None:
        self._files = PrivateFiles(directory)
        self._secret: bytes | None = None
        self._writes = PendingWrites()

    def load(self, server: Server) -> Kept | None:
        """What was kept of exactly this entry; None if nothing can be used."""
        if not server.keep_catalog:
            return None
        try:
            data = self._files.read(self._name(server), MAX_SIZE)
        except (OSError, ValueError) as error:
            # Nothing kept yet is the usual case; anything else in its place is worth a look.
            level = logging.DEBUG if isinstance(error, FileNotFoundError) else logging.WARNING
            log.log(level, "nothing kept of %s is used: %s", server.id, error)
            return None
        kept = _checked(data)
        if kept is None:
            log.warning("what was kept of %s is damaged and is ignored", server.id)
        return kept

    def size(self, server: Server) -> int:
        """Bytes of what is kept of an entry; 0 where there is nothing."""
        try:
            return self._files.size(self._name(server)) if server.keep_catalog else 0
        except (OSError, ValueError):
            return 0

    def save(self, server: Server, kept: Kept) -> None:
        """Keep it. What a full or read-only disk does not take is tried again, the newest catalog of each server."""
        if not server.keep_catalog:
            return
        what = f"keeping the catalog of {printable(server.id)}"
        if what not in self._writes:
            try:
                self._write(server, kept)
                return
            except (OSError, ValueError) as error:
                log.debug("%s: %s", what, error)
        self._writes.put(what, partial(asyncio.to_thread, self._write, server, kept))

    async def close(self) -> None:
        """Try once more what could not be kept, for a bounded time."""
        await self._writes.close()

    def _write(self, server: Server, kept: Kept) -> None:
        try:
            data = encode({"format": FORMAT, **{field: getattr(kept, field) for field in kept.__struct_fields__}})
        except FrameError as error:
            log.warning("the catalog of %s could not be kept: %s", server.id, error)
            return
        if len(data) > MAX_SIZE:
            log.warning("the catalog of %s is larger than %d bytes and is not kept", server.id, MAX_SIZE)
            return
        self._files.write(self._name(server), data)

    def forget(self, server: Server) -> None:
        """Keep nothing of exactly this entry any more."""
        try:
            self._files.delete(self._name(server))
        except (OSError, ValueError) as error:
            log.debug("what was kept of %s stays: %s", server.id, error)

    def secret(self, purpose: str) -> bytes | None:
        """A key of the user's for something else than names of files; None where nothing can be kept."""
        try:
            return hmac.digest(self._key(), purpose.encode(), hashlib.sha256)
        except (OSError, ValueError) as error:
            log.warning("there is no key for %s: %s", purpose, error)
            return None

    def _name(self, server: Server) -> str:
        entry = server.described(set(RULES_OF_LISTS)).encode()
        digest = hmac.new(self._key(), b"%d\0" % FORMAT + entry, hashlib.sha256).hexdigest()
        return f"{digest}.json"

    def _key(self) -> bytes:
        """The per-user random key: without it a file's name says nothing about the entry or its secrets."""
        if self._secret is None:
            # Looked for before anything is written: on a disk that is full or read-only, what is kept still counts.
            self._files.make()
            try:
                secret = self._files.read(_KEY_FILE, _KEY_SIZE)
            except FileNotFoundError:
                self._files.write_first(_KEY_FILE, secrets.token_bytes(_KEY_SIZE))
                secret = self._files.read(_KEY_FILE, _KEY_SIZE)
            if len(secret) != _KEY_SIZE:
                raise ValueError(f"{self._files.directory / _KEY_FILE} is not a key; delete it")
            self._secret = secret
        return self._secret


def _checked(data: bytes) -> Kept | None:
    try:
        value = decode(data)
    except FrameError:
        return None
    if not isinstance(value, dict) or value.pop("format", None) != FORMAT:
        return None
    lists = value.get("lists")
    sound = (
        value.keys() == set(Kept.__struct_fields__)
        and value["era"] in ("handshake", "modern")
        and isinstance(value["protocol_version"], str)
        and isinstance(value["capabilities"], dict)
        and isinstance(value["instructions"], str | None)
        and isinstance(value["server_info"], dict)
        and isinstance(value["only"], bool)
        and isinstance(lists, dict)
        and all(isinstance(lists.get(kind.name), list) for kind in KINDS)
    )
    return Kept(**value) if sound else None
