"""Prevents a hub from serving itself, and limits how many hubs are in a row.

An entry that starts the same hub is recognised by its command line (`is_this_hub`). Indirect loops, through a script, a
shell or another hub, are recognised at run time. A hub that is started by another one inherits `VARIABLE`, with digests
of the configuration files of all hubs above it. A hub tells hubs that connect to it, in the `_meta` of its handshake
and of its lists, which hubs its lists come from (`HubPath`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.models import Server
from mcp_hub.config.package_specs import program_name
from mcp_hub.errors import INVALID_REQUEST, ConfigError, LeftOut, ProtocolError, UpstreamAnswered
from mcp_hub.protocol.era import is_hub
from mcp_hub.security.private_files import expand_home
from mcp_hub.text import printable

VARIABLE: Final = "MCP_HUB_ABOVE"
"""`SALT:DIGEST,DIGEST.DIGEST`, outermost hub first, in the environment of every child of a hub.

A hub has a digest for each of its files."""
HUB_KEY: Final = "mcp-hub/hub"
"""The key in `_meta` of a hub's responses to another hub, and in the `data` of the error that refuses one."""
ITSELF: Final = CodedText("is this hub itself; it is left out", codes.SERVES_ITSELF)
MAX_HUBS: Final = 256
"""The maximum number of hubs behind one hub. A hub with more is left out, as its list of ids may be incomplete."""
MAX_NOTES: Final = 8
MAX_NOTE: Final = 300
"""The maximum length of a note, in characters."""

_FILES: Final = r"[0-9a-f]{16}(?:\.[0-9a-f]{16}){0,15}"
_ABOVE: Final = re.compile(rf"([0-9a-f]{{32}}):({_FILES}(?:,{_FILES}){{0,63}})")
_ID: Final = re.compile(r"[0-9a-f]{32}")


class HubPath(msgspec.Struct, frozen=True):
    """The hubs behind a server, as a hub announces them to another hub; empty for any other server."""

    hubs: tuple[str, ...] = ()
    """The hub's id, then those of all hubs that its lists come from."""
    depth: int = 0
    """The number of hubs in a row, this one included."""
    notes: tuple[str, ...] = ()
    """A text on each server that it and the hubs behind it have left out to keep the row within its limit."""

    @classmethod
    def read(cls, answer: Any) -> Self:
        """Reads the path in the response to a handshake or list request. Invalid parts are ignored."""
        meta = answer.get("_meta") if isinstance(answer, dict) else None
        hub_info = meta.get(HUB_KEY) if isinstance(meta, dict) else None
        hubs = hub_info.get("hubs") if isinstance(hub_info, dict) else None
        if not isinstance(hub_info, dict) or not isinstance(hubs, list):
            return cls()
        ids = tuple(id for id in hubs[: MAX_HUBS + 1] if isinstance(id, str) and _ID.fullmatch(id))
        depth, notes = hub_info.get("depth"), hub_info.get("leftOut")
        texts = [text for text in notes if isinstance(text, str)] if isinstance(notes, list) else []
        return cls(
            ids,
            depth if isinstance(depth, int) and depth > 0 else 1,
            tuple(printable(text, MAX_NOTE) for text in texts[:MAX_NOTES]),
        )


