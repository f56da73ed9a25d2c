"""A server that the user wants to add: found by its name, its address or its command line, pinned to one version."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.config.credentials import is_private_channel
from mcp_hub.config.findings import nearest
from mcp_hub.config.package_specs import PackageSpec, find_packages, find_unpinned_packages
from mcp_hub.errors import ConfigError
from mcp_hub.registry import Listing, Offer, Package, RegistryError, Remote, UserInput, inputs_of
from mcp_hub.registry.launch import check_value, check_values, entry_of, missing_inputs, needed_program
from mcp_hub.registry.package_index import PackageIndex
from mcp_hub.registry.sources import SEED, Seed, Source, is_registry_name
from mcp_hub.text import printable

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_GENERIC: Final = frozenset({"mcp", "server", "mcp-server", "api", "www", "app", "remote"})
"""Names that do not tell one server from another."""


class Candidate(msgspec.Struct, frozen=True):
    """A server that could be added. It has an offer of a registry, or else words or a URL from the user."""

    id: str
    origin: str
    """Where it comes from, as a sentence; "" if it comes from the user."""
    offer: Offer | None = None
    words: tuple[str, ...] = ()
    url: str | None = None
    transport: str | None = None
    """`http` or `sse`, if the user has chosen one for the address."""
    registry: str | None = None
    """Its name in the registry, by which `update` finds newer versions; None: it is not from a registry."""
    notes: tuple[str, ...] = ()
    """Further sentences for the user."""

    @property
    def inputs(self) -> tuple[UserInput, ...]:
        """The inputs of its offer."""
        return inputs_of(self.offer) if self.offer is not None else ()

    @property
    def bundle(self) -> Package | None:
        """The bundle that has to be unpacked before its command line is known; None if there is none."""
        return self.offer if isinstance(self.offer, Package) and self.offer.kind == "mcpb" else None

    def missing(self, values: Mapping[str, str]) -> tuple[UserInput, ...]:
        """Returns the required inputs that have no value."""
        return missing_inputs(self.offer, values) if self.offer is not None else ()

    def check(self, values: Mapping[str, str]) -> None:
        """Raises RegistryError for unknown inputs and invalid values."""
        if self.offer is not None:
            check_values(self.offer, values)
        for name, value in values.items():
            check_value(printable(name, 100), value)

    def entry(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Returns its entry for servers.yaml. Without an offer, `values` are environment variables or headers.

        Raises RegistryError if the offer cannot be started.
        """
        if self.offer is not None:
            entry = entry_of(self.offer, values)
        elif self.url is not None:
            transport = {"transport": self.transport} if self.transport is not None else {}
            entry = {"url": self.url} | transport | ({"headers": dict(values)} if values else {})
        else:
            command, *args = self.words
            entry = {"command": command, "args": args} | ({"env": dict(values)} if values else {})
        return entry | ({"registry": self.registry} if self.registry is not None else {})


