"""The program behind a command line, and the packages that launchers such as `npx` and `uvx` download for it."""

from __future__ import annotations

import re
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
    """The grammar of a launcher: the options by which it is told what to run, and which options take a value."""

    kind: Literal["npm", "pypi", "oci", "nuget"]
    packages: frozenset[str] = frozenset()
    """Options whose value is a package."""
    instead: frozenset[str] = frozenset()
    """Those of `packages` that name what is run, instead of the first positional argument."""
    values: frozenset[str] = frozenset()
    """Other options that take a value."""
    flags: frozenset[str] | None = None
    """The options without a value, if every other option takes one."""
    grouped: bool = True
    """Whether `-ab` is `-a -b`, and `-aVALUE` is `-a VALUE`."""
    interspersed: bool = False
    """Whether options may follow the package."""

    def takes_value(self, option: str) -> bool:
        """Returns whether an option takes a value."""
        return option not in self.flags if self.flags is not None else option in self.packages | self.values


_NPX: Final = _Launcher(
    "npm",
    frozenset({"-p", "--package"}),
    frozenset({"-p", "--package"}),
    frozenset({"-c", "--call", "--registry", "--cache", "--prefix", "-w", "--workspace", "--userconfig", "-n"}),
    grouped=False,
)
_UVX: Final = _Launcher(
    "pypi",
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
    "pypi",
    frozenset({"--spec", "--with"}),
    frozenset({"--spec"}),
    frozenset({"--python", "-i", "--index-url", "--pip-args", "--backend"}),
)
_CONTAINER: Final = _Launcher(
    "oci",
    flags=frozenset({
        "-i", "--interactive", "-t", "--tty", "-d", "--detach", "-P", "--publish-all", "-q", "--quiet", "--rm",
        "--init", "--privileged", "--read-only", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy",
        "--use-api-socket", "--disable-content-trust", "--help", "--env-host", "--http-proxy", "--no-hosts",
        "--no-hostname", "--replace", "--rmi", "--passwd", "--read-only-tmpfs", "--tls-verify",
    }),
)  # fmt: skip
_DNX: Final = _Launcher(
    "nuget",
    values=frozenset({"--version", "--source", "--add-source", "--configfile", "-v", "--verbosity", "--framework"}),
    interspersed=True,
)
_LAUNCHERS: Final = {
    ("npx",): _NPX, ("bunx",): _NPX, ("pnpx",): _NPX, ("npm", "exec"): _NPX, ("npm", "x"): _NPX, ("bun", "x"): _NPX,
    ("pnpm", "dlx"): _NPX, ("yarn", "dlx"): _NPX,
    ("uvx",): _UVX, ("uv", "tool", "run"): _UVX,
    ("pipx", "run"): _PIPX,
    ("docker", "run"): _CONTAINER, ("docker", "container", "run"): _CONTAINER,
    ("podman", "run"): _CONTAINER, ("podman", "container", "run"): _CONTAINER,
    ("dnx",): _DNX, ("dotnet", "dnx"): _DNX, ("dotnet", "tool", "exec"): _DNX,
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


class Launch(msgspec.Struct, frozen=True):
    """The command line of a launcher, read as the launcher reads it."""

    kind: Literal["npm", "pypi", "oci", "nuget"]
    options: tuple[tuple[str, str | None], ...]
    """Its options, each with its value; None: it has none."""
    rest: tuple[str, ...]
    """The words behind its options: the package if no option names it, and what the program gets."""
    packages: tuple[tuple[str, bool], ...]
    """The packages that it downloads, as written, each with whether it is started."""

    @property
    def started(self) -> tuple[str, ...]:
        """The packages that are started, one if the command line is usual."""
        return tuple(package for package, is_main in self.packages if is_main)

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The packages that are downloaded without a pinned version."""
        return tuple(package for package, _ in self.packages if not _PINNED[self.kind](package))


def read_launch(command: str, args: tuple[str, ...]) -> Launch | None:
    """Returns what the command line of a launcher says; None if it is of another program."""
    name, arguments = unwrap_command(command, args)
    for head, launcher in _LAUNCHERS.items():
        if (name, *arguments[: len(head) - 1]) == head:
            return _read(launcher, arguments[len(head) - 1 :])
    return None


def _read(launcher: _Launcher, words: tuple[str, ...]) -> Launch:
    if launcher.interspersed and "--" in words:
        words = words[: words.index("--")]
    options, rest = _split_options(launcher, words)
    packages = [(value or "", option in launcher.instead) for option, value in options if option in launcher.packages]
    if rest and not any(is_main for _, is_main in packages):
        packages.append((rest[0], True))
    behind = rest
    while launcher.interspersed and behind:
        more, behind = _split_options(launcher, behind[1:])
        options += more
    return Launch(launcher.kind, tuple(options), rest, tuple(packages))


def _split_options(launcher: _Launcher, words: tuple[str, ...]) -> tuple[list[tuple[str, str | None]], tuple[str, ...]]:
    """Returns the options that the words begin with, each with its value, and the words behind them."""
    options: list[tuple[str, str | None]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if launcher.grouped and not word.startswith("--"):
            while len(word) > 2 and word[2] != "=" and not launcher.takes_value(word[:2]):
                options.append((word[:2], None))
                word = f"-{word[2:]}"
            name, equals, value = word[:2], word[2:], word[2:].removeprefix("=")
        if equals:
            options.append((name, value))
        elif launcher.takes_value(name) and at < len(words):
            options.append((name, words[at]))
            at += 1
        else:
            options.append((name, None))
    return options, words[at:]


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
    launch = read_launch(command, args)
    started = () if launch is None else launch.started
    return tuple(spec for package in started if launch and (spec := _spec(package, launch.kind)) is not None)


def find_unpinned_packages(command: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the packages, as written, that a command downloads without a pinned version."""
    launch = read_launch(command, args)
    return launch.unpinned if launch is not None and launch.kind in ("npm", "pypi") else ()


def _spec(package: str, kind: str) -> PackageSpec | None:
    if kind not in ("npm", "pypi") or _LOCAL.match(package):
        return None
    match = (_PYTHON_SPEC if kind == "pypi" else _NPM_SPEC).fullmatch(package)
    if match is None:
        return None
    return PackageSpec(package, "pypi" if kind == "pypi" else "npm", match["name"], match["version"])


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


def _image_pinned(image: str) -> bool:
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return bool(at) or tag not in ("", "latest")


def _tool_pinned(tool: str) -> bool:
    return re.fullmatch(r"[\w.-]+@\d[\w.+-]*", tool) is not None


_PINNED: Final = {"npm": _npm_pinned, "pypi": _python_pinned, "oci": _image_pinned, "nuget": _tool_pinned}
