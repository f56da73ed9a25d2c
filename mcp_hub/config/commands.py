"""The command of an entry: its environment, the file that is started, and the packages that it downloads unpinned.

A desktop application starts the hub with a short PATH, without what the user's shell adds to it. The usual directories
are appended here, so that `npx` and `uvx` are found as they are in a terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Final, Literal

import msgspec

from mcp_hub import codes
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
"""Paths, not secrets. A child behind a proxy that decrypts TLS cannot connect without them."""
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Needed if only a proxy reaches the internet. A value with a password is a secret and is not passed on."""

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
        shown = ", ".join(looked_in[:SHOWN_DIRECTORIES])
        more = f" and {len(looked_in) - SHOWN_DIRECTORIES} more" if len(looked_in) > SHOWN_DIRECTORIES else ""
        where = f"{shown}{more}" if shown else "no directory: PATH is empty"
        super().__init__(f"the command '{command}' was not found: {hint}. Looked in {where}", code)
        self.command = command
        self.looked_in = looked_in


def child_environment(
    server: Server, environ: Mapping[str, str], home: Path, *, windows: bool = os.name == "nt"
) -> dict[str, str]:
    """Returns the whole environment of the child of `server`: a small base of `environ`, and what the entry declares.

    Nothing else is passed on, as secrets of one server must not reach another. PATH, also that of the entry, keeps its
    order; the usual directories that exist are appended.
    """
    passed = {name: value for name, value in environ.items() if _is_passed_on(name, value, windows)}
    own = {name: value.get_secret_value() for name, value in server.env.items()}
    if windows:
        # `Path` and `PATH` are one variable on Windows; of both, a child would see either one.
        declared = {name.upper() for name in own}
        passed = {name.upper(): value for name, value in passed.items() if name.upper() not in declared}
        own = {name.upper() if name.upper() == "PATH" else name: value for name, value in own.items()}
    found = passed | own
    found["PATH"] = _extend_path(found.get("PATH", os.defpath), home, environ, windows)
    return found


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
        found = _executable(file, windows)
        if found is None:
            program, *arguments = command.split(maxsplit=1)
            is_line = not any(separator in program for separator in separators) or _executable(Path(program), windows)
            if arguments and is_line and not file.exists():
                raise CommandNotFound(command, (str(file.parent),), _SPACES, codes.COMMAND_WITH_SPACES)
            raise CommandNotFound(command, (str(file.parent),), *_why_not_executable(file))
        return found
    separator = ";" if windows else os.pathsep
    directories = tuple(dict.fromkeys(part for part in path.split(separator) if Path(part).is_absolute()))
    found = next(filter(None, (_executable(Path(one) / command, windows) for one in directories if command)), None)
    if found is None:
        if re.search(r"\s", command.strip()):
            raise CommandNotFound(command, directories, _SPACES, codes.COMMAND_WITH_SPACES)
        raise CommandNotFound(command, directories, _install_hint(command))
    return found


def _executable(file: Path, windows: bool) -> str | None:
    if not windows:
        return shutil.which(str(file))
    named = file.suffix.lower() in _WINDOWS_PROGRAMS
    files = [file] if named else [Path(f"{file}{suffix}") for suffix in _WINDOWS_PROGRAMS]
    return next((str(one) for one in files if one.is_file()), None)


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
    if (known := _WELL_KNOWN.get(command.lower())) is not None:
        return f"install it, or try {known}"
    return _HINTS.get(command.lower(), "install it, or write its whole path as 'command'")


def _is_passed_on(name: str, value: str, windows: bool) -> bool:
    if value.startswith("()"):
        # A function exported by bash is code, not a value.
        return False
    upper = name.upper()
    if upper in _PROXIES:
        return not _has_password(value)
    if name in _CERTIFICATES:
        return True
    return upper in _WINDOWS_BASE if windows else name in _POSIX_BASE or name.startswith(_POSIX_PREFIXES)


def _has_password(value: str) -> bool:
    return "@" in value


