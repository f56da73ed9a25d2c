"""Reads server.json (schemas 2025-09-29 to 2025-12-11) from a registry, and refuses what could mislead or do harm.

The publisher of a listing chooses its texts. So identifiers and versions must have the form of their package index;
texts have no control characters, and no variables of the hub's configuration, which would read this machine's
environment and files; a launcher gets no option that changes what it downloads, and no environment variable that
changes how programs start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from mcp_hub.config.credentials import is_private_channel
from mcp_hub.registry import (
    EXPANDED,
    Argument,
    Listing,
    Package,
    PackageKind,
    RegistryError,
    Remote,
    Setting,
    Template,
    UserInput,
)
from mcp_hub.registry.launch import check_launch
from mcp_hub.text import find_hidden_characters, printable

MAX_TEXT: Final = 4096
"""Characters of one text of a listing."""
MAX_MEMBERS: Final = 64
"""The most packages, addresses, arguments, variables or choices of one listing, each."""
SHOWN: Final = 100

NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]{0,127}/[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")
VERSION: Final = re.compile(r"(?=.*\d)[0-9A-Za-z][0-9A-Za-z.+!_-]{0,99}")
_SEMVER: Final = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_PEP_440: Final = re.compile(
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[._-]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[._-]?\d*){0,4}"
    r"(?:\+[a-z0-9]+(?:[._-][a-z0-9]+)*)?",
    re.IGNORECASE,
)
_VERSIONS: Final = {
    "npm": _SEMVER,
    "pypi": _PEP_440,
    "nuget": re.compile(r"\d+(?:\.\d+){1,3}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"),
    "oci": re.compile(r"(?=.*\d)(?!.*\.[xX]$)\w[\w.-]{0,127}|sha256:[0-9a-f]{64}"),
}
"""Kind of package -> what its launcher takes for one version, and not for a tag, a range or a path."""
_IDENTIFIERS: Final[Mapping[str, re.Pattern[str]]] = {
    "npm": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]{0,99}/)?[a-z0-9~][a-z0-9._~-]{0,199}", re.IGNORECASE),
    "pypi": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?"),
    "nuget": re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_])?"),
    "oci": re.compile(
        r"[a-z0-9][a-z0-9._/-]*(?::\d{1,5}/[a-z0-9._/-]+)?(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
    ),
    "mcpb": re.compile(r"https?://[\x21-\x7e]{1,2000}"),
}
_INDEXES: Final[Mapping[str, frozenset[str]]] = {
    "npm": frozenset({"registry.npmjs.org"}),
    "pypi": frozenset({"pypi.org"}),
    "nuget": frozenset({"api.nuget.org"}),
}
"""Hosts that a launcher downloads from. A listing that names another host means another package."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_FLAG: Final = re.compile(r"-{0,2}[A-Za-z0-9][\w.:/-]{0,127}|-{1,2}")
_INPUT: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,127}")
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z0-9_][\w.-]{0,127})\}")
_FIXED_BY_USER: Final = re.compile(
    r"(?:PATH|PATHEXT|COMSPEC|HOME|USERPROFILE|(?:LOCAL)?APPDATA|SHELL|ENV|BASH_ENV|IFS|NODE_(?!ENV$)\w*|SSL_CERT_\w+"
    r"|(?:CURL|REQUESTS)_CA_BUNDLE|PERL5\w+|RUBY(?:OPT|LIB)|(?:JAVA_TOOL|_JAVA|JDK_JAVA)_OPTIONS|GCONV_PATH"
    r"|(?:LD|DYLD|NPM_CONFIG|UV|PIP|PIPX|DOCKER|CONTAINERS?|NUGET|DOTNET|CORECLR|COR|MCP_HUB|XDG|OPENSSL|BUN|DENO|YARN"
    r"|COREPACK)_\w*|GIT_(?:SSH|EXEC|CONFIG|PROXY|ASKPASS|EXTERNAL)\w*|(?:HTTPS?|ALL|NO)_PROXY"
    r"|PYTHON(?!UNBUFFERED$|UTF8$|IOENCODING$)\w*)",
    re.IGNORECASE,
)
"""Variables that decide what programs load, download or trust. A listing cannot give them a value, or a part of one."""
_TRANSPORTS: Final[Mapping[str, Literal["http", "sse"]]] = {"streamable-http": "http", "sse": "sse"}
_STATUS: Final[Mapping[str, Literal["active", "deprecated", "deleted"]]] = {
    "active": "active",
    "deprecated": "deprecated",
    "deleted": "deleted",
}
OFFICIAL: Final = "io.modelcontextprotocol.registry/official"


