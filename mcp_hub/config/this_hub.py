"""Whether an entry starts the hub that reads it, as far as its words say so.

People paste the hub into the file of their client, and let the hub read that file. What the words do not say (a script,
a shell, another hub between) is found out when the server is connected to; see `ancestry.py`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mcp_hub.config.launchers import program
from mcp_hub.config.models import Server
from mcp_hub.errors import ConfigError

_COMMANDS: Final = frozenset({"mcp-hub", "mcp-hub-gateway"})
"""The command, and the name of its distribution, which `uvx` and `pipx run` take for the command as well."""
_MODULE: Final = "mcp_hub"
_SERVE: Final = "serve"
_OPTION: Final = "--config"
_REQUIREMENT: Final = re.compile(r"[\[=@<>~!].*")
"""What follows the name of a package: extras and a version."""

DefaultPath = Callable[[Path, Mapping[str, str]], Path]
"""The configuration of a hub that is told none, by its working directory and its environment."""


def is_this_hub(server: Server, path: Path, environ: Mapping[str, str], default_path: DefaultPath) -> bool:
    """Whether the command of an enabled entry in the file at `path` is `mcp-hub serve` with the same file."""
    if not server.enabled or not server.command:
        return False
    options = _options_of_serve((server.command, *server.args), environ)
    if options is None:
        return False
    directory = server.cwd or Path.cwd()
    named = _config_of(options)
    with contextlib.suppress(ConfigError, OSError, RuntimeError, ValueError):
        if named is None:
            from mcp_hub.config.child_env import child_environment  # hardly any entry gets here

            other = default_path(directory, child_environment(server, environ, Path.home()))
        else:
            other = directory / Path(named).expanduser()
        return other.samefile(path)
    return False


def _options_of_serve(words: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """What follows `mcp-hub ... serve` in a command line, whatever launches it; None if that is not in it."""
    if _SERVE not in words:
        return None
    for index, word in enumerate(words):
        module = word == _MODULE and index > 0 and words[index - 1] == "-m"
        if module or word == f"-m{_MODULE}" or _is_command(word, environ, first=index == 0):
            rest = words[index + 1 :]
            return rest[rest.index(_SERVE) + 1 :] if _SERVE in rest else None
    return None


def _is_command(word: str, environ: Mapping[str, str], *, first: bool) -> bool:
    if _REQUIREMENT.sub("", program(word)) in _COMMANDS:
        return True
    found = shutil.which(word, path=environ.get("PATH")) if first else None
    return found is not None and program(str(Path(found).resolve())) in _COMMANDS


def _config_of(options: tuple[str, ...]) -> str | None:
    """The value of `--config`, which the command line lets be shortened; the last one counts."""
    found = None
    for index, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name.startswith("--c") and _OPTION.startswith(name):
            found = value if equals else next(iter(options[index + 1 :]), "")
    return found
