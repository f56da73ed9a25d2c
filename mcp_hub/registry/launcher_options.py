"""The options that a listing or a bundle may give to the launcher of its package. Every other option is refused.

An option is allowed because it cannot change which package runs, nor open this machine to it beyond what the user has
typed. A value has the form of its option. A text that the user types is checked as `INPUT`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from mcp_hub.config.package_specs import Launch
from mcp_hub.registry import RegistryError
from mcp_hub.text import printable

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
    """An option that a listing may use."""

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
