"""Makes entries of servers.yaml from the offers of a registry: with the pinned command line, or with the address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_hub.registry import Argument, Offer, Package, RegistryError, Remote, UserInput, inputs_of
from mcp_hub.text import find_hidden_characters, printable

LAUNCHERS: Final[Mapping[str, str]] = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}
"""Kind of package -> the program that downloads and starts it."""
MAX_VALUE: Final = 16 * 1024
"""Characters of one value from the user."""


def transport_of(offer: Offer) -> str:
    """Returns the transport between the hub and the server."""
    return offer.transport if isinstance(offer, Remote) else "stdio"


def needed_program(offer: Offer) -> str | None:
    """Returns the program that has to be installed; None for an address and for a bundle."""
    return LAUNCHERS.get(offer.kind) if isinstance(offer, Package) else None


def missing_inputs(offer: Offer, values: Mapping[str, str]) -> tuple[UserInput, ...]:
    """Returns the required inputs that have neither a value nor a default."""
    return tuple(one for one in inputs_of(offer) if one.required and not values.get(one.name) and one.default is None)


def check_values(offer: Offer, values: Mapping[str, str]) -> None:
    """Raises RegistryError for a value that no input of the offer takes."""
    inputs = {one.name: one for one in inputs_of(offer)}
    for name, value in values.items():
        one = inputs.get(name)
        shown = printable(name, 100)
        if one is None:
            known = ", ".join(inputs) or "none"
            raise RegistryError(f"it takes no input {shown!r}; it takes: {known}")
        if one.choices and value not in one.choices:
            raise RegistryError(f"{shown} must be one of: {printable(', '.join(one.choices), 300)}")
        check_value(shown, value)


def check_value(name: str, value: str) -> None:
    """Raises RegistryError for a value that cannot be in a command line or a header."""
    if len(value) > MAX_VALUE:
        raise RegistryError(f"the value of {name} has more than {MAX_VALUE:,} characters")
    hidden = [kind for kind, _ in find_hidden_characters(value.replace("\n", ""), lines=False)]
    if hidden:
        raise RegistryError(f"the value of {name} holds {hidden[0]}")


def entry_of(offer: Offer, values: Mapping[str, str]) -> dict[str, Any]:
    """Returns the entry for an offer with these values of its inputs. `missing_inputs` must be empty.

    Raises RegistryError if the offer cannot be started.
    """
    if isinstance(offer, Remote):
        url = offer.url.filled(values)
        if url is None:
            raise RegistryError("a part of its address has no value")
        headers = {one.name: text for one in offer.headers if (text := one.value.filled(values))}
        return {"url": url, "transport": offer.transport} | ({"headers": headers} if headers else {})
    environment = {one.name: text for one in offer.environment if (text := one.value.filled(values)) is not None}
    command, *args = command_line(offer, values, tuple(environment))
    return {"command": command, "args": args} | ({"env": environment} if environment else {})


def command_line(package: Package, values: Mapping[str, str], environment: tuple[str, ...] = ()) -> list[str]:
    """Returns the words that start a package, pinned to its version. `environment`: the names of its variables.

    Raises RegistryError if the listing would start another package.
    """
    arguments = list(_words(package.arguments, values))
    name, version = package.identifier, package.version
    match package.kind:
        case "npm":
            return ["npx", "-y", f"{name}@{version}", *arguments]
        case "pypi":
            return ["uvx", *_uvx(package, values, arguments)]
        case "oci":
            image = f"{name}@{version}" if version.startswith("sha256:") else f"{name}:{version}"
            given = [word for word in _words(package.runtime, values) if word not in _ALWAYS]
            passed = [word for variable in environment for word in ("-e", variable)]
            return ["docker", "run", "-i", "--rm", *given, *passed, image, *arguments]
        case "nuget":
            return ["dnx", f"{name}@{version}", "--yes", *(["--", *arguments] if arguments else [])]
        case "mcpb":
            return arguments  # these come from its manifest after it was unpacked


_ALWAYS: Final = frozenset({"-i", "--interactive", "--rm"})


def _uvx(package: Package, values: Mapping[str, str], arguments: list[str]) -> Iterator[str]:
    """Yields the words behind `uvx`. With `--from`, the program has another name than its package."""
    words = list(_words(package.runtime, values))
    named = "--from" in words
    for before, word in zip(["", *words], words, strict=False):
        if before in ("--python", "-p", "--with"):
            yield from (before, word)
        elif before == "--from" and word.partition("==")[0].partition("@")[0] not in (package.identifier, ""):
            raise RegistryError(f"it would start {printable(word, 100)!r} in place of {package.identifier}")
    if named:
        if not arguments:
            raise RegistryError("it does not say which program of its package to start")
        yield from ("--from", f"{package.identifier}=={package.version}")
    else:
        yield f"{package.identifier}@{package.version}"
    yield from arguments


def _words(arguments: tuple[Argument, ...], values: Mapping[str, str]) -> Iterator[str]:
    for argument in arguments:
        yield from argument.words(values)
