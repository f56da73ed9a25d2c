"""Makes entries of servers.yaml from the offers of a registry: with the pinned command line, or with the address."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from mcp_hub.config.package_specs import Launch, program_name, read_launch
from mcp_hub.registry import (
    EXPANDED,
    Argument,
    Offer,
    Package,
    RegistryError,
    Remote,
    UserInput,
    inputs_of,
    templates_of,
)
from mcp_hub.text import find_hidden_characters, printable

INPUT: Final = "\0"
"""Stands for a text that the user types. No text of a listing has this character."""
_NAME: Final = r"[A-Za-z0-9][\w.-]*"
_INSIDE: Final = r"[/\0][^:,\"]*"
"""A path in the container."""
_NUMBER: Final = r"\0|\d[\d.]*[bkmgBKMG]?"
_MOUNT: Final = (
    rf"(?:type=(?:bind|volume|tmpfs)|(?:source|src)=(?:\0|{_NAME})|(?:target|destination|dst)={_INSIDE}"
    r"|(?:readonly|ro)(?:=(?:true|false|1|0))?)"
)


class LauncherOption(msgspec.Struct, frozen=True):
    """An option that a listing or a bundle may give to the launcher of its package. Every other option is refused.

    It is allowed because it cannot change which package runs, nor open this machine to it beyond what the user has
    typed. A value has the form of its option. A text that the user types is checked as `INPUT`.
    """

    names: tuple[str, ...]
    why: str
    form: str | None = None
    """A regular expression for its value. None: it takes no value. No form matches a text that begins with `-`."""


ALLOWED: Final = {
    "npm": (LauncherOption(("-y", "--yes"), "installs without a question, which nobody could answer"),),
    "nuget": (LauncherOption(("-y", "--yes"), "installs without a question, which nobody could answer"),),
    "pypi": (
        LauncherOption(("--from",), "names the package of the listing, whose program has another name", r"[^-].*"),
        LauncherOption(("--with",), "adds the SDK in the version that the server was written for", r"mcp==\d[\w.]*"),
        LauncherOption(("-p", "--python"), "chooses a version of Python", r"\0|[<>=~!]*\d[\d.]*(?:,[<>=~!]*\d[\d.]*)*"),
    ),
    "oci": (
        LauncherOption(("-i", "--interactive"), "the hub speaks with the server through its standard input"),
        LauncherOption(("--rm",), "removes the container when it ends"),
        LauncherOption(("--init",), "adds a process that passes signals on"),
        LauncherOption(("--read-only",), "takes rights away"),
        LauncherOption(("--cap-drop",), "takes rights away", r"[A-Za-z_]+"),
        LauncherOption(("--security-opt",), "takes rights away", r"no-new-privileges(?:[:=]true)?"),
        LauncherOption(("-u", "--user"), "chooses a user in the container", r"(?:\0|\d+)(?::(?:\0|\d+))?"),
        LauncherOption(("-m", "--memory"), "limits the container", _NUMBER),
        LauncherOption(("--cpus",), "limits the container", _NUMBER),
        LauncherOption(("--pids-limit",), "limits the container", _NUMBER),
        LauncherOption(("--shm-size",), "limits the container", _NUMBER),
        LauncherOption(("-e", "--env"), "sets a variable of the container", r"\0|[A-Za-z_]\w*=.*"),
        LauncherOption(("-w", "--workdir"), "chooses a directory in the container", _INSIDE),
        LauncherOption(("--tmpfs",), "mounts memory", rf"{_INSIDE}(?::[\w=,]+)?"),
        LauncherOption(
            ("-v", "--volume"),
            "mounts a named volume, or a path that you type",
            rf"\0|(?:(?:\0|{_NAME}):)?{_INSIDE}(?::(?:ro|rw|z|Z))?",
        ),
        LauncherOption(
            ("--mount",),
            "mounts a named volume, or a path that you type",
            rf"\0|(?!(?=.*type=bind).*(?:source|src)=[^\0]){_MOUNT}(?:,{_MOUNT})*",
        ),
        LauncherOption(("--network", "--net"), "chooses a network other than this machine's", rf"\0|(?!host$){_NAME}"),
        LauncherOption(
            ("--add-host",),
            "names this machine as Docker Desktop does in every container",
            r"host\.docker\.internal[:=]host-gateway",
        ),
        LauncherOption(
            ("-p", "--publish"),
            "opens a port to programs of this machine alone",
            r"127\.0\.0\.1:(?:\0|\d{1,5}):(?:\0|\d{1,5})(?:/(?:tcp|udp))?",
        ),
        LauncherOption(("--platform",), "chooses the build of the same image", r"linux/[a-z0-9]+(?:/v\d)?"),
        LauncherOption(("--pull",), "does not fetch another image under the same tag", "missing|never"),
        LauncherOption(("--name",), "names the container", rf"\0|{_NAME}"),
    ),
}  # fmt: skip
"""Kind of package -> what its launcher may be given. docs/registry.md has the same table."""
_BY_NAME: Final = {
    kind: {name: option for option in options for name in option.names} for kind, options in ALLOWED.items()
}


def check_options(launch: Launch, variables: Collection[str], *, of_listing: bool) -> None:
    """Raises RegistryError for an option that a listing must not set.

    Args:
        launch: the command line.
        variables: the environment variables that the listing declares. Others of this machine are not passed on.
        of_listing: whether the values are the listing's own. A value that the user has typed may be any.
    """
    for name, value in launch.options:
        option = _BY_NAME[launch.kind].get(name)
        if option is None:
            raise RegistryError(f"it gives its launcher the option {_quoted(name)}, which a listing must not set")
        if (option.form is None) != (value is None):
            lacks = "a value, which it does not take" if value is not None else "no value"
            raise RegistryError(f"it gives the option {_quoted(name)} of its launcher {lacks}")
        if option.form is None or value is None or not of_listing or (name in ("-e", "--env") and value in variables):
            continue
        if re.fullmatch(option.form, value, re.DOTALL) is None:
            text = value.replace(INPUT, "{}")
            raise RegistryError(f"it gives its launcher {_quoted(f'{name} {text}')}, which a listing must not set")


def _quoted(text: str) -> str:
    return repr(printable(text, 100))


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

    Raises RegistryError if the offer cannot be started, or reads this machine's environment or files by itself.
    """
    # Its texts are checked together: `$` and `{TOKEN}` from two inputs make a variable.
    of_listing = _entry(offer, _with_marks(offer, values))
    settings = (*of_listing.get("env", {}).values(), *of_listing.get("headers", {}).values())
    for text in (of_listing.get("command", ""), *of_listing.get("args", ()), of_listing.get("url", ""), *settings):
        if (match := EXPANDED.search(text)) is not None:
            raise RegistryError(f"it would read {printable(text[match.start() :], 100)!r} of this machine")
    return _entry(offer, values)


