"""The newest versions of packages, as npx and uvx find them: in the npm and PyPI indexes that the user has set."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mcp_hub.registry import RegistryError
from mcp_hub.registry.origin_client import JsonClient
from mcp_hub.registry.server_json import VERSION
from mcp_hub.security.private_files import read_regular
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress

Order = tuple[tuple[int, ...], int, tuple[tuple[int, str], ...]]
"""Epoch and numbers without zeros at the end; 0 for a pre-release, 1 final, 2 post-release; the parts of the suffix."""

_VERSION: Final = re.compile(r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_POST: Final = re.compile(r"[.-]?post\d*", re.IGNORECASE)


def order_of(version: str) -> Order:
    """Returns a key to compare versions by. A text that is not a version comes first."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (), 0, ((0, version),)
    numbers = [int((match[1] or "0")[:30]), *(int(part[:30]) for part in match[2].split("."))]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    suffix = match[3].partition("+")[0]
    parts = tuple(
        (int(part[:30]), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[A-Za-z]+", suffix)
    )
    state = 1 if not suffix else 2 if _POST.match(suffix) else 0
    return tuple(numbers), state, parts


def is_final(version: str) -> bool:
    """Returns whether launchers choose a version by default: it is no alpha, beta, candidate or nightly."""
    return order_of(version)[1] > 0


def is_newer(version: str, than: str) -> bool:
    """Returns whether a version comes after another."""
    return order_of(version) > order_of(than)


NPM: Final = "https://registry.npmjs.org"
PYPI: Final = "https://pypi.org/simple"
_NPM_JSON: Final = "application/vnd.npm.install-v1+json, application/json;q=0.8"
_PYPI_JSON: Final = "application/vnd.pypi.simple.v1+json"
MAX_SETTINGS: Final = 64 * 1024
"""Bytes of a settings file of npm or uv."""
MAX_VERSIONS: Final = 100_000
_NPMRC: Final = re.compile(r"\s*((?:@[\w.~-]+:)?registry)\s*=\s*[\"']?([^\"'\s]+)[\"']?\s*", re.IGNORECASE)


class PackageIndex:
    """The indexes of this user: by the variables of npm and uv in `environ`, else by their files below `home`.

    `egress`: makes the connections to them; None: by the proxy settings of the environment.
    """

    def __init__(self, environ: Mapping[str, str], home: Path, egress: Egress | None = None) -> None:
        self._environ = environ
        self._egress = egress
        self._home = home

    async def newest(self, kind: str, name: str) -> str:
        """Returns the version that a launcher uses by default. Raises RegistryError if it cannot be found."""
        if kind == "npm":
            return await self._newest_of_npm(name)
        if kind == "pypi":
            return await self._newest_of_pypi(name)
        raise RegistryError(f"the newest version of a package of {kind} cannot be found out")

    async def _newest_of_npm(self, name: str) -> str:
        async with JsonClient(self._npm_base(name), "the npm index", egress=self._egress) as client:
            answer = await client.get(name, accept=_NPM_JSON)
        tags = answer.get("dist-tags") if isinstance(answer, dict) else None
        latest = tags.get("latest") if isinstance(tags, dict) else None
        versions = answer.get("versions") if isinstance(answer, dict) else None
        if answer is None:
            raise RegistryError(f"the npm index has no package {printable(name, 200)!r}")
        if not isinstance(latest, str) or not isinstance(versions, dict) or latest not in versions:
            raise RegistryError(f"the npm index names no latest version of {printable(name, 200)!r}")
        return _check_version(latest, name)

    async def _newest_of_pypi(self, name: str) -> str:
        normalized_name = re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()
        async with JsonClient(self._pypi_base(), "the PyPI index", egress=self._egress) as client:
            answer = await client.get(normalized_name, "", accept=_PYPI_JSON)
        if answer is None:
            raise RegistryError(f"the PyPI index has no package {printable(name, 200)!r}")
        if not isinstance(answer, dict) or not isinstance(answer.get("files"), list):
            raise RegistryError(f"the PyPI index does not say the versions of {printable(name, 200)!r} as JSON")
        versions = [version for version in set(_versions_of_files(answer["files"][:MAX_VERSIONS])) if is_final(version)]
        if not versions:
            raise RegistryError(f"the PyPI index has no final version of {printable(name, 200)!r}")
        return _check_version(max(versions, key=order_of), name)

    def _npm_base(self, name: str) -> str:
        scope = name.partition("/")[0].lower() if name.startswith("@") else None
        environ = {key.lower(): value for key, value in self._environ.items() if value}
        npmrc = dict(self._npmrc())
        scope_registry = npmrc.get(f"{scope}:registry") if scope is not None else None
        return scope_registry or environ.get("npm_config_registry") or npmrc.get("registry") or NPM

    def _npmrc(self) -> Iterator[tuple[str, str]]:
        for line in _settings(self._home / ".npmrc").splitlines():
            match = _NPMRC.fullmatch(line)
            # Only npm itself can expand a variable in a value.
            if match is not None and "${" not in match[2]:
                yield match[1].lower(), match[2]

    def _pypi_base(self) -> str:
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
            if self._environ.get(name):
                return self._environ[name]
        base = self._environ.get("XDG_CONFIG_HOME")
        try:
            settings = tomllib.loads(_settings((Path(base) if base else self._home / ".config") / "uv" / "uv.toml"))
        except (ValueError, RecursionError):
            return PYPI
        indexes = settings.get("index")
        for index in indexes if isinstance(indexes, list) else ():
            if isinstance(index, dict) and index.get("default") is True and isinstance(index.get("url"), str):
                return str(index["url"])
        url = settings.get("index-url")
        return url if isinstance(url, str) else PYPI


def _settings(path: Path) -> str:
    try:
        return read_regular(path, MAX_SETTINGS)[0].decode("utf-8", "replace")
    except OSError:
        return ""


_FILE: Final = re.compile(
    r"(?:[A-Za-z0-9_.]+-)([0-9][^-]*)(?:-.*\.whl|\.tar\.gz|\.zip)|.+-([0-9][^-]*)(?:\.tar\.gz|\.zip)"
)


def _versions_of_files(files: list[Any]) -> Iterator[str]:
    for file in files:
        if not isinstance(file, dict) or file.get("yanked") not in (None, False):
            continue
        name = file.get("filename")
        match = _FILE.fullmatch(name) if isinstance(name, str) and len(name) < 500 else None
        if match is not None:
            yield match[1] or match[2]


def _check_version(version: str, name: str) -> str:
    if not VERSION.fullmatch(version):
        raise RegistryError(f"{printable(version, 100)!r} is not a version of {printable(name, 200)!r}")
    return version
