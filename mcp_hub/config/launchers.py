"""Programs that fetch a package and run it: which of the packages a command names are not pinned to one version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PureWindowsPath
from typing import Final

import msgspec

_WRAPPERS: Final = frozenset({"cmd", "env"})
"""`cmd /c npx ...`, as Windows needs it, and `env NAME=value npx ...`."""
_MAX_WRAPPERS: Final = 3

_NPM_EXACT: Final = re.compile(r"v?=?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]*)?")
_PYTHON_EXACT: Final = re.compile(r"={2,3}\s*[0-9A-Za-z][0-9A-Za-z.!+_-]*")
_VERSION: Final = re.compile(r"v?\d[0-9A-Za-z.!+_-]*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_LOCAL: Final = re.compile(r"\.{1,2}([/\\]|$)|[/\\~]|[A-Za-z]:[/\\]|file:")
_PYTHON_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?")


class _Launcher(msgspec.Struct, frozen=True):
    """How one of them is told what to run."""

    python: bool
    packages: frozenset[str]
    """Options whose value is a package."""
    instead: frozenset[str]
    """Those of them that stand in the place of the first plain word."""
    values: frozenset[str]
    """Other options with a value of their own."""


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


def program(command: str) -> str:
    """The name of a program without its directory and the endings of Windows."""
    # Windows paths have both kinds of slashes.
    path = PureWindowsPath(command)
    return path.stem.lower() if path.suffix.lower() in (".exe", ".cmd", ".bat", ".ps1") else path.name.lower()


def unwrapped(command: str, args: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The program that is really meant, by its name, and its arguments."""
    for _ in range(_MAX_WRAPPERS):
        if program(command) not in _WRAPPERS:
            break
        rest = list(args)
        while rest and ((rest[0].startswith(("/", "-")) and len(rest[0]) <= 3) or "=" in rest[0]):
            rest.pop(0)
        if not rest:
            break
        command, args = rest[0], tuple(rest[1:])
    return program(command), args


def unpinned(command: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """The packages a command fetches in whatever version is the newest then, as they are written there."""
    name, words = unwrapped(command, args)
    for head, launcher in _LAUNCHERS.items():
        if (name, *words[: len(head) - 1]) == head:
            found = _packages(launcher, words[len(head) - 1 :])
            return tuple(one for one in found if not (_python_pinned(one) if launcher.python else _npm_pinned(one)))
    return ()


def _packages(launcher: _Launcher, words: tuple[str, ...]) -> Iterator[str]:
    named = False
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option in launcher.packages:
            named = named or option in launcher.instead
            yield value if equals else next(rest, "")
        elif option in launcher.values:
            if not equals:
                next(rest, None)
        elif not word.startswith("-"):
            if not named:
                yield word
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
