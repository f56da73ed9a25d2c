"""Which servers may write the files that the hub's configuration is read from."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.request import url2pathname

from mcp_hub.config.inherited import inherited_row
from mcp_hub.config.models import Server
from mcp_hub.security.private_files import expand_home

_ANYWHERE: Final = frozenset({"code", "shell", "text_files"})
"""Built-in servers that can write wherever their user can."""
_RUNS_COMMANDS: Final = re.compile(r"desktop-?commander|(?:^|[/@_-])(?:shell|terminal|iterm)(?:[/@_-]|$)", re.I)
"""Matches packages of servers that run commands, and so can write anywhere."""
_OF_THE_PROGRAM: Final = frozenset({"--directory", "--project", "--prefix", "-C"})
"""Options of launchers whose directory has the program itself."""
_READ_ONLY: Final = frozenset({"ro", "readonly", "readonly=true"})
_PARTS: Final = re.compile(r"""[=,;|"'\[\]{}]|%s|\s+(?=[/~]|\w:\\)""" % (r":(?!\\)" if os.name == "nt" else ":"))
"""Separates the paths in a word, which may be JSON or a command line."""
_MAX_LINKS: Final = 40
"""Links on the ways to one file; systems follow no more."""


def writers_of(
    files: Iterable[Path], servers: Iterable[Server], shown_roots: Mapping[str, Iterable[str]] | None = None
) -> list[str]:
    """Returns the ids of the enabled servers that were given a directory which contains one of these files.

    The directory may be a root, an argument, a value of the environment or a mount. It reads links, so call it in a
    thread. `shown_roots` are the URIs of the clients' roots that each server was told.
    """
    paths = {way for file in files for way in _ways(file)}
    reached = {ancestor for path in paths for ancestor in (path, *path.parents)}
    shown_roots = shown_roots or {}
    return [
        server.id
        for server in servers
        if server.enabled
        and (_writes_anywhere(server) or not reached.isdisjoint(_directories(server, shown_roots.get(server.id, ()))))
    ]


def _ways(file: Path) -> list[Path]:
    """Returns the paths by which a file is reached: whoever replaces a link on one of them replaces the file."""
    ways = [Path(os.path.abspath(file)), _real(file)]  # noqa: PTH100 - links stay
    for way in ways:  # grows by one for each link
        for part in (way, *way.parents) if len(ways) < _MAX_LINKS else ():
            with contextlib.suppress(OSError):  # most are no links
                target = _real(part.parent) / os.readlink(part) / way.relative_to(part)  # noqa: PTH115
                if (new := Path(os.path.normpath(target))) not in ways:
                    ways.append(new)
    return ways


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `Path.resolve` raises for links in a circle


def _writes_anywhere(server: Server) -> bool:
    if server.builtin == "text_files" and server.policy == "deny":
        return False
    words = (server.command or "", *server.args)
    return server.builtin in _ANYWHERE or any(_RUNS_COMMANDS.search(word) for word in words if len(word) < 200)


def _directories(server: Server, roots: Iterable[str]) -> Iterator[Path]:
    """Yields the directories and files that a server was given to work on."""
    for root in server.roots:
        if root.mode == "rw":
            yield _real(root.path)
    for uri in roots:
        if uri.startswith("file://"):
            yield from _path(url2pathname(uri.removeprefix("file://").removeprefix("localhost")), Path("/"))
    if not server.command:
        return
    base = server.cwd or Path.cwd()
    previous = ""
    for word in server.args:
        parts, is_read_only = _PARTS.split(word), not _READ_ONLY.isdisjoint(re.split("[,:]", word))
        if not is_read_only and _OF_THE_PROGRAM.isdisjoint((previous, parts[0])):
            for part in {word, *parts}:
                yield from _path(part, base)
        previous = word
    for name, value in server.env.items():
        if inherited_row(name) is None:
            for part in _PARTS.split(value.get_secret_value()):
                yield from _path(part, base)


def _path(text: str, base: Path) -> Iterator[Path]:
    """Yields the existing path that a text means, if it may be one."""
    text = text.strip()
    if text and len(text) < 4096 and "\0" not in text and os.path.lexists(path := base / expand_home(text)):
        yield _real(path)
