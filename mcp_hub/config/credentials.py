"""The credentials of an entry: its headers, its environment, and its OAuth settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.field_types import After, Before, SecretStr, ValidationError
from mcp_hub.config.fields import Fields, FieldValue
from mcp_hub.config.findings import Findings, KeyPath, dotted, only_known
from mcp_hub.config.settings import Frozen
from mcp_hub.config.variables import UnresolvedVariable, read_dotenv, read_text
from mcp_hub.text import printable

Grant = Literal["authorization_code", "client_credentials"]
ClientAuth = Literal["none", "client_secret_post", "client_secret_basic"]
SigningAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
TokenStore = Literal["file", "keyring"]


_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""One scope, as in RFC 6749, section 3.3."""


def _scopes(value: Any) -> tuple[str, ...]:
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list | tuple) or not all(
        isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in scopes
    ):
        raise ValueError("must be a list of scopes, or a text with spaces between them")
    return tuple(dict.fromkeys(scopes))


Scopes = Annotated[tuple[str, ...], Before(_scopes)]


def port_from(first: int) -> Before:
    """Returns the note for a port of at least `first`."""

    def parse(value: Any) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not first <= value <= 65535:
            raise ValueError(f"must be a port, a whole number from {first} to 65535")
        return value

    return Before(parse)


def _address(value: str) -> str:
    if not value.isprintable() or not value.startswith(("https://", "http://")):
        raise ValueError("must be the https:// address of an authorization server")
    return value


def _document(value: str) -> str:
    if not value.isprintable() or not value.startswith("https://") or urlsplit(value).path in ("", "/"):
        raise ValueError("must be an https:// address with a path")
    return value


class OAuthSettings(Frozen):
    """How the hub gets tokens for one server. Settings that are missing come from discovery and registration."""

    grant: Grant = "authorization_code"
    """`authorization_code`: a user signs in with `mcp-hub login`. `client_credentials`: the hub signs in as itself."""
    client_id: str | None = None
    """The id of the hub at the authorization server; None: the hub uses a client-id metadata document or registers."""
    client_secret: SecretStr | None = None
    """The secret of `client_id`."""
    token_endpoint_auth_method: ClientAuth | None = None
    """How the hub authenticates to the token endpoint; None: the method that the authorization server prefers."""
    private_key: SecretStr | None = None
    """A key in PEM. With it the hub signs an assertion instead of sending a secret (client credentials only)."""
    signing_algorithm: SigningAlgorithm = "RS256"
    """The algorithm that `private_key` signs with."""
    scopes: Scopes = ()
    """The scopes that the hub asks for; (): those that the server names."""
    issuer: Annotated[str, After(_address)] | None = None
    """The authorization server that `client_id` belongs to; its secret is sent to no other."""
    redirect_port: Annotated[int, port_from(1)] | None = None
    """The port on 127.0.0.1 to which a sign-in is redirected; None: any free port."""
    client_metadata_url: Annotated[str, After(_document)] | None = None
    """The HTTPS URL of the hub's client-id metadata document."""

    def __post_init__(self) -> None:
        if self.grant == "client_credentials":
            if self.client_id is None or (self.client_secret is None) == (self.private_key is None):
                raise ValueError("client_credentials needs a client_id and either a client_secret or a private_key")
            if self.redirect_port is not None or self.client_metadata_url is not None:
                raise ValueError("redirect_port and client_metadata_url are for the grant authorization_code")
        elif self.private_key is not None:
            raise ValueError("a private_key is for the grant client_credentials")
        elif self.client_secret is not None and self.client_id is None:
            raise ValueError("a client_secret belongs to a client_id")
        if self.client_id is not None and self.client_metadata_url is not None:
            raise ValueError("client_id and client_metadata_url are two ways to say the same; keep one")


