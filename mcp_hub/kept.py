"""The last catalog of each upstream on disk, so that from the second start on the list is complete at once.

What is kept is raw: policies run on it exactly as on a live answer. Whatever is wrong with a file, it is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from mcp_hub.config.models import Server
from mcp_hub.kinds import KINDS
from mcp_hub.wire.frames import FrameError, decode, encode

log = logging.getLogger("mcp_hub.kept")

FORMAT: Final = 2
"""Part of every key: a file of another format is simply not found."""
MAX_SIZE: Final = 64 * 1024 * 1024
_KEY_FILE: Final = "key"
_KEY_SIZE: Final = 32
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What file systems without hard links answer."""


@dataclass(frozen=True, slots=True)
class Kept:
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
    """The store; neither method ever raises. The directory is made 0700 on demand, the files are 0600."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._secret: bytes | None = None

    def load(self, server: Server) -> Kept | None:
        """What was kept of exactly this entry; None if nothing can be used."""
        if not server.keep_catalog:
            return None
        try:
            data = self._read(self._path(server), MAX_SIZE)
        except (OSError, ValueError) as error:
            # Nothing kept yet is the usual case; anything else in its place is worth a look.
            level = logging.DEBUG if isinstance(error, FileNotFoundError) else logging.WARNING
            log.log(level, "nothing kept of %s is used: %s", server.id, error)
            return None
        kept = _checked(data)
        if kept is None:
            log.warning("what was kept of %s is damaged and is ignored", server.id)
        return kept

    def save(self, server: Server, kept: Kept) -> None:
        """Keep it; a full or read-only disk costs only the next start its speed."""
        if not server.keep_catalog:
            return
        try:
            data = encode({"format": FORMAT, **{field.name: getattr(kept, field.name) for field in fields(kept)}})
            if len(data) > MAX_SIZE:
                log.warning("the catalog of %s is larger than %d bytes and is not kept", server.id, MAX_SIZE)
                return
            self._write(self._path(server), data)
        except (OSError, ValueError, FrameError) as error:
            log.warning("the catalog of %s could not be kept: %s", server.id, error)

    def secret(self, purpose: str) -> bytes | None:
        """A key of the user's for something else than names of files; None where nothing can be kept."""
        try:
            return hmac.digest(self._key(), purpose.encode(), hashlib.sha256)
        except (OSError, ValueError) as error:
            log.warning("there is no key for %s: %s", purpose, error)
            return None

    def _path(self, server: Server) -> Path:
        entry = _canonical(server).encode()
        digest = hmac.new(self._key(), b"%d\0" % FORMAT + entry, hashlib.sha256).hexdigest()
        return self._directory / f"{digest}.json"

    def _key(self) -> bytes:
        """The per-user random key: without it a file's name says nothing about the entry or its secrets."""
        if self._secret is None:
            path = self._directory / _KEY_FILE
            # Looked for before anything is written: on a disk that is full or read-only, what is kept still counts.
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _must_be_ours(self._directory.lstat(), self._directory, stat.S_ISDIR)
            try:
                secret = self._read(path, _KEY_SIZE)
            except FileNotFoundError:
                self._make_key(path)
                secret = self._read(path, _KEY_SIZE)
            if len(secret) != _KEY_SIZE:
                raise ValueError(f"{path} is not a key; delete it")
            self._secret = secret
        return self._secret

    def _make_key(self, path: Path) -> None:
        """Complete or not there at all; whoever comes first decides."""
        secret = secrets.token_bytes(_KEY_SIZE)
        fresh = self._fresh(secret)
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with contextlib.suppress(FileExistsError):
                _create(path, secret)
        finally:
            fresh.unlink(missing_ok=True)

    def _read(self, path: Path, limit: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            # Before a file is made of it: for a directory that fails, and the descriptor stays open.
            _must_be_ours(os.fstat(descriptor), path, stat.S_ISREG)
        except ValueError:
            os.close(descriptor)
            raise
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"{path} is larger than {limit:,} bytes")
        return data

    def _write(self, path: Path, data: bytes) -> None:
        fresh = self._fresh(data)
        try:
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def _fresh(self, data: bytes) -> Path:
        """A new file beside the others, to be put into its place by the caller."""
        path = self._directory / f".{secrets.token_hex(8)}"
        _create(path, data)
        return path


def _create(path: Path, data: bytes) -> None:
    """A new file with all of the data, or none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _must_be_ours(status: os.stat_result, path: Path, is_type: Any) -> None:
    if not is_type(status.st_mode):
        raise ValueError(f"{path} is not what it should be")
    if os.name == "posix" and (status.st_uid != os.getuid() or status.st_mode & 0o077):
        raise ValueError(f"{path} is open to others or belongs to someone else")


_RULES: Final = frozenset({
    "tags", "filters", "tools", "validate_arguments", "max_result_bytes", "postprocess", "retry", "breaker", "limits",
    "idle", "pins", "screen",
})  # fmt: skip
"""What the hub does with the lists of a server, not what the server lists: it is applied to kept ones as to others."""


def _canonical(server: Server) -> str:
    fields = server.model_dump(mode="python", exclude=set(_RULES))
    for name in ("env", "headers"):
        fields[name] = {key: value.get_secret_value() for key, value in getattr(server, name).items()}
    return json.dumps(fields, sort_keys=True, default=str)


def _checked(data: bytes) -> Kept | None:
    try:
        value = decode(data)
    except FrameError:
        return None
    if not isinstance(value, dict) or value.pop("format", None) != FORMAT:
        return None
    lists = value.get("lists")
    sound = (
        value.keys() == Kept.__dataclass_fields__.keys()
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
