"""The program behind a command line, and the packages that launchers such as `npx` and `uvx` download for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PureWindowsPath
from typing import Final, Literal

import msgspec

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
    """Those of `packages` that name what is run, instead of the first positional argument."""
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
        remaining = list(args)
        while remaining and ((remaining[0].startswith(("/", "-")) and len(remaining[0]) <= 3) or "=" in remaining[0]):
            remaining.pop(0)
        if not remaining:
            break
        command, args = remaining[0], tuple(remaining[1:])
    return program_name(command), args


class PackageSpec(msgspec.Struct, frozen=True):
    """A package that a command downloads."""

    written: str
    """The argument of the command line that names the package."""
    kind: Literal["npm", "pypi"]
    name: str
    version: str | None
    """The pinned version; None: the newest at the time of the download."""

    def at(self, version: str) -> str:
        """Returns the argument that pins the package to a version, written as it is pinned now."""
        if self.version is None:
            return f"{self.written.removesuffix('@latest')}@{version}"
        prefix, _, suffix = self.written.rpartition(self.version)
        return f"{prefix}{version}{suffix}"


def find_packages(command: str, args: tuple[str, ...]) -> tuple[PackageSpec, ...]:
    """Returns the packages of an index that a command starts. Files, addresses and ranges are left out."""
    specs = (_spec(package, launcher) for package, launcher, is_main in _downloaded(command, args) if is_main)
    return tuple(spec for spec in specs if spec is not None)


def find_unpinned_packages(command: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the packages, as written, that a command downloads without a pinned version."""
    packages = _downloaded(command, args)
    return tuple(
        package
        for package, launcher, _ in packages
        if not (_python_pinned if launcher.python else _npm_pinned)(package)
    )


def _downloaded(command: str, args: tuple[str, ...]) -> list[tuple[str, _Launcher, bool]]:
    """Returns (package as written, launcher, whether it is the one that is started) for each package."""
    name, arguments = unwrap_command(command, args)
    for head, launcher in _LAUNCHERS.items():
        if (name, *arguments[: len(head) - 1]) == head:
            return [
                (package, launcher, is_main) for package, is_main in _packages(launcher, arguments[len(head) - 1 :])
            ]
    return []


def _spec(package: str, launcher: _Launcher) -> PackageSpec | None:
    form = _PYTHON_SPEC if launcher.python else _NPM_SPEC
    match = None if _LOCAL.match(package) else form.fullmatch(package)
    if match is None:
        return None
    return PackageSpec(package, "pypi" if launcher.python else "npm", match["name"], match["version"])


def _packages(launcher: _Launcher, arguments: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    has_package = False
    remaining = iter(arguments)
    for argument in remaining:
        option, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if option in launcher.packages:
            has_package = has_package or option in launcher.instead
            yield value if equals else next(remaining, ""), option in launcher.instead
        elif option in launcher.values:
            if not equals:
                next(remaining, None)
        elif not argument.startswith("-"):
            if not has_package:
                yield argument, True
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
    requirement = spec[name.end() :].partition(";")[0].strip() if name is not None else ""
    if requirement.startswith("@"):
        return _VERSION.fullmatch(requirement[1:].strip()) is not None
    return any(_PYTHON_EXACT.fullmatch(part.strip()) for part in requirement.split(","))
