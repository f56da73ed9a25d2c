"""Finds newer versions of pinned packages: in the registry that an entry comes from, else in the package index."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.commands import child_environment
from mcp_hub.config.models import Server
from mcp_hub.config.package_specs import find_packages, read_launch
from mcp_hub.editing.server_file import ServerFile, Word
from mcp_hub.registry import Package, RegistryError
from mcp_hub.registry.package_index import PackageIndex, is_newer
from mcp_hub.registry.sources import Source
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress

MAX_LOOKUPS: Final = 8
"""Servers whose versions are looked up at the same time."""


class Update(msgspec.Struct, frozen=True):
    """A word of a command line that pins a package, and its replacement with the newer version."""

    id: str
    word: Word
    package: str
    version: str
    newer: str
    becomes: str

    @property
    def position(self) -> int:
        """The place of the word in the command line."""
        name, key = self.word.at[-2:]
        return key + (name == "args") if isinstance(key, int) else 0


class Unknown(msgspec.Struct, frozen=True):
    """A server whose newest version is not known, and why."""

    id: str
    why: str


class UpdateFinder(msgspec.Struct, frozen=True):
    """Finds the updates of one file."""

    file: ServerFile
    registry: Callable[[], Source]
    environ: Mapping[str, str]
    home: Path
    egress: Egress | None = None
    pin: bool = False
    """Whether packages without a pinned version are pinned, to the newest one."""

    async def find(self, servers: Sequence[Server]) -> list[Update | Unknown]:
        """Returns the updates of all servers."""
        semaphore = asyncio.Semaphore(MAX_LOOKUPS)

        async def find_updates(server: Server) -> Sequence[Update | Unknown]:
            async with semaphore:
                try:
                    return await self._of_server(server)
                except RegistryError as error:
                    return [Unknown(server.id, str(error))]

        return [outcome for outcomes in await asyncio.gather(*map(find_updates, servers)) for outcome in outcomes]

    async def _of_server(self, server: Server) -> list[Update]:
        words = list(self.file.words(server.id))
        registry_name = self.file.entry(server.id).values.get("registry")
        if isinstance(registry_name, str) and words:
            return await self._of_registry(server.id, registry_name, words)
        # The launcher sees the same: the hub gives it what servers inherit, and what the entry declares.
        index = PackageIndex(child_environment(server, self.environ, self.home), self.home, self.egress)
        updates = []
        for spec in find_packages(server.command or "", server.args):
            if spec.version is None and not self.pin:
                continue
            newer = await index.newest(spec.kind, spec.name)
            if spec.version is not None and not is_newer(newer, spec.version):
                continue
            if (change := _change(words, spec.written, spec.at(newer))) is not None:
                version = spec.version or "(not pinned)"
                updates.append(Update(server.id, change[0], spec.name, version, newer, change[1]))
        return updates

    async def _of_registry(self, id: str, name: str, words: Sequence[Word]) -> list[Update]:
        source = self.registry()
        listing = await source.find(name)
        if listing is None or listing.status == "deleted":
            raise RegistryError(f"{source.label} has withdrawn {printable(name, 200)}")
        argv = [word.text for word in words]
        launch = read_launch(argv[0], tuple(argv[1:]))
        if launch is None:
            return []
        updates = []
        for package in listing.offers:
            if not isinstance(package, Package) or package.kind != launch.kind:
                continue
            for written in launch.started:
                before, version = _split_pin(written, package)
                if version is None or not is_newer(package.version, version):
                    continue
                if (change := _change(words, written, before + package.version)) is not None:
                    updates.append(Update(id, change[0], package.identifier, version, package.version, change[1]))
        return updates


def _change(words: Sequence[Word], package: str, newer: str) -> tuple[Word, str] | None:
    """Returns the word that names a package, also one like `--from=PACKAGE` and its text with the newer one.

    Another word may have the same text, so the changed command line is read as its launcher reads it.
    """
    argv = [word.text for word in words]
    for index, word in enumerate(words):
        text = word.text.removesuffix(package) + newer
        changed = [*argv[:index], text, *argv[index + 1 :]]
        launch = read_launch(changed[0], tuple(changed[1:])) if word.text.endswith(package) else None
        if launch is not None and newer in launch.started:
            return word, text
    return None


def _split_pin(written: str, package: Package) -> tuple[str, str | None]:
    """Returns what a package has before its version, and the version; None if it is another package."""
    match = re.match(rf"{re.escape(package.identifier)}(?:\[[\w.,-]*\])?(?:@|==|:)", written)
    if match is None or package.version.startswith("sha256:"):
        return "", None
    return match[0], written[match.end() :]
