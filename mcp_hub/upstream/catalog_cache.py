"""The catalog cache: the last lists of each upstream on disk, so that a restarted hub can serve them at once.

Lists are cached as the server sent them; policies apply to them as to live lists. A damaged file is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.models import Config, Server
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.security.private_files import PendingWrites, PrivateDirectory
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.upstream")

Json = dict[str, Any]

FORMAT: Final = 4
"""Part of the digest in every file name, so that files of another format are not found."""
MAX_SIZE: Final = 64 * 1024 * 1024
MAX_FILES: Final = 1000
"""Files that are left when a hub ends, those written last: an entry that changes, such as its token, leaves one."""
_KEY_FILE: Final = "key"
_KEY_SIZE: Final = 32


class CachedCatalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is cached of one upstream. `lists` holds the raw items by `Kind.name`."""

    era: Era
    protocol_version: str
    capabilities: dict[str, Any]
    instructions: str | None
    server_info: dict[str, Any]
    lists: dict[str, list[Any]]
    only: bool = False
    """Whether the server is known to speak this era only."""
    undeclared: tuple[str, ...] | None = None
    """The names of the kinds that it lists without having declared them; None: it was not asked yet."""


def default_directory() -> Path:
    """Returns the directory of the cache unless the configuration names another one."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("mcp-hub", appauthor=False)) / "catalogs"


class CatalogCache:
    """Loads and saves catalogs. No method raises. The directory is made with mode 0700 on demand, files with 0600."""

    def __init__(self, directory: Path) -> None:
        self._files = PrivateDirectory(directory)
        self._secret: bytes | None = None
        self._writes = PendingWrites()

    @classmethod
    def of(cls, config: Config) -> CatalogCache:
        """Returns the cache in the directory that a configuration names, or in the default one."""
        return cls(config.cache_dir or default_directory())

    def load(self, server: Server, declared: Json | None = None) -> CachedCatalog | None:
        """Returns what is cached for exactly this entry; None if there is nothing usable.

        Args:
            declared: the client capabilities that the server will be told, as it may list by them. If nothing is
                cached for them, it is what is cached for all that a client may have. None: that.
        """
        if declared is not None and (cached := self._load(server, declared)) is not None:
            return cached
        return self._load(server, None)

    def _load(self, server: Server, declared: Json | None) -> CachedCatalog | None:
        if not server.keep_catalog:
            return None
        try:
            data = self._files.read(self._name(server, declared), MAX_SIZE)
        except (OSError, ValueError) as error:
            # It is normal that there is no file yet; any other failure deserves a warning.
            level = logging.DEBUG if isinstance(error, FileNotFoundError) else logging.WARNING
            log.log(level, "the cached catalog of %s is not used: %s", server.id, error)
            return None
        cached = _checked(data)
        if cached is None:
            log.warning("the cached catalog of %s is damaged and is ignored", server.id)
            with contextlib.suppress(OSError, ValueError):
                self._files.delete(self._name(server, declared))  # so that the next catalog is saved in its place
        return cached

    def size(self, server: Server) -> int:
        """Returns the size in bytes of what is cached for an entry; 0 if there is nothing."""
        try:
            return self._files.size(self._name(server)) if server.keep_catalog else 0
        except (OSError, ValueError):
            return 0

    def save(self, server: Server, cached: CachedCatalog, declared: Json | None = None) -> None:
        """Saves a catalog. If the disk is full or read-only, the newest catalog of each server is tried again later.

        Args:
            declared: the client capabilities that the server was told; None: all that a client may have.
        """
        if not server.keep_catalog:
            return
        if declared is not None and not self.size(server):
            self.save(server, cached)  # better than nothing for other clients
        label = f"keeping the catalog of {printable(server.id)}{' for a client' if declared is not None else ''}"
        if label not in self._writes:
            try:
                self._write(server, cached, declared)
                return
            except (OSError, ValueError) as error:
                log.debug("%s: %s", label, error)
        self._writes.put(label, partial(asyncio.to_thread, self._write, server, cached, declared))

    async def close(self) -> None:
        """Tries once more, for a bounded time, to save what could not be saved, and deletes the oldest files."""
        await self._writes.close()
        with contextlib.suppress(RuntimeError):  # a program that ends has no threads any more: the next run deletes
            await asyncio.to_thread(self._delete_oldest)

    def _delete_oldest(self) -> None:
        try:
            paths = [path for path in self._files.directory.iterdir() if path.suffix in (".json", ".late")]
            for _, name in sorted((path.lstat().st_mtime, path.name) for path in paths)[:-MAX_FILES]:
                self._files.delete(name)
        except (OSError, ValueError) as error:
            log.debug("old catalogs are not deleted: %s", error)

    def _write(self, server: Server, cached: CachedCatalog, declared: Json | None) -> None:
        try:
            data = encode({"format": FORMAT, **msgspec.structs.asdict(cached)})
        except FrameError as error:
            log.warning("the catalog of %s cannot be cached: %s", server.id, error)
            return
        if len(data) > MAX_SIZE:
            log.warning("the catalog of %s is larger than %d bytes and is not cached", server.id, MAX_SIZE)
            return
        self._files.write(self._name(server, declared), data)

    def was_late(self, server: Server) -> bool:
        """Returns whether the server came too late for the first list of the last start."""
        try:
            return bool(self._files.size(self._name(server, late=True)))
        except (OSError, ValueError):
            return False

    def note_late(self, server: Server, *, late: bool) -> None:
        """Notes whether the server came too late for the first list of this start."""
        try:
            if late:
                self._files.write(self._name(server, late=True), b"late")
            else:
                self._files.delete(self._name(server, late=True))
        except (OSError, ValueError) as error:
            log.debug("it is not noted whether %s is late: %s", server.id, error)

    def forget(self, server: Server) -> None:
        """Deletes what is cached for exactly this entry, for all client capabilities."""
        try:
            for path in self._files.directory.glob(f"{self._name(server).removesuffix('.json')}*.json"):
                self._files.delete(path.name)
        except (OSError, ValueError) as error:
            log.debug("the cached catalog of %s cannot be deleted: %s", server.id, error)

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return self._files.directory

    def secret(self, purpose: str) -> bytes | None:
        """Derives a secret of this user for another purpose; None if the cache directory cannot be used."""
        try:
            return hmac.digest(self._key(), purpose.encode(), hashlib.sha256)
        except (OSError, ValueError) as error:
            log.warning("no key for %s can be derived: %s", purpose, error)
            return None

    def _name(self, server: Server, declared: Json | None = None, *, late: bool = False) -> str:
        # What a server lists does not depend on how long its sessions are kept.
        entry = server.model_copy(update={"idle": 0.0}).connection.encode()
        name = hmac.new(self._key(), b"%d\0" % FORMAT + entry, hashlib.sha256).hexdigest()
        if declared is not None:
            name += "-" + hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:16]
        return f"{name}.{'late' if late else 'json'}"

    def _key(self) -> bytes:
        """Returns the random key of this user: without it, a file's name reveals nothing about the entry's secrets."""
        if self._secret is None:
            # Reading comes first, so that the cache can still be read on a disk that is full or read-only.
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


def _checked(data: bytes) -> CachedCatalog | None:
    try:
        value = decode(data)
        if not isinstance(value, dict) or value.pop("format", None) != FORMAT:
            return None
        cached = msgspec.convert(value, CachedCatalog)
    except (FrameError, msgspec.ValidationError):
        return None
    return cached if all(kind.name in cached.lists for kind in KINDS) else None