class Ancestry(msgspec.Struct, frozen=True):
    """The place of one hub in a row of hubs."""

    above: tuple[str, ...]
    """For each hub above, outermost first, the digests of its files, joined by dots."""
    own: str
    """The digests of the hub's own files, joined by dots."""
    salt: str
    """The HMAC key of the digests, in hexadecimal, so that digests do not reveal the paths."""
    limit: int
    """The maximum number of hubs in a row."""
    identity: Callable[[], str]
    """Returns its id. Hubs of one user on one machine with the same configuration have the same id."""

    @classmethod
    def of(cls, paths: Sequence[Path], environ: Mapping[str, str], limit: int, key: Callable[[], bytes | None]) -> Self:
        """Returns the ancestry of a hub that is started with `environ`. `paths` are its files, none if made in code.

        `key()` returns a secret of the user, None if none can be stored. It is called when the id is first needed.
        """
        match = _ABOVE.fullmatch(environ.get(VARIABLE, ""))
        salt = match[1] if match is not None else secrets.token_hex(16)
        above = tuple(match[2].split(",")) if match is not None else ()
        cache: list[str] = []

        def identity() -> str:
            if not cache:
                secret = key() if paths else None
                cache.append(secrets.token_hex(16) if secret is None else _digest(secret, *paths))
            return cache[0]

        own = ".".join(_digest(bytes.fromhex(salt), path)[:16] for path in paths) or secrets.token_hex(8)
        return cls(above, own, salt, limit, identity)

    @property
    def for_children(self) -> str:
        """The value of `VARIABLE` for its children."""
        return f"{self.salt}:{','.join([*self.above, self.own][-64:])}"

    @property
    def too_deep(self) -> bool:
        """Whether there are too many hubs above it."""
        return len(self.above) >= self.limit

    def check_depth(self) -> None:
        """Raises ConfigError if there are too many hubs above it."""
        if self.too_deep:
            text = f"{self.refusal(None)} Set max_hub_depth in it, or unset ${VARIABLE}."
            raise ConfigError(text, codes.TOO_MANY_HUBS)

    @property
    def repeated(self) -> bool:
        """Whether a hub above it serves one of the same files."""
        return any(map(self._shares_files, self.above))

    def _shares_files(self, digests: str) -> bool:
        return not set(self.own.split(".")).isdisjoint(digests.split("."))

    def refusal(self, client_info: Any) -> ProtocolError | None:
        """Returns the error for a client over stdio that must not be served; None if it can be served.

        Below a hub with the same configuration, serving is a loop only if the client is a hub. Any other client was
        started by a tool of that hub, such as an agent in a shell, and is served; `limit` also ends such rows.
        """
        if self.too_deep:
            details = {"code": "too_deep", "hubs": len(self.above) + 1, "limit": self.limit}
            return ProtocolError(INVALID_REQUEST, f"This hub {_too_deep(details)}.", {HUB_KEY: details})
        if self.repeated and is_hub(client_info):
            between = [self._shares_files(digests) for digests in reversed(self.above)].index(True)
            text = "This hub runs behind a hub with the same configuration."
            return ProtocolError(INVALID_REQUEST, text, {HUB_KEY: {"code": "itself", "between": between}})
        return None

    def admit(self, behind: HubPath) -> None:
        """Raises LeftOut if a server is this hub itself, leads back to it, or makes the row of hubs too long."""
        if not behind.hubs:
            return
        if behind.hubs[0] == self.identity():
            raise LeftOut(ITSELF, codes.SERVES_ITSELF)
        if self.identity() in behind.hubs:
            raise LeftOut("is this hub itself, by way of another hub; it is left out", codes.SERVES_ITSELF)
        if len(behind.hubs) > MAX_HUBS:
            raise LeftOut(f"has more than {MAX_HUBS} hubs behind it; it is left out", codes.TOO_MANY_HUBS)
        if (hubs := len(self.above) + 1 + behind.depth) > self.limit:
            text = f"would make {hubs} hubs in a row, more than max_hub_depth: {self.limit}; it is left out"
            raise LeftOut(text, codes.TOO_MANY_HUBS)

    def describe(self, behind: Iterable[HubPath], notes: Iterable[str]) -> dict[str, Any]:
        """Returns what the hub announces to others: `{"hubs": [ID, ...], "depth": 1, "leftOut": [TEXT, ...]}`.

        `behind` are the paths of the servers that its lists come from.
        """
        paths = list(behind)
        hubs = dict.fromkeys([self.identity(), *(id for path in paths for id in path.hubs)])
        announcement: dict[str, Any] = {
            "hubs": list(hubs)[: MAX_HUBS + 1],
            "depth": 1 + max((path.depth for path in paths), default=0),
        }
        if texts := [text[:MAX_NOTE] for text in notes][:MAX_NOTES]:
            announcement["leftOut"] = texts
        return announcement