def is_loopback(host: str | None) -> bool:
    """Returns whether a name or literal address is this machine's own. Names are not resolved."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost")


_OAUTH_ALIASES: Final = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scopes"}
"""Keys of other hosts -> keys of OAuthSettings."""


def read_oauth(fields: Fields, findings: Findings) -> OAuthSettings | None:
    """Reads `auth: oauth` or a mapping below `auth`; None if it is absent or a bearer token."""
    auth = fields.values.get("auth")
    if auth is None or not (auth.value == "oauth" or isinstance(auth.value, dict)):
        return None
    url = fields.text("url")
    if url is None:
        fields.error(auth.at, "is for an entry with a 'url'")
        return None
    if not is_private_channel(url):
        fields.error(auth.at, "needs a url with https:// (or one on this machine): tokens could be read on the way")
    values: Mapping[str, Any] = {} if auth.value == "oauth" else auth.value
    values = {_OAUTH_ALIASES.get(key, key): value for key, value in values.items()}
    if values.get("type", "oauth") != "oauth":
        fields.error((*auth.at, "type"), "must be oauth")
    known_values = only_known(values, ("type", *OAuthSettings.model_fields), auth.at, findings)
    inner = fields.inner({name: FieldValue(item, (*auth.at, name)) for name, item in known_values.items()})
    try:
        return OAuthSettings(**inner.typed(OAuthSettings, OAuthSettings.model_fields))
    except ValidationError as error:
        for _, text in error.errors:
            fields.error(auth.at, text)
        return None


def is_private_channel(url: str) -> bool:
    """Returns whether nobody else can read what is sent to a URL: it has https, or is on this machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or is_loopback(parts.hostname)
    except ValueError:
        return True  # the error is reported where the url is read


MAX_ENV_FILE: Final = 1024 * 1024

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_BARE_VARIABLE: Final = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_BEARER: Final = "Bearer"


def read_headers(fields: Fields, reasons: dict[KeyPath, CodedText]) -> dict[str, SecretStr]:
    """Reads all headers: `headers`, `api_key`, `auth`, and Codex's `bearer_token_env_var` and `env_http_headers`.

    Variables without a value are added to `reasons`: key path -> reason.
    """
    headers = _Headers(fields)
    for name, field in (fields.mapping("headers") or {}).items():
        headers.add(name, fields.scalar(field.value, field.at), field.at)
    for name, field in (fields.mapping("env_http_headers") or {}).items():
        headers.add(name, _variable_value(fields, fields.scalar(field.value, field.at), field.at, reasons), field.at)
    if (variable := fields.text("bearer_token_env_var")) is not None:
        at = fields.values["bearer_token_env_var"].at
        token = _variable_value(fields, variable, at, reasons)
        headers.add("Authorization", None if token is None else f"{_BEARER} {token.strip()}", at)
    if (key := fields.text("api_key")) is not None:
        at = fields.values["api_key"].at
        header, scheme = _header_and_scheme(fields.text("api_key_header"))
        headers.add(header, f"{scheme} {key.strip()}" if scheme else key, at)
    elif "api_key_header" in fields:
        fields.error(fields.values["api_key_header"].at, "is for an 'api_key', but there is none")
    _read_auth(fields, headers)
    return headers.values


def read_env(fields: Fields, reasons: dict[KeyPath, CodedText]) -> dict[str, SecretStr]:
    """Reads the environment: `env` over `env_file` over Codex's `env_vars` and Goose's `env_keys`.

    Variables without a value are added to `reasons`: key path -> reason.
    """
    environment: dict[str, SecretStr] = {}
    for name in _forwarded_names(fields):
        # As in Codex and 1MCP, a variable that is not set is skipped.
        if name in fields.scope.environ:
            environment[name] = SecretStr(fields.scope.environ[name])
    if (path := fields.path("env_file")) is not None:
        at = fields.values["env_file"].at
        try:
            environment.update((name, SecretStr(value)) for name, value in _env_file(path, fields).items())
        except UnresolvedVariable as reason:
            reasons.setdefault(at, CodedText(f"{printable(path.name)} {reason}", reason.code))
    for name, field in (fields.mapping("env", pairs=True) or {}).items():
        if not name or "=" in name or "\0" in name or not name.isprintable():
            fields.error(field.at, "is not a valid name of an environment variable")
        elif field.value is not None and (text := fields.scalar(field.value, field.at)) is not None:
            _warn_of_bare_variable(fields, text, field.at)
            environment[name] = SecretStr(text)
        elif field.value is None:
            fields.error(field.at, 'has no value; write "" for an empty one, ${NAME} to pass the hub\'s own on')
    if "env_keys" in fields:
        at = fields.values["env_keys"].at
        for name in fields.texts("env_keys"):
            # Values in `envs` win. As in Goose, a server does not start without a secret that is not found.
            if name not in environment and (value := _variable_value(fields, name, at, reasons)) is not None:
                environment[name] = SecretStr(value)
    return environment