def _extend_path(path: str, home: Path, environ: Mapping[str, str], windows: bool) -> str:
    separator = ";" if windows else ":"
    parts = [part for part in path.split(separator) if part]
    known = {os.path.normpath(part) for part in parts}
    places = _usual_directories_on_windows(home, environ) if windows else _usual_directories(home, environ)
    for place in places:
        if os.path.normpath(place) not in known and _is_directory(place):
            known.add(os.path.normpath(place))
            parts.append(str(place))
    return separator.join(parts)


def _usual_directories(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the directories of installers. Version managers come last, as they may have old versions."""
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


_WRAPPERS: Final = frozenset({"cmd", "env"})
"""Programs that start another: `cmd /c npx ...`, which Windows needs, and `env NAME=value npx ...`."""
_MAX_WRAPPERS: Final = 3

_NPM_EXACT: Final = re.compile(r"v?=?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]*)?")
_PYTHON_EXACT: Final = re.compile(r"={2,3}\s*[0-9A-Za-z][0-9A-Za-z.!+_-]*")
_NPM_SPEC: Final = re.compile(
    r"(?P<name>(?:@[\w.~-]+/)?[\w.~-]+)(?:@latest|@v?=?(?P<version>\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]*)?))?"
)
_PYTHON_SPEC: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?(?:@latest|\s*(?:={2,3}|@)\s*(?P<version>v?\d[0-9A-Za-z.!+_-]*))?"
)
_VERSION: Final = re.compile(r"v?\d[0-9A-Za-z.!+_-]*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_LOCAL: Final = re.compile(r"\.{1,2}([/\\]|$)|[/\\~]|[A-Za-z]:[/\\]|file:")
_PYTHON_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?")


class _Launcher(msgspec.Struct, frozen=True):
    """The options by which a launcher is told what to run."""

    python: bool
    packages: frozenset[str]
    """Options whose value is a package."""
    instead: frozenset[str]
    """Those of `packages` that name what is run, instead of the first plain word."""
    values: frozenset[str]
    """Other options that take a value."""


_NPX: Final = _Launcher(
    False,
    frozenset({"-p", "--package"}),
    frozenset({"-p", "--package"}),
    frozenset({"-c", "--call", "--registry", "--cache", "--prefix", "-w", "--workspace", "--userconfig", "-n"}),
)
_UVX: Final = _Launcher(
    True,
    frozenset({"--from", "--with", "-w"}),
    frozenset({"--from"}),
    frozenset({
        "-p", "--python", "--index", "--index-url", "-i", "--default-index", "--extra-index-url", "-f", "--find-links",
        "--with-editable", "--with-requirements", "-c", "--constraints", "--constraint", "--overrides", "--override",
        "-b", "--build-constraints", "--env-file", "--directory", "--project", "--cache-dir", "--config-file",
        "--exclude-newer", "--refresh-package", "-P", "--upgrade-package", "--reinstall-package", "--link-mode",
        "--prerelease", "--resolution", "--index-strategy", "--keyring-provider", "--color", "--allow-insecure-host",
        "-C", "--config-setting", "--no-build-package", "--no-binary-package", "--python-preference", "--torch-backend",
    }),
)  # fmt: skip
_PIPX: Final = _Launcher(
    True,
    frozenset({"--spec", "--with"}),
    frozenset({"--spec"}),
    frozenset({"--python", "-i", "--index-url", "--pip-args", "--backend"}),
)
_LAUNCHERS: Final = {
    ("npx",): _NPX, ("bunx",): _NPX, ("pnpx",): _NPX, ("npm", "exec"): _NPX, ("npm", "x"): _NPX, ("bun", "x"): _NPX,
    ("pnpm", "dlx"): _NPX, ("yarn", "dlx"): _NPX,
    ("uvx",): _UVX, ("uv", "tool", "run"): _UVX,
    ("pipx", "run"): _PIPX,
}  # fmt: skip


def program_name(command: str) -> str:
    """Returns the name of a program without its directory and the suffixes of Windows."""
    # Windows paths have both kinds of slashes.
    path = PureWindowsPath(command)
    return path.stem.lower() if path.suffix.lower() in (".exe", ".cmd", ".bat", ".ps1") else path.name.lower()


def unwrap_command(command: str, args: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns the name of the program behind wrappers such as `env`, and its arguments."""
    for _ in range(_MAX_WRAPPERS):
        if program_name(command) not in _WRAPPERS:
            break
        rest = list(args)
        while rest and ((rest[0].startswith(("/", "-")) and len(rest[0]) <= 3) or "=" in rest[0]):
            rest.pop(0)
        if not rest:
            break
        command, args = rest[0], tuple(rest[1:])
    return program_name(command), args


class PackageSpec(msgspec.Struct, frozen=True):
    """A package that a command downloads."""

    written: str
    """The word of the command line that names the package."""
    kind: Literal["npm", "pypi"]
    name: str
    version: str | None
    """The pinned version; None: the newest at the time of the download."""

    def at(self, version: str) -> str:
        """Returns the word that pins the package to a version, written as it is pinned now."""
        if self.version is None:
            return f"{self.written.removesuffix('@latest')}@{version}"
        before, _, after = self.written.rpartition(self.version)
        return f"{before}{version}{after}"


def find_packages(command: str, args: tuple[str, ...]) -> tuple[PackageSpec, ...]:
    """Returns the packages of an index that a command starts. Files, addresses and ranges are left out."""
    found = (_spec(word, launcher) for word, launcher, is_main in _downloaded(command, args) if is_main)
    return tuple(one for one in found if one is not None)


def find_unpinned_packages(command: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the packages, as written, that a command downloads without a pinned version."""
    found = _downloaded(command, args)
    return tuple(word for word, launcher, _ in found if not (_python_pinned if launcher.python else _npm_pinned)(word))


def _downloaded(command: str, args: tuple[str, ...]) -> list[tuple[str, _Launcher, bool]]:
    """Returns (package as written, launcher, whether it is the one that is started) for each package."""
    name, words = unwrap_command(command, args)
    for head, launcher in _LAUNCHERS.items():
        if (name, *words[: len(head) - 1]) == head:
            return [(word, launcher, is_main) for word, is_main in _packages(launcher, words[len(head) - 1 :])]
    return []


def _spec(word: str, launcher: _Launcher) -> PackageSpec | None:
    form = _PYTHON_SPEC if launcher.python else _NPM_SPEC
    found = None if _LOCAL.match(word) else form.fullmatch(word)
    if found is None:
        return None
    return PackageSpec(word, "pypi" if launcher.python else "npm", found["name"], found["version"])


def _packages(launcher: _Launcher, words: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    named = False
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option in launcher.packages:
            named = named or option in launcher.instead
            yield value if equals else next(rest, ""), option in launcher.instead
        elif option in launcher.values:
            if not equals:
                next(rest, None)
        elif not word.startswith("-"):
            if not named:
                yield word, True
            return


def _npm_pinned(spec: str) -> bool:
    if _LOCAL.match(spec):
        return True
    _, alias, target = spec.partition("@npm:")
    spec = target if alias else spec
    if _COMMIT.search(spec.partition("#")[2]):
        return True
    name, at, version = spec[1:].partition("@")
    return bool(name) and bool(at) and _NPM_EXACT.fullmatch(version) is not None


def _python_pinned(spec: str) -> bool:
    if _LOCAL.match(spec):
        return True
    if "://" in spec or spec.startswith("git+"):
        return _COMMIT.search(spec.rpartition("@")[2]) is not None or "sha256=" in spec
    name = _PYTHON_NAME.match(spec)
    rest = spec[name.end() :].partition(";")[0].strip() if name is not None else ""
    if rest.startswith("@"):
        return _VERSION.fullmatch(rest[1:].strip()) is not None
    return any(_PYTHON_EXACT.fullmatch(part.strip()) for part in rest.split(","))