def refusal_in(error: UpstreamAnswered) -> LeftOut | None:
    """Returns why a hub must be left out if its error says so; None for any other error."""
    details = error.data.get(HUB_KEY) if isinstance(error.data, dict) else None
    if not isinstance(details, dict):
        return None
    if details.get("code") == "itself":
        between = details.get("between")
        text = "leads back to a hub that this one runs behind; it is left out" if between else ITSELF
        return LeftOut(text, codes.SERVES_ITSELF)
    return LeftOut(f"{_too_deep(details)}; it is left out", codes.TOO_MANY_HUBS)


def _too_deep(details: Mapping[str, Any]) -> str:
    hubs, limit = (printable(str(details.get(key)), 20) for key in ("hubs", "limit"))
    return f"would be number {hubs} in a row of hubs, and the max_hub_depth of its configuration is {limit}"


def _digest(key: bytes, *paths: Path) -> str:
    # Containers may share users, files and paths; their host names differ.
    node = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    message = os.fsencode("\0".join([node, *sorted(str(path.resolve()) for path in paths)]))
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:32]


_COMMANDS: Final = frozenset({"mcp-hub", "mcp-hub-gateway"})
"""The command, and the name of its distribution, which `uvx` and `pipx run` accept as the command."""
_MODULE: Final = "mcp_hub"
_SERVE: Final = "serve"
_REQUIREMENT: Final = re.compile(r"[\[=@<>~!].*")
"""Extras and version after the name of a package."""

DefaultPath = Callable[[Path, Mapping[str, str]], Path]
"""Returns the default configuration of a hub by its working directory and its environment."""


def is_this_hub(server: Server, paths: Sequence[Path], environ: Mapping[str, str], default_path: DefaultPath) -> bool:
    """Returns whether an enabled entry starts `mcp-hub serve` with one of `paths`, the files of this hub."""
    if not server.enabled or not server.command:
        return False
    options = options_of_serve((server.command, *server.args), environ)
    if options is None:
        return False
    directory = server.cwd or Path.cwd()
    for config_option in option_values(options, "--config") or [None]:
        with contextlib.suppress(ConfigError, OSError, RuntimeError, ValueError):
            if config_option is None:
                from mcp_hub.config.commands import child_environment

                candidate = default_path(directory, child_environment(server, environ, Path.home()))
            else:
                candidate = directory / expand_home(config_option)
            if any(candidate.samefile(path) for path in paths if path.exists()):
                return True
    return False


def options_of_serve(argv: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Returns the arguments after `mcp-hub ... serve` in a command line, with any launcher; None if there is none."""
    if _SERVE not in argv:
        return None
    for index, argument in enumerate(argv):
        module = argument == _MODULE and index > 0 and argv[index - 1] == "-m"
        if module or argument == f"-m{_MODULE}" or _is_command(argument, environ, first=index == 0):
            remainder = argv[index + 1 :]
            return remainder[remainder.index(_SERVE) + 1 :] if _SERVE in remainder else None
    return None


def _is_command(argument: str, environ: Mapping[str, str], *, first: bool) -> bool:
    if _REQUIREMENT.sub("", program_name(argument)) in _COMMANDS:
        return True
    executable = shutil.which(argument, path=environ.get("PATH")) if first else None
    return executable is not None and program_name(str(Path(executable).resolve())) in _COMMANDS


def option_values(options: tuple[str, ...], searched: str) -> list[str | None]:
    """Returns the values of an option such as `--config`, and of abbreviations of it."""
    values: list[str | None] = []
    for index, option in enumerate(options):
        name, equals, value = option.partition("=")
        if len(name) > len("--") and searched.startswith(name):
            values.append(value if equals else next(iter(options[index + 1 :]), ""))
    return values
