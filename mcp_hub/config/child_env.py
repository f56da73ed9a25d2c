"""What a child process gets to see of the hub's environment, and where its command is found.

A desktop application starts the hub with a short PATH, without what the user's shell adds to it. The usual places are
appended here, so that `npx` and `uvx` are found as they are in a terminal.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mcp_hub.config.models import Server
from mcp_hub.errors import HubError

_POSIX_BASE: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR",
})  # fmt: skip
_POSIX_PREFIXES: Final = ("LC_", "XDG_")
_WINDOWS_BASE: Final = frozenset({
    "PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA",
    "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "HOMEDRIVE", "HOMEPATH", "USERPROFILE",
    "USERNAME", "PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS",
})  # fmt: skip
_CERTIFICATES: Final = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"})
"""Paths, no secrets; where a company opens TLS, a child cannot download or reach anything without them."""
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Where there is no other way out nothing works without them. One with a password in it is a secret: not passed on."""

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
    "podman": "install Podman (https://podman.io)",
    "python": "write python3, or the whole path of a Python",
}


class CommandNotFound(HubError):
    """The command of an entry is nowhere it was looked for; `str()` says where, and what to do."""

    def __init__(self, command: str, looked_in: tuple[str, ...], hint: str) -> None:
        where = ", ".join(looked_in) or "no directory: PATH is empty"
        super().__init__(f"the command '{command}' was not found: {hint}. Looked in {where}")
        self.command = command
        self.looked_in = looked_in


def child_environment(
    server: Server, environ: Mapping[str, str], home: Path, *, windows: bool = os.name == "nt"
) -> dict[str, str]:
    """The whole environment of the child of `server`: a small base out of `environ`, and what the entry declares.

    Nothing else of the hub's environment: a secret of one server is not another's. PATH keeps its order; the usual
    directories that exist and are not in it are appended, to the entry's own PATH as well.
    """
    passed = {name: value for name, value in environ.items() if _passes(name, value, windows)}
    own = {name: value.get_secret_value() for name, value in server.env.items()}
    if windows:
        # `Path` and `PATH` are one variable there; a child given both would see either.
        declared = {name.upper() for name in own}
        passed = {name.upper(): value for name, value in passed.items() if name.upper() not in declared}
        own = {name.upper() if name.upper() == "PATH" else name: value for name, value in own.items()}
    found = passed | own
    found["PATH"] = _extended(found.get("PATH", os.defpath), home, environ, windows)
    return found


def find_command(command: str, path: str, cwd: Path | None) -> str:
    """The file that `command` names: a path as it is (relative: to `cwd`), a name by the directories of `path`.

    Relative directories in `path` do not count: what is started must not depend on where the hub was started.
    Raises CommandNotFound.
    """
    if os.sep in command or (os.altsep and os.altsep in command):
        file = (cwd or Path.cwd()) / command
        found = shutil.which(str(file))
        if found is None:
            hint = "the file is not executable" if file.is_file() else "there is no such file"
            raise CommandNotFound(command, (str(file.parent),), hint)
        return found
    directories = tuple(dict.fromkeys(part for part in path.split(os.pathsep) if Path(part).is_absolute()))
    found = shutil.which(command, path=os.pathsep.join(directories)) if command and directories else None
    if found is None:
        raise CommandNotFound(command, directories, _hint(command))
    return found


def _hint(command: str) -> str:
    if re.search(r"\s", command.strip()):
        return "it holds spaces; write the program as 'command' and the rest as 'args'"
    return _HINTS.get(command.lower(), "install it, or write its whole path as 'command'")


def _passes(name: str, value: str, windows: bool) -> bool:
    if value.startswith("()"):
        # A function exported by bash: code, not a value.
        return False
    upper = name.upper()
    if upper in _PROXIES:
        return not _has_password(value)
    if name in _CERTIFICATES:
        return True
    return upper in _WINDOWS_BASE if windows else name in _POSIX_BASE or name.startswith(_POSIX_PREFIXES)


def _has_password(value: str) -> bool:
    return "@" in value


def _extended(path: str, home: Path, environ: Mapping[str, str], windows: bool) -> str:
    separator = ";" if windows else ":"
    parts = [part for part in path.split(separator) if part]
    known = {os.path.normpath(part) for part in parts}
    places = _usual_on_windows(home, environ) if windows else _usual(home, environ)
    for place in places:
        if os.path.normpath(place) not in known and place.is_dir():
            known.add(os.path.normpath(place))
            parts.append(str(place))
    return separator.join(parts)


def _usual(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where installers put commands, the most particular last: version managers may hold old ones."""
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
    yield from _newest(Path(environ.get("NVM_DIR") or home / ".nvm") / "versions/node")
    yield data / "fnm/aliases/default/bin"
    yield Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "shims"
    yield data / "mise/shims"
    yield Path(environ.get("ASDF_DATA_DIR") or home / ".asdf") / "shims"
    yield home / ".npm-global/bin"
    yield data / "pnpm"


def _usual_on_windows(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
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


def _newest(versions: Path) -> Iterator[Path]:
    """The `bin` of the highest version directory; 22 is higher than 9."""
    try:
        names = [entry.name for entry in versions.iterdir()]
    except OSError:
        return
    numbered = [(tuple(map(int, re.findall(r"\d+", name))), name) for name in names if re.search(r"\d", name)]
    if numbered:
        yield versions / max(numbered)[1] / "bin"