class _Refused(ValueError):
    """A part of a listing cannot be used. `str()` says why."""


def read_answer(answer: Any, source: str, name: str | None = None) -> Listing:
    """Reads `{"server": {...}, "_meta": {...}}`, or a server.json alone. `name`: the server that was requested.

    Raises RegistryError if the answer cannot be used or describes another server.
    """
    wrapped = isinstance(answer, dict) and isinstance(answer.get("server"), dict)
    server = answer["server"] if wrapped else answer
    meta = answer.get("_meta") if wrapped else None
    raw_official = meta.get(OFFICIAL) if isinstance(meta, dict) else None
    official = raw_official if isinstance(raw_official, dict) else {}
    try:
        listing = _read_server(server, source, name)
        status = _STATUS.get(str(official.get("status")), "active")
        return msgspec.structs.replace(listing, status=status, latest=official.get("isLatest") is not False)
    except _Refused as refusal:
        about = f" of {printable(name, SHOWN)}" if name is not None else ""
        raise RegistryError(f"{source}: its listing{about} cannot be used: {refusal}") from None


def _read_server(server: Any, source: str, expected_name: str | None) -> Listing:
    fields = _object(server, "it")
    name = _text(fields, "name", required=True)
    if not NAME.fullmatch(name):
        raise _Refused(f"{_quoted(name)} is not a name such as io.github.owner/server")
    if expected_name is not None and name != expected_name:
        raise _Refused(f"it describes another server than was requested, {_quoted(name)}")
    version = _text(fields, "version", required=True)
    if not VERSION.fullmatch(version):
        raise _Refused(f"its version {_quoted(version)} is not a version")
    refused: list[str] = []
    offers: list[Package | Remote] = []
    readers = (("packages", _read_package), ("remotes", _read_remote))
    for key, read in readers:
        for number, raw in enumerate(_list(fields, key), 1):
            try:
                offers.append(read(_object(raw, f"{key[:-1]} {number}")))
            except _Refused as refusal:
                refused.append(f"{key[:-1]} {number}: {refusal}")
    return Listing(
        name=name,
        version=version,
        description=printable(_text(fields, "description"), 300),
        source=source,
        title=printable(_text(fields, "title"), SHOWN) or None,
        offers=tuple(offers),
        refused=tuple(refused),
    )


def _read_package(raw: Mapping[str, Any]) -> Package:
    registry_type = _text(raw, "registryType", required=True)
    kinds: dict[str, PackageKind] = {"npm": "npm", "pypi": "pypi", "oci": "oci", "nuget": "nuget", "mcpb": "mcpb"}
    kind = kinds.get(registry_type)
    if kind is None:
        raise _Refused(f"the hub cannot start packages of the kind {_quoted(registry_type)}")
    transport = _object(raw.get("transport", {"type": "stdio"}), "its transport").get("type", "stdio")
    if transport != "stdio":
        raise _Refused(f"it answers at an address of its own ({_quoted(transport)}); start it yourself and add its URL")
    identifier = _text(raw, "identifier", required=True)
    if not _IDENTIFIERS[kind].fullmatch(identifier):
        raise _Refused(f"{_quoted(identifier)} is not the name of a package of {kind}")
    _check_index(kind, _text(raw, "registryBaseUrl"))
    version = _text(raw, "version")
    sha256 = _text(raw, "fileSha256") or None
    if sha256 is not None and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise _Refused("its fileSha256 is not a SHA-256 digest")
    if kind == "oci":
        identifier, version = _image(identifier, version)
    elif kind == "mcpb":
        _check_url(identifier, "the address of its bundle")
        if sha256 is None:
            raise _Refused("its bundle has no fileSha256, so it cannot be verified")
    if kind != "mcpb" and not _VERSIONS[kind].fullmatch(version):
        raise _Refused(f"{_quoted(version)} is not one version of {_quoted(identifier)}")
    package = Package(
        kind=kind,
        identifier=identifier,
        version=version,
        sha256=sha256,
        runtime=tuple(_read_arguments(raw, "runtimeArguments")),
        arguments=tuple(_read_arguments(raw, "packageArguments")),
        environment=tuple(_read_settings(raw, "environmentVariables", _VARIABLE)),
    )
    if kind != "mcpb":  # whose command line is in its manifest
        try:
            check_launch(package)
        except RegistryError as error:
            raise _Refused(str(error)) from None
    elif package.runtime:
        raise _Refused("its bundle needs no launcher, so runtimeArguments are for nothing")
    return package