def _with_marks(offer: Offer, values: Mapping[str, str]) -> dict[str, str]:
    """Returns the values with INPUT for each that the user has typed, and that is not a text of the listing."""
    inputs = [item for template in templates_of(offer) for item in template.inputs]
    listed = {(item.name, text) for item in inputs for text in (item.default, *item.choices)}
    return {name: value if (name, value) in listed else INPUT for name, value in values.items()}


def _entry(offer: Offer, values: Mapping[str, str]) -> dict[str, Any]:
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

    Raises RegistryError if it would start another package.
    """
    return _checked_line(package, values, environment, of_listing=False)


def check_launch(package: Package) -> None:
    """Raises RegistryError for a package whose launcher gets what a listing must not set, with whatever inputs."""
    inputs = inputs_of(package)
    values = {item.name: item.choices[0] if item.choices else item.default or INPUT for item in inputs}
    _checked_line(package, values, of_listing=True)
    for item in inputs:
        for text in (*item.choices, *([item.default] if item.default is not None else [])):
            _checked_line(package, values | {item.name: text}, of_listing=True)


def _checked_line(
    package: Package, values: Mapping[str, str], environment: tuple[str, ...] = (), *, of_listing: bool
) -> list[str]:
    """Returns the command line of a package after it was read back as its launcher reads it."""
    arguments = list(_words(package.arguments, values))
    if package.kind == "mcpb":  # its words come from its manifest after it was unpacked
        expected, argv = None, arguments
    else:
        expected, argv = _line(package, list(_words(package.runtime, values)), arguments, environment)
    launch = read_launch(argv[0], tuple(argv[1:]))
    if launch is None:
        if expected is not None or program_name(argv[0]) in ("docker", "podman"):
            raise RegistryError(f"it starts {printable(argv[0], 100)!r} in a way that the hub does not know")
        return argv
    check_options(launch, {variable.name for variable in package.environment}, of_listing=of_listing)
    started = printable(", ".join(launch.started), 200)
    if expected is not None and launch.started != (expected,):
        raise RegistryError(f"it would start {started!r} in place of {expected!r}")
    if expected is None and (not launch.started or launch.unpinned):
        raise RegistryError(f"its bundle starts {started!r}, which is not one version of a package")
    return argv


def _line(
    package: Package, runtime: list[str], arguments: list[str], environment: tuple[str, ...]
) -> tuple[str, list[str]]:
    """Returns the package as its launcher names it, and the command line."""
    head = {"npm": ["npx"], "pypi": ["uvx"], "oci": ["docker", "run"], "nuget": ["dnx"]}[package.kind]
    launch = read_launch(head[0], (*head[1:], *runtime))
    if launch is None or launch.rest:
        word = printable(launch.rest[0] if launch is not None else head[0], 100)
        raise RegistryError(f"it gives its launcher {word!r}, which a listing must not set")
    options = [option for option in launch.options if option not in _ALWAYS]
    name, version = package.identifier, package.version
    match package.kind:
        case "pypi":
            spec = f"{name}@{version}"
            for index, (option, value) in enumerate(options):
                if option == "--from":
                    spec = f"{name}{_extras(package, value or '')}=={version}"
                    options[index] = (option, spec)
            has_from = any(option == "--from" for option, _ in options)
            if has_from and not arguments:
                raise RegistryError("it does not say which program of its package to start")
            line = ["uvx", *_joined(options), *([] if has_from else [spec]), *arguments]
        case "oci":
            spec = f"{name}@{version}" if version.startswith("sha256:") else f"{name}:{version}"
            variables = [word for variable in environment for word in ("-e", variable)]
            line = ["docker", "run", "-i", "--rm", *_joined(options), *variables, spec, *arguments]
        case "nuget":
            spec = f"{name}@{version}"
            line = ["dnx", spec, "--yes", *_joined(options), *(["--", *arguments] if arguments else [])]
        case _:
            spec = f"{name}@{version}"
            line = ["npx", "-y", *_joined(options), spec, *arguments]
    return spec, line


_ALWAYS: Final = frozenset((name, None) for name in ("-i", "--interactive", "--rm", "-y", "--yes"))
"""Options that each command line has anyway."""


def _extras(package: Package, written: str) -> str:
    """Returns the extras of the package that `--from` names, such as `[cli]`. Raises RegistryError for another one."""
    match = re.fullmatch(r"([\w.-]+)(\[[\w.,-]*\])?(?:(?:==|@)([\w.+!]+))?", written)
    if match is None or match[1] != package.identifier or match[3] not in (None, package.version):
        raise RegistryError(f"it would start {printable(written, 100)!r} in place of {package.identifier!r}")
    return match[2] or ""


def _joined(options: list[tuple[str, str | None]]) -> Iterator[str]:
    for name, value in options:
        yield from (name,) if value is None else (name, value)


def _words(arguments: tuple[Argument, ...], values: Mapping[str, str]) -> Iterator[str]:
    for argument in arguments:
        yield from argument.words(values)
