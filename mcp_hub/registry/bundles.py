"""MCP bundles (MCPB): downloads them, checks their SHA-256, unpacks them for this user, and reads their command line.

A download may be redirected to another host, as release pages do, because the digest is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import re
import secrets
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.config.credentials import is_loopback
from mcp_hub.protocol.frames import decode
from mcp_hub.registry import Argument, Package, RegistryError, Setting, Template, UserInput
from mcp_hub.registry.launch import check_launch
from mcp_hub.registry.origin_client import OriginClient, OriginRedirect
from mcp_hub.security.private_files import read_regular, remove_tree
from mcp_hub.text import find_hidden_characters, printable
from mcp_hub.transport.egress import Egress

MAX_BUNDLE: Final = 256 * 1024 * 1024
MAX_UNPACKED: Final = 1024 * 1024 * 1024
MAX_MEMBERS: Final = 20_000
MAX_DEPTH: Final = 64
"""Directories around one file of a bundle."""
MAX_MANIFEST: Final = 1024 * 1024
MAX_WORDS: Final = 256
DOWNLOAD: Final = 300.0
"""Seconds for the download of a bundle."""
MAX_REDIRECTS: Final = 4
_REMOVED: Final = ".removed-"
_PLACEHOLDER: Final = re.compile(r"\$\{([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


def default_directory() -> Path:
    """Returns the directory for the unpacked bundles of this user."""
    import platformdirs

    return Path(platformdirs.user_data_dir("mcp-hub", appauthor=False)) / "bundles"


class BundleStore:
    """The bundles of this user, each in a directory that is named by its digest.

    `egress`: makes the connections for downloads; None: by the proxy settings of the environment.
    """

    def __init__(self, directory: Path, egress: Egress | None = None) -> None:
        self._directory = directory
        self._egress = egress

    def has(self, package: Package) -> bool:
        """Returns whether a bundle is unpacked."""
        return self._path(package).is_dir()

    async def get(self, package: Package, home: Path) -> Package:
        """Returns the package with the command line of its manifest. Downloads and unpacks a bundle that is missing.

        Raises:
            RegistryError: the bundle cannot be downloaded or unpacked, has another digest, or has no usable manifest.
        """
        if not self.has(package):
            content = await _download(package.identifier, self._egress)
            if hashlib.sha256(content).hexdigest() != package.sha256:
                raise RegistryError("the bundle is not the one that the registry lists: its SHA-256 is another")
            await asyncio.to_thread(self._unpack, content, self._path(package))
        return await asyncio.to_thread(_with_manifest, package, self._path(package), home)

    def remove(self, digest: str) -> None:
        """Removes an unpacked bundle. `restore` can bring it back until the next one is removed."""
        path, removed_path = self._directory / digest, self._removed_path(digest)
        if not path.is_dir():
            return
        for older in self._directory.glob(f"{_REMOVED}*"):
            remove_tree(older)
        with contextlib.suppress(OSError):  # Windows does not move the files of a program that still runs
            path.replace(removed_path)

    def restore(self, digest: str) -> None:
        """Brings a bundle back if it is the one that was removed last."""
        with contextlib.suppress(OSError):
            self._removed_path(digest).replace(self._directory / digest)

    def _removed_path(self, digest: str) -> Path:
        return self._directory / f"{_REMOVED}{digest}"

    def _path(self, package: Package) -> Path:
        assert package.sha256 is not None
        return self._directory / package.sha256

    def _unpack(self, content: bytes, path: Path) -> None:
        temporary = path.with_name(f".{secrets.token_hex(8)}")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Reading the list takes far more memory than the file has, so its length is known before.
            if content.count(_MEMBER) > MAX_MEMBERS:
                raise RegistryError(f"the bundle has more than {MAX_MEMBERS:,} files")
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                temporary.mkdir(mode=0o700)
                remaining = MAX_UNPACKED
                for member in archive.infolist():
                    remaining -= _extract(archive, member, temporary, remaining)
            temporary.replace(path)
        except _BROKEN:
            raise RegistryError("the bundle is not a ZIP file that can be unpacked") from None
        except OSError as error:
            raise RegistryError(f"the bundle cannot be unpacked: {error.strerror or type(error).__name__}") from None
        finally:
            remove_tree(temporary)


_MEMBER: Final = b"PK\x01\x02"
_BROKEN: Final = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, struct.error, zlib.error)
_DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|.*[. ]", re.IGNORECASE)
"""Names that mean something else to Windows."""


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path, remaining: int) -> int:
    """Unpacks one file and returns its size. Refuses what is no file, and a name that leads out of the directory."""
    path, kind = PurePosixPath(member.filename), stat.S_IFMT(member.external_attr >> 16)
    has_odd_characters = re.search(r'[\\:*?"<>|]', member.filename) is not None or not member.filename.isprintable()
    is_odd = has_odd_characters or path.is_absolute() or not path.parts or any(map(_DEVICE.fullmatch, path.parts))
    if is_odd or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise RegistryError(f"the bundle has a file that leads out of it: {printable(member.filename, 100)!r}")
    if len(path.parts) > MAX_DEPTH:
        raise RegistryError(f"the bundle has a file in more than {MAX_DEPTH} directories")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError
    target = directory.joinpath(*path.parts)
    if member.is_dir():
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        return 0
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    size = 0
    with archive.open(member) as source, target.open("xb") as file:
        while chunk := source.read(1 << 20):
            size += len(chunk)
            if size > remaining:
                raise RegistryError(f"the bundle is larger than {MAX_UNPACKED:,} bytes when unpacked")
            file.write(chunk)
    target.chmod(0o700 if member.external_attr >> 16 & 0o111 else 0o600)
    return size


async def _download(url: str, egress: Egress | None) -> bytes:
    private = is_loopback(urlsplit(url).hostname)
    for _ in range(MAX_REDIRECTS + 1):
        async with OriginClient(url, "the bundle", egress=egress, answer=DOWNLOAD, limit=MAX_BUNDLE) as client:
            try:
                content = await client.fetch()
            except OriginRedirect as redirect:
                url = redirect.target
                # A listing must not lead the hub to a service of this machine.
                if not private and is_loopback(urlsplit(url).hostname):
                    raise RegistryError(f"the bundle is redirected to {printable(url, 200)!r}") from None
                continue
        if content is None:
            raise RegistryError("the bundle is not there (HTTP 404)")
        return content
    raise RegistryError(f"the bundle is redirected more than {MAX_REDIRECTS} times")


def _with_manifest(package: Package, directory: Path, home: Path) -> Package:
    try:
        manifest: Any = decode(read_regular(directory / "manifest.json", MAX_MANIFEST)[0])
        server = manifest["server"]["mcp_config"]
        user_config = manifest.get("user_config") or {}
        command, args, env = server["command"], server.get("args") or [], server.get("env") or {}
        overrides = (server.get("platform_overrides") or {}).get(_platform()) or {}
        command, args, env = (
            overrides.get("command", command),
            overrides.get("args", args),
            {**env, **overrides.get("env", {})},
        )
        argv = [command, *args]
        if len(argv) > MAX_WORDS or not all(isinstance(argument, str) for argument in argv):
            raise ValueError
        reader = _ManifestReader(directory, home, user_config)
        arguments, settings = tuple(reader.arguments(argv)), tuple(reader.settings(env))
        program = arguments[0].value
        if program is None or not program.fixed:  # a program must not depend on what the user types
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RegistryError("the bundle has no manifest.json that says how to start it") from None
    offer = msgspec.structs.replace(package, arguments=arguments, environment=settings)
    check_launch(offer)
    return offer


def _platform() -> str:
    return sys.platform if sys.platform in ("win32", "darwin") else "linux"


class _ManifestReader:
    """Reads the texts of a manifest, with `${...}` as paths and inputs. Its methods raise ValueError or KeyError."""

    def __init__(self, directory: Path, home: Path, user_config: Mapping[str, Any]) -> None:
        self._user_config = user_config
        self._variables = {
            "__dirname": str(directory),
            "HOME": str(home),
            "DESKTOP": str(home / "Desktop"),
            "DOCUMENTS": str(home / "Documents"),
            "DOWNLOADS": str(home / "Downloads"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def arguments(self, argv: list[str]) -> Iterator[Argument]:
        for argument in argv:
            template = self._template(argument)
            yield Argument(None, template, any(item.repeated for item in template.inputs))

    def settings(self, variables: Mapping[str, Any]) -> Iterator[Setting]:
        for name, value in variables.items():
            if not _NAME.fullmatch(name) or not isinstance(value, str):
                raise ValueError
            yield Setting(name, self._template(value))

    def _template(self, text: str) -> Template:
        if find_hidden_characters(text, lines=False):
            raise ValueError
        pieces: list[str | UserInput] = []
        end = 0
        for placeholder in _PLACEHOLDER.finditer(text):
            pieces.append(text[end : placeholder.start()])
            end = placeholder.end()
            name = placeholder[1].removeprefix("user_config.")
            pieces.append(self._variables[name] if name == placeholder[1] else self._input(name))
        pieces.append(text[end:])
        if any(isinstance(piece, str) and "${" in piece for piece in pieces):
            raise ValueError
        return Template(tuple(piece for piece in pieces if piece != "") or ("",))

    def _input(self, name: str) -> UserInput:
        option = self._user_config[name]
        default = option.get("default")
        if isinstance(default, list):
            default = "\n".join(map(str, default))
        elif isinstance(default, bool):
            default = "true" if default else "false"
        if default is not None:
            filled = self._template(str(default)).fixed
            if filled is None:
                raise ValueError
            default = filled
        return UserInput(
            name=name,
            description=printable(str(option.get("description") or option.get("title") or ""), 300),
            required=option.get("required") is True,
            secret=option.get("sensitive") is True,
            default=default,
            repeated=option.get("multiple") is True,
        )