def _check_index(kind: PackageKind, base: str) -> None:
    """Refuses an index other than the launcher's, which would download another package of the same name."""
    hosts = _INDEXES.get(kind)
    host = re.sub(r"^https?://", "", base).partition("/")[0].lower()
    if base and hosts is not None and host not in hosts:
        raise _Refused(f"it is kept at {_quoted(base)}, but its launcher downloads from {', '.join(sorted(hosts))}")


def _image(identifier: str, version: str) -> tuple[str, str]:
    """Returns (an image without tag and digest, its digest or else its tag as version)."""
    name, at, digest = identifier.partition("@")
    if at:
        return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name, digest
    last = identifier.rpartition("/")[2]
    if ":" in last:
        name, _, version = identifier.rpartition(":")
    return name, version


def _read_remote(raw: Mapping[str, Any]) -> Remote:
    remote_type = _text(raw, "type", required=True)
    transport = _TRANSPORTS.get(remote_type)
    if transport is None:
        raise _Refused(f"the hub has no transport {_quoted(remote_type)}")
    text = _text(raw, "url", required=True)
    url = _template(text, _variables(raw), "url")
    _check_url(_PLACEHOLDER.sub("x", text), "its address")
    if isinstance(url.pieces[0], UserInput) or not re.match(r"https?://[^/{]", text):
        raise _Refused("its address leaves the host to be filled in")
    return Remote(transport, url, tuple(_read_settings(raw, "headers", _HEADER)))


def _check_url(url: str, label: str) -> None:
    try:
        parts = urlsplit(url)
        is_plain = bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        is_plain = False
    if not is_plain or not url.isascii() or not url.isprintable() or " " in url:
        raise _Refused(f"{label} {_quoted(url)} is not a plain URL")
    if not is_private_channel(url):
        raise _Refused(f"{label} {_quoted(url)} is not https://")


def _read_arguments(raw: Mapping[str, Any], key: str) -> Iterable[Argument]:
    for number, item in enumerate(_list(raw, key), 1):
        fields = _object(item, f"argument {number}")
        kind = fields.get("type", "positional")
        if kind not in ("positional", "named"):
            raise _Refused(f"argument {number} has the unknown type {_quoted(kind)}")
        flag = _text(fields, "name", required=True) if kind == "named" else None
        if flag is not None and not _FLAG.fullmatch(flag):
            raise _Refused(f"{_quoted(flag)} is not the name of an option")
        hint = _text(fields, "valueHint")
        name = (flag or "").lstrip("-") or (hint if _INPUT.fullmatch(hint) else f"argument{number}")
        value = _read_value(fields, name)
        if value is None and flag is not None and not _has_input(fields):
            yield Argument(flag, None)
        else:
            repeated = fields.get("isRepeated") is True
            user_input = msgspec.structs.replace(_read_input(fields, name), repeated=repeated)
            yield Argument(flag, value or Template((user_input,)), repeated)


def _has_input(fields: Mapping[str, Any]) -> bool:
    """Returns whether a named argument takes a value. It is a flag if none of its fields is about a value."""
    value_keys = ("default", "placeholder", "choices", "valueHint", "isRequired", "isSecret", "format", "description")
    return any(fields.get(key) not in (None, "", False, []) for key in value_keys) and fields.get("format") != "boolean"