class Finder:
    """Finds candidates. `has_program` says whether a program is installed."""

    def __init__(self, registry: Callable[[], Source], index: PackageIndex, has_program: Callable[[str], bool]) -> None:
        self._registry = registry
        self._index = index
        self._has_program = has_program

    async def of_command(self, id: str, argv: Sequence[str]) -> Candidate:
        """Returns the server of a command line. Packages without a version are pinned to the newest one."""
        pinned_argv, notes = list(argv), []
        for spec in find_packages(argv[0], tuple(argv[1:])):
            if spec.version is None:
                try:
                    version = await self._index.newest(spec.kind, spec.name)
                except RegistryError as error:
                    notes.append(f"{printable(spec.written, 200)} is not pinned: {error}")
                else:
                    pinned_argv = _pin_argument(pinned_argv, spec, version)
                    notes.append(f"{printable(spec.written, 200)} is pinned to {version}, the newest version")
        written_specs = {spec.written for spec in find_packages(argv[0], tuple(argv[1:]))}
        for argument in find_unpinned_packages(argv[0], tuple(argv[1:])):
            if argument not in written_specs:
                notes.append(f"{printable(argument, 200)!r} is not pinned to one version")
        return Candidate(id, "", words=tuple(pinned_argv), notes=tuple(notes))

    async def of_url(self, url: str) -> Candidate:
        """Returns the server at an address. Raises ConfigError if it is not a valid URL."""
        unsafe = (
            () if is_private_channel(url) else ("What is sent to this address can be read on its way: no https://.",)
        )
        return Candidate(id_of_url(url), "", url=url, notes=unsafe)

    async def of_name(self, name: str) -> Candidate:
        """Returns a server of the bundled list by its short name, or of the registry by its full name.

        Raises:
            ConfigError: there is no such server, or it was withdrawn.
            RegistryError: the registry, or its listing of the server, cannot be used.
        """
        head, _, version = name.rpartition("@")
        if not head:  # it has no version; the name of an npm package may begin with an @
            head, version = name, ""
        version = version or "latest"
        listing = await Seed().find(head, version)
        if listing is None and not is_registry_name(head):
            names, close_match = ", ".join(Seed().names), nearest(head, Seed().names)
            hint = f"did you mean {close_match!r}? " if close_match is not None else ""
            raise ConfigError(
                f"there is no {printable(name, 100)!r} in the bundled list ({names}); {hint}`mcp-hub search` looks "
                "in the registry too, an address adds a server on a network, and a package or any other command line "
                "is added by: mcp-hub add NAME -- npx -y PACKAGE (or uvx PACKAGE)"
            )
        name = head
        if listing is None:
            source = self._registry()
            listing = await source.find(name, version)
            if listing is None:
                version_text = "" if version == "latest" else f" in version {printable(version, 100)}"
                raise ConfigError(f"{source.label} has no server {printable(name, 200)}{version_text}")
        return self._candidate(listing)

    def _candidate(self, listing: Listing) -> Candidate:
        if listing.status == "deleted":
            raise ConfigError(f"{listing.source} has withdrawn {listing.name}")
        offer = choose_offer(listing, self._has_program)
        notes = []
        if listing.status == "deprecated":
            notes.append(f"{listing.source} says that {listing.name} is deprecated: {listing.description}")
        program = needed_program(offer)
        if program is not None and not self._has_program(program):
            notes.append(f"It needs {program}, which is not installed here.")
        version = f" {offer.version}" if isinstance(offer, Package) else ""
        package = f", {offer.kind} package {offer.identifier}" if isinstance(offer, Package) else ""
        return Candidate(
            id_of_name(listing.name),
            f"From {listing.source}: {listing.name}{package}{version}. {listing.description}",
            offer,
            registry=None if listing.source == SEED else listing.name,
            notes=tuple(notes),
        )


def choose_offer(listing: Listing, has_program: Callable[[str], bool]) -> Offer:
    """Returns the first package that can be started here, else the first address, else the first package.

    Raises:
        RegistryError: no offer can be used.
    """
    packages = [offer for offer in listing.offers if isinstance(offer, Package)]
    startable = [offer for offer in packages if (program := needed_program(offer)) is None or has_program(program)]
    remotes = [offer for offer in listing.offers if isinstance(offer, Remote)]
    offers: list[Offer] = [*startable, *remotes, *packages]
    if offers:
        return offers[0]
    reason = "; ".join(listing.refused) or "it offers neither a package nor an address"
    raise RegistryError(f"{listing.name} cannot be added: {printable(reason, 1500)}")


def id_of_name(name: str) -> str:
    """Returns the id of an entry for a server of a registry: its short name, or its owner if that is too general."""
    namespace, _, short = name.lower().partition("/")
    owner = namespace.rpartition(".")[2]
    return re.sub(r"[^a-z0-9-]+", "-", owner if short in _GENERIC else short).strip("-") or "server"


def id_of_url(url: str) -> str:
    """Returns the id of an entry for an address: the part of its host that names the owner.

    Raises:
        ConfigError: it is not a valid URL.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower().rstrip(".")
        usable = bool(host) and url.isprintable() and " " not in url and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{printable(url, 200)!r} is not an address such as https://example.com/mcp")
    try:
        ipaddress.ip_address(host)
        return "local"
    except ValueError:
        labels = host.split(".")
    specific_labels = [label for label in labels[:-1] if label not in _GENERIC] or labels
    return re.sub(r"[^a-z0-9-]+", "-", specific_labels[-1]).strip("-") or "server"


def _pin_argument(argv: list[str], spec: PackageSpec, version: str) -> list[str]:
    """Returns the command line with a package pinned, also if it is in an argument like `--from=NAME`."""
    for index, argument in enumerate(argv[1:], 1):
        if argument == spec.written or argument.endswith(f"={spec.written}"):
            prefix = argument[: len(argument) - len(spec.written)]
            return [*argv[:index], prefix + spec.at(version), *argv[index + 1 :]]
    return argv
