"""Data of a registry: listings of servers, the packages and addresses they offer, and the inputs these need.

`server_json.py` checks every text: it has no control characters and no variables of the hub's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from mcp_hub.errors import HubError

EXPANDED: Final = re.compile(r"\$\{|\$[A-Za-z_]|\{(?:env|file):|os\.environ/")
"""Text that one of the configuration's dialects replaces by a value of this machine."""
PackageKind = Literal["npm", "pypi", "oci", "nuget", "mcpb"]


class RegistryError(HubError):
    """A registry or package index, or its answer, cannot be used. `str()` is for the user."""


class UserInput(msgspec.Struct, frozen=True):
    """A value that only the user knows."""

    name: str
    """The name of a variable, a header, a flag or a placeholder in a text; unique in its offer."""
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    repeated: bool = False
    """Whether it may have several values, one on each line."""


class Template(msgspec.Struct, frozen=True):
    """A text with placeholders for inputs."""

    pieces: tuple[str | UserInput, ...]

    @property
    def inputs(self) -> tuple[UserInput, ...]:
        """The inputs it needs."""
        return tuple(piece for piece in self.pieces if isinstance(piece, UserInput))

    @property
    def fixed(self) -> str | None:
        """The text if it needs no input, else None."""
        return None if self.inputs else "".join(str(piece) for piece in self.pieces)

    def filled(self, values: Mapping[str, str]) -> str | None:
        """Returns the text with these values, by name of the input, over the defaults; None if one is missing."""
        parts: list[str] = []
        for piece in self.pieces:
            part = values.get(piece.name, piece.default) if isinstance(piece, UserInput) else piece
            if part is None:
                return None
            parts.append(part)
        return "".join(parts)


class Argument(msgspec.Struct, frozen=True):
    """A positional argument of a command line, or a flag with its value."""

    flag: str | None
    value: Template | None
    """None: the flag alone."""
    repeated: bool = False

    def words(self, values: Mapping[str, str]) -> Iterator[str]:
        """Yields its words; none if an optional input has no value."""
        if self.value is None:
            if self.flag is not None:
                yield self.flag
            return
        for part in self._filled(values):
            if self.flag is not None:
                yield self.flag
            yield part

    def _filled(self, values: Mapping[str, str]) -> Iterator[str]:
        assert self.value is not None
        inputs = self.value.inputs
        if self.repeated and len(inputs) == 1:
            # Each line is a value, so that paths may have commas and spaces.
            value = values.get(inputs[0].name, inputs[0].default)
            for line in (value or "").split("\n"):
                if line:
                    yield self.value.filled({inputs[0].name: line}) or ""
            return
        filled = self.value.filled(values)
        if filled is not None:
            yield filled


class Setting(msgspec.Struct, frozen=True):
    """An environment variable or a header."""

    name: str
    value: Template


class Package(msgspec.Struct, frozen=True):
    """A package that starts a server on this machine."""

    kind: PackageKind
    identifier: str
    version: str
    sha256: str | None = None
    runtime: tuple[Argument, ...] = ()
    """Arguments of the launcher, such as docker."""
    arguments: tuple[Argument, ...] = ()
    environment: tuple[Setting, ...] = ()


class Remote(msgspec.Struct, frozen=True):
    """A server on a network."""

    transport: Literal["http", "sse"]
    url: Template
    headers: tuple[Setting, ...] = ()


Offer = Package | Remote
"""One way to reach a server."""


class Listing(msgspec.Struct, frozen=True):
    """One version of a server, as a registry describes it."""

    name: str
    """`namespace/server`."""
    version: str
    description: str
    source: str
    """The name of the registry, to be shown."""
    title: str | None = None
    status: Literal["active", "deprecated", "deleted"] = "active"
    latest: bool = True
    """Whether there is no newer version, as far as the registry says."""
    offers: tuple[Offer, ...] = ()
    """Packages before addresses, each in the order of the registry."""
    refused: tuple[str, ...] = ()
    """The reasons why other packages and addresses of the listing cannot be used."""

    @property
    def short_name(self) -> str:
        """The part behind the slash."""
        return self.name.partition("/")[2]


def templates_of(offer: Offer) -> list[Template]:
    """Returns all texts of an offer, in the order in which they are used."""
    if isinstance(offer, Remote):
        return [offer.url, *(header.value for header in offer.headers)]
    values = [argument.value for argument in (*offer.runtime, *offer.arguments) if argument.value is not None]
    return [*values, *(setting.value for setting in offer.environment)]


def inputs_of(offer: Offer) -> tuple[UserInput, ...]:
    """Returns the inputs of an offer, each once, in the order in which they are used."""
    inputs: dict[str, UserInput] = {}
    for template in templates_of(offer):
        for item in template.inputs:
            inputs.setdefault(item.name, item)
    return tuple(inputs.values())