def _read_settings(raw: Mapping[str, Any], key: str, form: re.Pattern[str]) -> Iterable[Setting]:
    for item in _list(raw, key):
        fields = _object(item, f"a member of {key}")
        name = _text(fields, "name", required=True)
        if not form.fullmatch(name):
            raise _Refused(f"{_quoted(name)} is not a name for {key}")
        value = _read_value(fields, name) or Template((_read_input(fields, name),))
        is_typed = all(isinstance(piece, UserInput) and not (piece.default or piece.choices) for piece in value.pieces)
        if form is _VARIABLE and _FIXED_BY_USER.fullmatch(name) and not is_typed:
            raise _Refused(f"it sets {name}, which decides what programs load, download or trust")
        yield Setting(name, value)


def _read_value(fields: Mapping[str, Any], name: str) -> Template | None:
    """Returns the text of an input, with placeholders for its variables; None: the user gives the whole value."""
    value = _text(fields, "value")
    return _template(value, _variables(fields), name) if value else None


def _variables(fields: Mapping[str, Any]) -> dict[str, UserInput]:
    raw_variables = fields.get("variables")
    if raw_variables is None:
        return {}
    variables = _object(raw_variables, "its variables")
    if len(variables) > MAX_MEMBERS:
        raise _Refused("it has too many variables")
    return {
        name: _read_input(_object(raw, "a variable"), name)
        for name, raw in variables.items()
        if _INPUT.fullmatch(name) or _refuse(f"{_quoted(name)} is not a name of a variable")
    }


def _refuse(reason: str) -> bool:
    raise _Refused(reason)


def _template(text: str, variables: Mapping[str, UserInput], name: str) -> Template:
    if (match := EXPANDED.search(text)) is not None:
        raise _Refused(f"{_quoted(name)} would read {_quoted(text[match.start() :])} of this machine")
    pieces: list[str | UserInput] = []
    end = 0
    for placeholder in _PLACEHOLDER.finditer(text):
        if (variable := variables.get(placeholder[1])) is not None:
            pieces += [text[end : placeholder.start()], variable]
            end = placeholder.end()
    pieces.append(text[end:])
    return Template(tuple(piece for piece in pieces if piece != "") or ("",))


def _read_input(fields: Mapping[str, Any], name: str) -> UserInput:
    default = _text(fields, "default") or None
    choices = tuple(_plain(choice, "a choice") for choice in _list(fields, "choices"))
    if default is not None and EXPANDED.search(default):
        default = None  # the user is asked instead
    if any(EXPANDED.search(choice) for choice in choices):
        raise _Refused(f"a choice of {_quoted(name)} would read this machine's environment or files")
    return UserInput(
        name=name,
        description=printable(_text(fields, "description"), 300),
        required=fields.get("isRequired") is True,
        secret=fields.get("isSecret") is True,
        default=default,
        choices=choices,
    )


def _object(value: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Refused(f"{label} is not a JSON object")
    return value


def _list(fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Refused(f"{key} is not a list")
    if len(value) > MAX_MEMBERS:
        raise _Refused(f"{key} has more than {MAX_MEMBERS} members")
    return value


def _text(fields: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    value = fields.get(key)
    if value is None and not required:
        return ""
    if value is None or value == "":
        if required:
            raise _Refused(f"it has no {key}")
        return ""
    if key == "description":
        # A description is only shown, with its hidden characters escaped.
        return value[:MAX_TEXT] if isinstance(value, str) else ""
    return _plain(value, key)


def _plain(value: Any, label: str) -> str:
    if isinstance(value, bool | int | float):
        value = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        raise _Refused(f"{label} is not a text")
    if len(value) > MAX_TEXT:
        raise _Refused(f"{label} has more than {MAX_TEXT:,} characters")
    if find_hidden_characters(value, lines=False) or any(char in value for char in "\n\r\t"):
        raise _Refused(f"{label} {_quoted(value)} holds control or invisible characters")
    return value


def _quoted(value: Any) -> str:
    return repr(printable(str(value), SHOWN))
