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
    return tuple(
        item for item in inputs_of(offer) if item.required and not values.get(item.name) and item.default is None
    )


def check_values(offer: Offer, values: Mapping[str, str]) -> None:
    """Raises RegistryError for a value that no input of the offer takes."""
    inputs = {item.name: item for item in inputs_of(offer)}
    for name, value in values.items():
        item = inputs.get(name)
        display_name = printable(name, 100)
        if item is None:
            names = ", ".join(inputs) or "none"
            raise RegistryError(f"it takes no input {display_name!r}; it takes: {names}")
        if item.choices and value not in item.choices:
            raise RegistryError(f"{display_name} must be one of: {printable(', '.join(item.choices), 300)}")
        check_value(display_name, value)


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
        headers = {header.name: text for header in offer.headers if (text := header.value.filled(values))}
        return {"url": url, "transport": offer.transport} | ({"headers": headers} if headers else {})
    environment = {
        variable.name: text for variable in offer.environment if (text := variable.value.filled(values)) is not None
    }
    command, *args = command_line(offer, values, tuple(environment))
    return {"command": command, "args": args} | ({"env": environment} if environment else {})


def command_line(package: Package, values: Mapping[str, str], environment: tuple[str, ...] = ()) -> list[str]:
    """Returns the command line that starts a package, pinned to its version. `environment`: the names of its variables.

    Raises RegistryError if the listing would start another package.
    """
    arguments = list(_filled_arguments(package.arguments, values))
    name, version = package.identifier, package.version
    match package.kind:
        case "npm":
            return ["npx", "-y", f"{name}@{version}", *arguments]
        case "pypi":
            return ["uvx", *_uvx(package, values, arguments)]
        case "oci":
            image = f"{name}@{version}" if version.startswith("sha256:") else f"{name}:{version}"
            runtime_arguments = [
                argument for argument in _filled_arguments(package.runtime, values) if argument not in _ALWAYS
            ]
            environment_arguments = [argument for variable in environment for argument in ("-e", variable)]
            return ["docker", "run", "-i", "--rm", *runtime_arguments, *environment_arguments, image, *arguments]
        case "nuget":
            return ["dnx", f"{name}@{version}", "--yes", *(["--", *arguments] if arguments else [])]
        case "mcpb":
            return arguments  # these come from its manifest after it was unpacked


_ALWAYS: Final = frozenset({"-i", "--interactive", "--rm"})


def _uvx(package: Package, values: Mapping[str, str], arguments: list[str]) -> Iterator[str]:
    """Yields the arguments of `uvx`. With `--from`, the program has another name than its package."""
    runtime_arguments = list(_filled_arguments(package.runtime, values))
    has_from = "--from" in runtime_arguments
    for previous, argument in zip(["", *runtime_arguments], runtime_arguments, strict=False):
        if previous in ("--python", "-p", "--with"):
            yield from (previous, argument)
        elif previous == "--from" and argument.partition("==")[0].partition("@")[0] not in (package.identifier, ""):
            raise RegistryError(f"it would start {printable(argument, 100)!r} in place of {package.identifier}")
    if has_from:
        if not arguments:
            raise RegistryError("it does not say which program of its package to start")
        yield from ("--from", f"{package.identifier}=={package.version}")
    else:
        yield f"{package.identifier}@{package.version}"
    yield from arguments


def _filled_arguments(arguments: tuple[Argument, ...], values: Mapping[str, str]) -> Iterator[str]:
    for argument in arguments:
        yield from argument.words(values)
