"""Finds newer versions of pinned packages: in the registry that an entry comes from, else in the package index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.commands import child_environment
from mcp_hub.config.models import Server
from mcp_hub.config.package_specs import find_packages
from mcp_hub.editing.server_file import ServerFile, Word
from mcp_hub.registry import Package, RegistryError
from mcp_hub.registry.package_index import PackageIndex
from mcp_hub.registry.sources import Source
from mcp_hub.registry.versions import is_newer
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress

AT_ONCE: Final = 8
"""Servers whose versions are looked up at the same time."""


class Update(msgspec.Struct, frozen=True):
    """A word of a command line that pins a package, and its replacement with the newer version."""

    id: str
    word: Word
    package: str
    version: str
    newer: str
    becomes: str


class Unknown(msgspec.Struct, frozen=True):
    """A server whose newest version is not known, and why."""

    id: str
    why: str


class UpdateFinder:
    """Finds the updates of one file."""

    def __init__(
        self,
        file: ServerFile,
        registry: Callable[[], Source],
        environ: Mapping[str, str],
        home: Path,
        egress: Egress | None = None,
    ) -> None:
        self._egress = egress
        self._file = file
        self._registry = registry
        self._environ = environ
        self._home = home

    async def find(self, servers: Sequence[Server]) -> list[Update | Unknown]:
        """Returns the updates of all servers."""
        semaphore = asyncio.Semaphore(AT_ONCE)

        async def find_updates(server: Server) -> Sequence[Update | Unknown]:
            async with semaphore:
                try:
                    return await self._of_server(server)
                except RegistryError as error:
                    return [Unknown(server.id, str(error))]

        return [outcome for outcomes in await asyncio.gather(*map(find_updates, servers)) for outcome in outcomes]

    async def _of_server(self, server: Server) -> list[Update]:
        words = list(self._file.words(server.id))
        registry_name = self._file.entry(server.id).values.get("registry")
        if isinstance(registry_name, str) and words:
            return await self._of_registry(server.id, registry_name, words)
        # The launcher sees the same: the hub gives it a small environment and that of the entry.
        index = PackageIndex(child_environment(server, self._environ, self._home), self._home, self._egress)
        updates = []
        for spec in find_packages(server.command or "", server.args):
            word = next(
                (item for item in words if item.text == spec.written or item.text.endswith(f"={spec.written}")),
                None,
            )
            if spec.version is None or word is None:
                continue
            newer = await index.newest(spec.kind, spec.name)
            if is_newer(newer, spec.version):
                becomes = word.text[: len(word.text) - len(spec.written)] + spec.at(newer)
                updates.append(Update(server.id, word, spec.name, spec.version, newer, becomes))
        return updates

    async def _of_registry(self, id: str, name: str, words: Sequence[Word]) -> list[Update]:
        source = self._registry()
        listing = await source.find(name)
        if listing is None or listing.status == "deleted":
            raise RegistryError(f"{source.label} has withdrawn {printable(name, 200)}")
        packages = [offer for offer in listing.offers if isinstance(offer, Package)]
        updates = []
        for package in packages:
            for word in words:
                before, version = _split_pin(word.text, package)
                if version is not None and is_newer(package.version, version):
                    becomes = before + package.version
                    updates.append(Update(id, word, package.identifier, version, package.version, becomes))
        return updates


def _split_pin(argument: str, package: Package) -> tuple[str, str | None]:
    """Returns what an argument has before a package's version, and the version; None if it names another package."""
    for separator in ("@", "==", ":"):
        prefix = f"{package.identifier}{separator}"
        if argument.startswith(prefix) and not package.version.startswith("sha256:"):
            return prefix, argument[len(prefix) :]
    return "", None