class _Headers:
    """Collects headers, and refuses two of one name, whatever its case, as both would be sent."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._key_paths: dict[str, KeyPath] = {}
        self.values: dict[str, SecretStr] = {}

    def add(self, name: str, value: str | None, at: KeyPath) -> None:
        if not _HEADER_NAME.fullmatch(name):
            self._fields.error(at, "is not a valid name of a header")
        elif self._key_paths.setdefault(name.lower(), at) is not at:
            self._fields.error(at, f"the header is already given by {dotted(self._key_paths[name.lower()])}")
        elif value is not None:
            _warn_of_bare_variable(self._fields, value, at)
            # A secret from a file or a variable often ends in a line break.
            value = value.strip()
            if _HEADER_VALUE.fullmatch(value):
                self.values[name] = SecretStr(value)
            else:
                self._fields.error(at, "holds a line break or a control character")


def _header_and_scheme(header: str | None) -> tuple[str, str]:
    """Returns (name, scheme) of `api_key_header`, such as `X-Api-Key`; by default `Authorization` and `Bearer`."""
    name, _, scheme = (header or "Authorization").partition(":")
    name, scheme = name.strip(), scheme.strip()
    return name, scheme or (_BEARER if name.lower() == "authorization" else "")


def _read_auth(fields: Fields, headers: _Headers) -> None:
    """Reads FastMCP's `auth` if it is a bearer token. `read_oauth` reads its other forms."""
    auth = fields.values.get("auth")
    if auth is None or auth.value in (None, False, "none"):
        return
    if auth.value == "oauth" or isinstance(auth.value, dict):
        if any(name.lower() == "authorization" for name in headers.values):
            fields.error(auth.at, "signs in, but an Authorization header is given as well; keep one of them")
    elif (token := fields.text("auth")) is not None:
        headers.add("Authorization", f"{_BEARER} {token.strip()}", auth.at)


def _variable_value(fields: Fields, name: str | None, at: KeyPath, reasons: dict[KeyPath, CodedText]) -> str | None:
    if name is None:
        return None
    value = fields.scope.environ.get(name)
    if value is None:
        # A user may have written the secret itself instead of a variable's name, so it is not quoted.
        label = name if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) else "named there"
        reasons.setdefault(at, CodedText(f"the environment variable {label} is not set", codes.VARIABLE_UNSET))
    return value


def _forwarded_names(fields: Fields) -> list[str]:
    """Returns the names in `env_vars`, and those without a value in a list `env` (1MCP)."""
    env = fields.values.get("env")
    pairs = env.value if env is not None and isinstance(env.value, list) else []
    bare_names = [item for item in pairs if isinstance(item, str) and "=" not in item]
    if (env_vars := fields.get("env_vars")) is None:
        return bare_names
    if not isinstance(env_vars.value, list):
        fields.error(env_vars.at, "must be a list of names of variables")
        return bare_names
    names = [item.get("name") if isinstance(item, dict) else item for item in env_vars.value]
    return [*bare_names, *(name for name in names if isinstance(name, str))]


def _env_file(path: Path, fields: Fields) -> dict[str, str]:
    fields.scope.read.add(path)
    content, warnings = read_text(path, MAX_ENV_FILE, "what a server is started with")
    for warning in warnings:
        fields.warning(fields.values["env_file"].at, warning, warning.code)
    values = read_dotenv(content, fields.scope)
    if any("\0" in value for value in values.values()):
        raise UnresolvedVariable("holds a NUL character")
    return values


def _warn_of_bare_variable(fields: Fields, text: str, at: KeyPath) -> None:
    if _BARE_VARIABLE.fullmatch(text.removeprefix(f"{_BEARER} ")):
        fields.warning(at, "a bare $NAME is passed on as it is; write ${NAME} for the variable's value")
