"""The headers and the environment of one entry, from all the keys that add to them."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Final

from mcp_hub.config.dotenv import read_dotenv
from mcp_hub.config.fields import Fields
from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.config.ownership import refuse_foreign
from mcp_hub.config.secret_str import SecretStr
from mcp_hub.config.variables import Unresolved
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

MAX_ENV_FILE: Final = 1024 * 1024

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_BARE_VARIABLE: Final = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_BEARER: Final = "Bearer"


def read_headers(fields: Fields, reasons: dict[KeyPath, str]) -> dict[str, SecretStr]:
    """`headers`, `api_key`, `auth` and Codex's `bearer_token_env_var` and `env_http_headers` as one set.

    What has no value is added to `reasons`: place -> reason.
    """
    headers = _Headers(fields)
    for name, given in (fields.mapping("headers") or {}).items():
        headers.add(name, fields.scalar(given.value, given.at), given.at)
    for name, given in (fields.mapping("env_http_headers") or {}).items():
        headers.add(name, _of_variable(fields, fields.scalar(given.value, given.at), given.at, reasons), given.at)
    if (variable := fields.text("bearer_token_env_var")) is not None:
        at = fields.given["bearer_token_env_var"].at
        token = _of_variable(fields, variable, at, reasons)
        headers.add("Authorization", None if token is None else f"{_BEARER} {token.strip()}", at)
    if (key := fields.text("api_key")) is not None:
        at = fields.given["api_key"].at
        header, scheme = _place_of_key(fields.text("api_key_header"))
        headers.add(header, f"{scheme} {key.strip()}" if scheme else key, at)
    elif "api_key_header" in fields:
        fields.error(fields.given["api_key_header"].at, "says where an 'api_key' goes, but there is none")
    _read_auth(fields, headers)
    return headers.found


def read_env(fields: Fields, reasons: dict[KeyPath, str]) -> dict[str, SecretStr]:
    """`env` over `env_file` over Codex's `env_vars`. What has no value is added to `reasons`: place -> reason."""
    found: dict[str, SecretStr] = {}
    for name in _passed_on(fields):
        # As in Codex: a name to pass on if it is there, not one that must be.
        if name in fields.scope.environ:
            found[name] = SecretStr(fields.scope.environ[name])
    if (path := fields.path("env_file")) is not None:
        at = fields.given["env_file"].at
        try:
            found.update((name, SecretStr(value)) for name, value in _env_file(path, fields).items())
        except Unresolved as reason:
            reasons.setdefault(at, f"{printable(path.name)} {reason}")
    for name, given in (fields.mapping("env", pairs=True) or {}).items():
        if not name or "=" in name or "\0" in name or not name.isprintable():
            fields.error(given.at, "is not a name an environment variable can have")
        elif given.value is not None and (text := fields.scalar(given.value, given.at)) is not None:
            _warn_of_bare(fields, text, given.at)
            found[name] = SecretStr(text)
        elif given.value is None:
            fields.error(given.at, 'has no value; write "" for an empty one, ${NAME} to pass the hub\'s own on')
    return found


class _Headers:
    """Header names are equal whatever their case; two values for one would be sent as two headers."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._taken: dict[str, KeyPath] = {}
        self.found: dict[str, SecretStr] = {}

    def add(self, name: str, value: str | None, at: KeyPath) -> None:
        if not _HEADER_NAME.fullmatch(name):
            self._fields.error(at, "is not a name a header can have")
        elif self._taken.setdefault(name.lower(), at) is not at:
            self._fields.error(at, f"the header is already given by {dotted(self._taken[name.lower()])}")
        elif value is not None:
            _warn_of_bare(self._fields, value, at)
            # A secret read from a file or pasted into a variable often has a line end.
            value = value.strip()
            if _HEADER_VALUE.fullmatch(value):
                self.found[name] = SecretStr(value)
            else:
                self._fields.error(at, "holds a line break or a control character")


def _place_of_key(header: str | None) -> tuple[str, str]:
    """Name and scheme: `Authorization` and `Bearer` unless told; `X-Api-Key` takes the bare key."""
    name, _, scheme = (header or "Authorization").partition(":")
    name, scheme = name.strip(), scheme.strip()
    return name, scheme or (_BEARER if name.lower() == "authorization" else "")


def _read_auth(fields: Fields, headers: _Headers) -> None:
    """FastMCP's `auth`: a bearer token; how to sign in, `oauth.py` reads."""
    given = fields.given.get("auth")
    if given is None or given.value in (None, False, "none"):
        return
    if given.value == "oauth" or isinstance(given.value, dict):
        if any(name.lower() == "authorization" for name in headers.found):
            fields.error(given.at, "signs in, but an Authorization header is given as well; keep one of them")
    elif (token := fields.text("auth")) is not None:
        headers.add("Authorization", f"{_BEARER} {token.strip()}", given.at)


def _of_variable(fields: Fields, name: str | None, at: KeyPath, reasons: dict[KeyPath, str]) -> str | None:
    if name is None:
        return None
    value = fields.scope.environ.get(name)
    if value is None:
        # Somebody may have put the secret itself where its variable's name belongs.
        shown = name if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) else "named there"
        reasons.setdefault(at, f"the environment variable {shown} is not set")
    return value


def _passed_on(fields: Fields) -> list[str]:
    given = fields.given.get("env_vars")
    if given is None or given.value is None:
        return []
    if not isinstance(given.value, list):
        fields.error(given.at, "must be a list of names of variables")
        return []
    names = [item.get("name") if isinstance(item, dict) else item for item in given.value]
    return [name for name in names if isinstance(name, str)]


def _env_file(path: Path, fields: Fields) -> dict[str, str]:
    fields.scope.read.add(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unresolved("is not a file")
        with path.open("rb") as file:
            for text in refuse_foreign(path, file.fileno(), "what a server is started with"):
                fields.warning(fields.given["env_file"].at, text)
            content = file.read(MAX_ENV_FILE + 1)
        if len(content) > MAX_ENV_FILE:
            raise Unresolved("is too large")
        values = read_dotenv(content.decode("utf-8-sig"), fields.scope)
    except UnicodeDecodeError:
        raise Unresolved("is not UTF-8 text") from None
    except ConfigError as error:
        raise Unresolved(f"is refused: {printable(str(error), 500)}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise Unresolved(f"cannot be read: {reason}") from None
    if any("\0" in value for value in values.values()):
        raise Unresolved("holds a NUL character")
    return values


def _warn_of_bare(fields: Fields, text: str, at: KeyPath) -> None:
    if _BARE_VARIABLE.fullmatch(text.removeprefix(f"{_BEARER} ")):
        fields.warning(at, "a bare $NAME is passed on as it is; write ${NAME} for the variable's value")
