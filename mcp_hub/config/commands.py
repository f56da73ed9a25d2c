"""The command of an entry: the environment of its process, and the file that is started.

A desktop application starts the hub with a short PATH, without what the user's shell adds to it. The usual directories
are appended here, so that `npx` and `uvx` are found as they are in a terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mcp_hub import codes
from mcp_hub.config.inherited import inherited
from mcp_hub.config.models import Server
from mcp_hub.errors import HubError

_HINTS: Final = {
    "node": "install Node.js (https://nodejs.org)",
    "npm": "install Node.js (https://nodejs.org); npm comes with it",
    "npx": "install Node.js (https://nodejs.org); npx comes with it",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "uvx": "install uv (https://docs.astral.sh/uv); uvx comes with it",
    "bun": "install Bun (https://bun.sh)",
    "bunx": "install Bun (https://bun.sh); bunx comes with it",
    "deno": "install Deno (https://deno.com)",
    "pipx": "install pipx (https://pipx.pypa.io)",
    "docker": "install Docker (https://docs.docker.com/get-docker)",
    "dnx": "install the .NET SDK 10 or newer (https://dotnet.microsoft.com); dnx comes with it",
    "podman": "install Podman (https://podman.io)",
    "python": "write python3, or the whole path of a Python",
}


_OF_INDEX: Final = ("time", "fetch", "git", "sqlite")
_OF_NPM: Final = ("filesystem", "memory", "everything", "sequential-thinking")
_WELL_KNOWN: Final = {f"mcp-server-{name}": f"command: uvx, args: [mcp-server-{name}]" for name in _OF_INDEX} | {
    f"mcp-server-{name}": f'command: npx, args: [-y, "@modelcontextprotocol/server-{name}"]' for name in _OF_NPM
}
"""Commands of well-known packages -> what runs them without an installation."""

_WINDOWS_PROGRAMS: Final = (".com", ".exe", ".bat", ".cmd")
"""Suffixes of programs that Windows starts, in its order. Others of PATHEXT, such as .js, need an interpreter."""
SHOWN_DIRECTORIES: Final = 4


class CommandNotFound(HubError):
    """The command of an entry was not found. `str()` says where it was looked for, and what to do."""

    def __init__(self, command: str, looked_in: tuple[str, ...], hint: str, code: str = codes.PROGRAM_MISSING) -> None:
        directories = ", ".join(looked_in[:SHOWN_DIRECTORIES])
        remainder = f" and {len(looked_in) - SHOWN_DIRECTORIES} more" if len(looked_in) > SHOWN_DIRECTORIES else ""
        searched = f"{directories}{remainder}" if directories else "no directory: PATH is empty"
        super().__init__(f"the command '{command}' was not found: {hint}. Looked in {searched}", code)
        self.command = command
        self.looked_in = looked_in


def child_environment(
    server: Server, environ: Mapping[str, str], home: Path, *, windows: bool = os.name == "nt"
) -> dict[str, str]:
    """Returns the whole environment of the child of `server`: what it inherits of `environ`, and what it declares.

    Nothing else is passed on, as secrets of one server must not reach another. PATH, also that of the entry, keeps its
    order; the usual directories that exist are appended.
    """
    passed = inherited(server, environ, windows=windows)
    own = {name: value.get_secret_value() for name, value in server.env.items()}
    if windows:
        # `Path` and `PATH` are one variable on Windows; of both, a child would see either one.
        declared = {name.upper() for name in own}
        passed = {name.upper(): value for name, value in passed.items() if name.upper() not in declared}
        own = {name.upper() if name.upper() == "PATH" else name: value for name, value in own.items()}
    environment = passed | own
    environment["PATH"] = _extend_path(environment.get("PATH", os.defpath), home, environ, windows)
    return environment


_SPACES: Final = "it holds spaces; write the program as 'command' and the rest as 'args'"


def find_command(command: str, path: str, cwd: Path | None, *, windows: bool = os.name == "nt") -> str:
    """Returns the file that `command` names: a path (relative to `cwd`), or a name in the directories of `path`.

    Relative directories in `path` do not count, so that what is started does not depend on where the hub was started.
    Nor does the working directory, in which Windows looks first.

    Raises:
        CommandNotFound: there is no such executable file.
    """
    separators = "/\\" if windows else os.sep
    if any(separator in command for separator in separators):
        file = (cwd or Path.cwd()) / command
        executable = _executable(file, windows)
        if executable is None:
            program, *arguments = command.split(maxsplit=1)
            is_line = not any(separator in program for separator in separators) or _executable(Path(program), windows)
            if arguments and is_line and not file.exists():
                raise CommandNotFound(command, (str(file.parent),), _SPACES, codes.COMMAND_WITH_SPACES)
            raise CommandNotFound(command, (str(file.parent),), *_why_not_executable(file))
        return executable
    separator = ";" if windows else os.pathsep
    directories = tuple(dict.fromkeys(part for part in path.split(separator) if Path(part).is_absolute()))
    executable = next(
        filter(None, (_executable(Path(directory) / command, windows) for directory in directories if command)), None
    )
    if executable is None:
        if re.search(r"\s", command.strip()):
            raise CommandNotFound(command, directories, _SPACES, codes.COMMAND_WITH_SPACES)
        raise CommandNotFound(command, directories, _install_hint(command))
    return executable


def _executable(file: Path, windows: bool) -> str | None:
    if not windows:
        return shutil.which(str(file))
    has_suffix = file.suffix.lower() in _WINDOWS_PROGRAMS
    files = [file] if has_suffix else [Path(f"{file}{suffix}") for suffix in _WINDOWS_PROGRAMS]
    return next((str(candidate) for candidate in files if candidate.is_file()), None)


def _why_not_executable(file: Path) -> tuple[str, str]:
    """Returns the hint and the code for a path that `_executable` does not accept."""
    try:
        regular = stat.S_ISREG(file.stat().st_mode)
    except PermissionError:
        return "the user who runs the hub may not enter the directory of the file", codes.PROGRAM_NOT_EXECUTABLE
    except OSError:
        regular = False
    if regular:
        return "the file is not executable", codes.PROGRAM_NOT_EXECUTABLE
    return "there is no such file", codes.PROGRAM_MISSING


def _is_directory(path: Path) -> bool:
    """Returns False also for a path that this user may not look at, where `Path.is_dir` raises before Python 3.14."""
    return os.path.isdir(path)  # noqa: PTH112


def _install_hint(command: str) -> str:
    if (alternative := _WELL_KNOWN.get(command.lower())) is not None:
        return f"install it, or try {alternative}"
    return _HINTS.get(command.lower(), "install it, or write its whole path as 'command'")


def _extend_path(path: str, home: Path, environ: Mapping[str, str], windows: bool) -> str:
    separator = ";" if windows else ":"
    parts = [part for part in path.split(separator) if part]
    known_paths = {os.path.normpath(part) for part in parts}
    directories = _usual_directories_on_windows(home, environ) if windows else _usual_directories(home, environ)
    for directory in directories:
        if os.path.normpath(directory) not in known_paths and _is_directory(directory):
            known_paths.add(os.path.normpath(directory))
            parts.append(str(directory))
    return separator.join(parts)


def _usual_directories(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields where installers put commands. Version managers come last, as they may have old versions."""
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    yield home / ".local/bin"
    yield Path("/usr/local/bin")
    yield Path("/opt/homebrew/bin")
    yield Path("/home/linuxbrew/.linuxbrew/bin")
    yield Path("/opt/local/bin")
    yield Path("/usr/bin")
    yield Path("/bin")
    yield Path("/snap/bin")
    yield home / ".cargo/bin"
    yield home / ".bun/bin"
    yield home / ".deno/bin"
    yield home / ".volta/bin"
    yield from _newest_version(Path(environ.get("NVM_DIR") or home / ".nvm") / "versions/node")
    yield data / "fnm/aliases/default/bin"
    yield Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "shims"
    yield data / "mise/shims"
    yield Path(environ.get("ASDF_DATA_DIR") or home / ".asdf") / "shims"
    yield home / ".npm-global/bin"
    yield data / "pnpm"
    yield home / "Library" / "pnpm"


def _usual_directories_on_windows(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    folded = {name.upper(): value for name, value in environ.items()}
    yield home / ".local" / "bin"
    if programs := folded.get("PROGRAMFILES"):
        yield Path(programs) / "nodejs"
    if roaming := folded.get("APPDATA"):
        yield Path(roaming) / "npm"
    yield home / ".cargo" / "bin"
    yield home / ".bun" / "bin"
    yield home / ".deno" / "bin"
    if local := folded.get("LOCALAPPDATA"):
        yield Path(local) / "Volta" / "bin"
        yield Path(local) / "mise" / "shims"
        yield Path(local) / "pnpm"


def _newest_version(versions: Path) -> Iterator[Path]:
    """Yields the `bin` of the highest version directory; 22 is higher than 9."""
    try:
        names = [entry.name for entry in versions.iterdir()]
    except OSError:
        return
    numbered = [(tuple(map(int, re.findall(r"\d+", name))), name) for name in names if re.search(r"\d", name)]
    if numbered:
        yield versions / max(numbered)[1] / "bin"
