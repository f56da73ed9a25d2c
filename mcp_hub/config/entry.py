"""Reads one entry of a file, in any dialect, as a Server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.builtin_servers import check_builtin, no_directory, read_roots
from mcp_hub.config.credentials import read_env, read_headers, read_oauth
from mcp_hub.config.dialect import FOREIGN_TRANSPORTS, TRANSPORT_NAMES, TRANSPORTS, Dialect, schemes_of
from mcp_hub.config.egress_settings import read_egress
from mcp_hub.config.entry_keys import canonical_values, restriction
from mcp_hub.config.entry_rules import add_refused, read_policy_keys, read_rules
from mcp_hub.config.extras import OF_BUILTINS, Extra, missing
from mcp_hub.config.field_types import Duration, ValidationError
from mcp_hub.config.fields import Fields, FieldValue
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.host_rules import goose_header_scope
from mcp_hub.config.inherited import inherited_row
from mcp_hub.config.models import (
    CONNECT_DEADLINE_OF_INSTALLERS,
    INSTALLERS,
    TARGETS,
    Deadlines,
    Server,
    Transport,
    WrittenBuiltin,
)
from mcp_hub.config.package_specs import find_unpinned_packages, unwrap_command
from mcp_hub.config.raw_entries import RawEntry
from mcp_hub.config.secret_values import PLAIN_SECRET_ADVICE, find_plain_secrets
from mcp_hub.config.settings import EntryKey, keys_of
from mcp_hub.config.variables import VariableScope, expand_tree, explain_unresolved
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import is_directory, refuse_foreign_directory
from mcp_hub.text import printable

BROWSERS_AT_ONCE: Final = 8
"""The default of `max_sessions` for browsers."""
_BROWSERS: Final = re.compile(r"playwright[/-]mcp|mcp/playwright|chrome-devtools-mcp|puppeteer", re.IGNORECASE)
"""Packages and images of browsers, whose callers must not see each other's pages and cookies."""
_UNPINNED: Final = "whoever publishes the next one decides what runs here; write NAME@X.Y.Z (Python: NAME==X.Y.Z)"
_BY_TYPE: Final = keys_of(Server).keys() - {
    "command", "args", "env", "headers", "transport", "builtin", "enabled", "deadlines", "roots", "tags", "tools",
    "postprocess", "health",
}  # fmt: skip
"""Fields of a Server that are read by their types alone; the others have readers of their own."""


class EntryContext(msgspec.Struct, frozen=True):
    """The context in which all entries of one file are read."""

    dialect: Dialect
    scope: VariableScope
    written: Mapping[KeyPath, str]
    findings: Findings
    defaults: Mapping[str, FieldValue]
    strict: bool = False
    """Whether a fault of an entry is an error of the whole, as in the entries of a program."""


def read_entry(raw: RawEntry, reading: EntryContext) -> Server | None:
    """Returns the Server of an entry; None, with errors in the findings, if one of its rules is not valid.

    An entry is returned switched off, with the reason, if another of its keys is not valid, if a variable has no value,
    if the hub cannot keep one of its restrictions, or if its kind is unknown. An entry that the user has switched off
    has no errors, only warnings.
    """
    findings, faults = reading.findings.part(), reading.findings.part()
    field_values, unresolved = _expanded_values(raw, reading, faults)
    fields = Fields(field_values, faults, reading.scope, reading.written, unresolved)
    rules = Fields(field_values, findings, reading.scope, reading.written, unresolved)
    enabled = fields.read("enabled", bool) is not False and fields.read("disabled", bool) is not True
    off_reason = reading.dialect.off.get(raw.id)
    dialect_reason = None if off_reason is None else CodedText(off_reason, codes.RESTRICTION_FOREIGN)
    reason = dialect_reason or restriction(raw.values, reading.dialect.keys.entry_names, reading.scope)
    server = None
    if raw.fault is not None:
        faults.error(raw.at, raw.fault)
    elif (foreign_reason := _foreign_kind(raw, field_values)) is not None:
        server = _disabled_entry(raw.id, foreign_reason if enabled else None)
    else:
        values = _server_fields(raw, fields, reading.dialect, faults, unresolved)
        values |= read_rules(rules, findings, raw.at)
        values["settings"] = read_policy_keys(reading.dialect.keys.entry, rules, findings)
        values["oauth"] = read_oauth(fields, faults)
        add_refused(values, reading.dialect.refused.get(raw.id, ()))
        reason = reason or explain_unresolved(unresolved, raw.at) or (_missing_extra(values) if enabled else None)
        if not findings.errors and not faults.errors:
            server = _make_server(raw, values, enabled, reason, faults)
    fault = None
    if faults.errors and enabled and not reading.strict:
        required = fields.read("required", bool) is True
        fault = faults.switch_off(raw.at)
        server = _disabled_entry(raw.id, fault, required=required)
    elif server is None and not enabled:
        # Disabled entries are often unfinished, or for another program.
        server = _disabled_entry(raw.id, None)
    if server is not None and server.enabled:
        for package in find_unpinned_packages(server.command or "", server.args):
            text = f"{printable(package, 100)!r} is not pinned to one version: {_UNPINNED}"
            findings.advise(raw.at, text, codes.PACKAGE_UNPINNED)
    for part in (findings, faults):
        reading.findings.add(part, errors_as_warnings=not enabled)
    if server is not None and server.disabled_reason is not None and fault is None:
        code = codes.code_of(server.disabled_reason) or codes.VALUE_WRONG
        reading.findings.warning(raw.at, f"is switched off: {server.disabled_reason}", code)
    return server


def _expanded_values(
    raw: RawEntry, reading: EntryContext, findings: Findings
) -> tuple[dict[str, FieldValue], dict[KeyPath, CodedText]]:
    """Returns the expanded keys of the entry over the defaults, and {place: reason} of variables without a value."""
    field_values = {**reading.defaults, **canonical_values(raw.values, raw.at, reading.dialect, findings)}
    for at, _, _ in find_plain_secrets(field_values, reading.scope):
        findings.advise(at, PLAIN_SECRET_ADVICE, codes.SECRET_IN_PLAIN)
    unresolved: dict[KeyPath, CodedText] = {}
    header_scope = reading.scope
    if reading.dialect.is_goose:
        header_scope = goose_header_scope(field_values["env"].value if "env" in field_values else None, reading.scope)
    for name, item in field_values.items():
        scope = header_scope if name == "headers" else reading.scope
        if name == "env" and isinstance(item.value, dict):
            item = msgspec.structs.replace(item, value=_without_unset(item.value, item.at, scope, findings))
        value, reasons = expand_tree(item.value, scope, item.at)
        field_values[name] = msgspec.structs.replace(item, value=value)
        unresolved.update(reasons)
    command = field_values.get("command")
    if command is not None and isinstance(command.value, dict):
        # The form of older versions of Zed.
        del field_values["command"]
        for key, name in (("path", "command"), ("args", "args"), ("env", "env")):
            if key in command.value:
                field_values[name] = FieldValue(command.value[key], (*command.at, key))
    return field_values, unresolved


def _without_unset(env: Mapping[str, Any], at: KeyPath, scope: VariableScope, findings: Findings) -> dict[str, Any]:
    """Returns `env` without the locations and capabilities that it passes on and that are not set here.

    Any other variable without a value, such as a secret, switches the entry off.
    """
    passed_on = [name for name, text in env.items() if text == f"${{{name}}}" and inherited_row(name) is not None]
    unset = [name for name in passed_on if name not in scope.environ and not scope.literal]
    for name in unset:
        findings.advise((*at, name), "is not set here, so its process does not get it", codes.VARIABLE_UNSET)
    return {name: text for name, text in env.items() if name not in unset}


def _foreign_kind(raw: RawEntry, field_values: Mapping[str, FieldValue]) -> CodedText | None:
    """Returns why only its own host can start an entry; None if the hub can."""
    kind = field_values["transport"].value if "transport" in field_values else None
    if isinstance(kind, str) and kind.lower() in FOREIGN_TRANSPORTS - TRANSPORTS.keys():
        return CodedText(f"the transport '{kind.lower()}' is not supported", codes.TRANSPORT_FOREIGN)
    is_extension = raw.values.get("source") == "extension" or isinstance(raw.values.get("settings"), dict)
    if is_extension and "command" not in field_values and "url" not in field_values:
        text = "it belongs to an extension of its editor, which alone knows how to start it"
        return CodedText(text, codes.TRANSPORT_FOREIGN)
    return None


def _server_fields(
    raw: RawEntry, fields: Fields, dialect: Dialect, findings: Findings, unresolved: dict[KeyPath, CodedText]
) -> dict[str, Any]:
    """Reads the fields of the Server. Errors go to the findings, variables without a value to `unresolved`."""
    command, args = _command(fields)
    builtin = fields.read("builtin", WrittenBuiltin)
    own_values = _by_type(fields, builtin)
    url, tools_dir = own_values.get("url"), own_values.get("tools_dir")
    browser = (
        builtin == "browser"
        or raw.id.lower() == "playwright"
        or any(_BROWSERS.search(text) for text in (*args, command or "", url or ""))
    )
    values: dict[str, Any] = {
        "id": raw.id,
        "transport": _transport(fields, dialect, url),
        "command": command,
        "args": args,
        "env": read_env(fields, unresolved),
        "headers": read_headers(fields, unresolved),
        "builtin": builtin,
        "browser": browser,
        "namespace": raw.id,
        "deadlines": _deadlines(fields, installs=_is_installer(command, args)),
        **({"session": "client", "max_sessions": BROWSERS_AT_ONCE} if browser else {}),
        **own_values,
    }
    check_builtin(fields, builtin, raw.at)
    if builtin == "files":
        values["roots"] = read_roots(fields, findings, unresolved)
    if browser and values["session"] == "call":
        text = "cannot be 'call' for a browser, which would open anew for every call"
        fields.error(fields.values["session"].at, text)
    if (egress := read_egress(fields, url, builtin, unresolved)) is not None:
        values["egress"] = egress
    _check_target(raw.at, fields, url, values["transport"])
    if tools_dir is not None and not is_directory(tools_dir):
        unresolved.setdefault(fields.values["tools_dir"].at, no_directory(tools_dir))
    elif tools_dir is not None:
        check_tools_dir(tools_dir, fields.values["tools_dir"].at, findings)
    return values


def _by_type(fields: Fields, builtin: str | None = None) -> dict[str, Any]:
    """Reads the fields of a Server that are read by their types. Absent ones are left out."""
    keys = keys_of(Server)
    return fields.typed(
        Server, [name for name in _BY_TYPE if not keys[name].builtins or builtin in keys[name].builtins]
    )


def default_fields(fields: Fields, findings: Findings, keys: Iterable[EntryKey[Any]]) -> dict[str, Any]:
    """Returns the fields of a Server that `defaults` set for every server.

    Deadlines and the settings of policies are mappings by name; a server's own values win over them.
    """
    values = _by_type(fields) | read_rules(fields, findings, ("defaults",))
    values["deadlines"] = _explicit_deadlines(fields)
    values["settings"] = read_policy_keys(keys, fields, findings)
    return {name: value for name, value in values.items() if value not in (None, {})}


def with_defaults(server: Server, defaults: Mapping[str, Any]) -> Server:
    """Returns a server with the values of `default_fields` that it does not set itself. A disabled one is unchanged.

    It is switched off if a variable in one of these values has no value. Entries of the configuration file are read
    with their defaults already; this is for other servers.
    """
    if not server.enabled or not defaults:
        return server
    own_fields, deadlines = set(server.model_fields_set), server.deadlines
    if server.namespace == server.id:
        own_fields.discard("namespace")  # the hub's own default
    own_names = set(deadlines.model_fields_set)
    if deadlines.connect == CONNECT_DEADLINE_OF_INSTALLERS and _is_installer(server.command, server.args):
        own_names.discard("connect")  # the hub's own default for such a command
    default_deadlines = {name: value for name, value in defaults.get("deadlines", {}).items() if name not in own_names}
    apart = {"deadlines", "settings", "unresolved"}
    values = {name: value for name, value in defaults.items() if name not in own_fields | apart}
    own = {*own_fields, *server.settings, *(f"deadlines.{name}" for name in own_names)}
    for name, reason in defaults.get("unresolved", {}).items():
        if reason is not None and name not in own:
            values = {"enabled": False, "disabled_reason": reason, **values}
    values["settings"] = {**defaults.get("settings", {}), **server.settings}
    return server.model_copy(update={**values, "deadlines": deadlines.model_copy(update=default_deadlines)})


def _make_server(
    raw: RawEntry, values: dict[str, Any], enabled: bool, reason: str | None, findings: Findings
) -> Server | None:
    reason = reason if enabled else None
    try:
        return Server(**values, enabled=enabled and reason is None, disabled_reason=reason)
    except ValidationError as error:
        if reason is not None:
            return _disabled_entry(raw.id, reason)
        for at, text in error.errors:
            findings.error((*raw.at, *at), text)
        return None


def _missing_extra(values: Mapping[str, Any]) -> CodedText | None:
    """Returns why the entry cannot be served if an extra that it needs is not installed; else None."""
    extra: Extra | None = OF_BUILTINS.get(values["builtin"] or "")
    if extra is None and values["oauth"] is not None:
        extra = "oauth"
    return None if extra is None else missing(extra)


def _disabled_entry(id: str, reason: str | None, *, required: bool = False) -> Server:
    """Returns a disabled entry that is not read further."""
    server = Server(id=id, transport="stdio", command="", namespace=id, enabled=False, disabled_reason=reason)
    return server.model_copy(update={"required": required}) if required else server


def _command(fields: Fields) -> tuple[str | None, tuple[str, ...]]:
    """Reads `command` and `args`; opencode has both in one list."""
    field = fields.values.get("command")
    if field is None or not isinstance(field.value, list):
        command, args = fields.text("command"), fields.texts("args")
    else:
        argv = fields.texts("command")
        command, args = (argv[0] if argv else None), (*argv[1:], *fields.texts("args"))
    if command is not None and not command.strip():
        fields.error(fields.values["command"].at, "must not be empty")
    if command is not None and command.startswith(("~/", "~\\")):
        command = str(fields.scope.path(command))
    return command, args


def _transport(fields: Fields, dialect: Dialect, url: str | None) -> Transport | None:
    """Reads the transport. Without one a command means stdio, a path `/sse` SSE, any other http(s) URL `auto`."""
    inferred: Transport = "stdio" if url is None else _transport_of_scheme(url)
    if url is not None and fields.values["url"].at[-1] == "httpUrl":
        inferred = "http"
    elif url is not None and (dialect.gemini or _path_of(url).rstrip("/").endswith("/sse")):
        inferred = "sse"
    if (field := fields.get("transport")) is None:
        return inferred
    transport = TRANSPORT_NAMES.get(field.value.lower()) if isinstance(field.value, str) else None
    if transport is None:
        aliases = ", ".join(name for name in TRANSPORT_NAMES if name not in TRANSPORTS and name != "auto")
        fields.error(field.at, f"must be one of {', '.join(TRANSPORTS)}, auto (or {aliases})")
    if transport is None or (transport == "auto" and (url is not None or field.value.lower() == "auto")):
        return inferred
    return transport


def _check_target(at: KeyPath, fields: Fields, url: str | None, transport: Transport | None) -> None:
    targets = [name for name in TARGETS if fields.get(name) is not None]
    if len(targets) != 1:
        actual = " and ".join(f"'{fields.values[name].at[-1]}'" for name in targets) if targets else "none of them"
        *leading, last = (f"'{name}'" for name in TARGETS)
        fields.error(at, f"needs exactly one of {', '.join(leading)} and {last}, but has {actual}")
        return
    schemes = schemes_of(transport or "auto")
    if transport is not None and bool(schemes) != (targets[0] == "url") and "transport" in fields:
        needed = "'url'" if schemes else "'command'"
        fields.error(fields.values["transport"].at, f"says '{transport}', which needs a {needed}")
    if targets[0] != "url" and (
        key := next((key for key in ("api_key", "bearer_token_env_var") if key in fields), None)
    ):
        fields.error(fields.values[key].at, "is for an entry with a 'url'; a command gets its key by 'env'")
    if url is not None and not _is_url(url, schemes or schemes_of("auto")):
        prefixes = " or ".join(f"{scheme}://" for scheme in schemes or schemes_of("auto"))
        fields.error(fields.values["url"].at, f"must be a URL that begins with {prefixes} and names a host")


def _transport_of_scheme(url: str) -> Transport:
    scheme = url.partition("://")[0].lower()
    own = (name for name, kind in TRANSPORTS.items() if scheme in kind.schemes and scheme not in schemes_of("auto"))
    return next(own, "auto")


def _is_url(url: str, schemes: Sequence[str]) -> bool:
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        return parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0 and url.isprintable()
    except ValueError:
        return False


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _is_installer(command: str | None, args: tuple[str, ...]) -> bool:
    """Returns whether the first start may have to download a package."""
    return unwrap_command(command or "", args)[0] in INSTALLERS


def _deadlines(fields: Fields, *, installs: bool) -> Deadlines:
    explicit = _explicit_deadlines(fields)
    deadlines = Deadlines(**({"connect": CONNECT_DEADLINE_OF_INSTALLERS} if installs else {}) | explicit)
    deadlines.__dict__["keys"] = {name: ".".join(map(str, fields.values[f"deadlines.{name}"].at)) for name in explicit}
    return deadlines


def _explicit_deadlines(fields: Fields) -> dict[str, float]:
    deadlines = {name: fields.read(f"deadlines.{name}", Duration) for name in Deadlines.model_fields}
    return {name: seconds for name, seconds in deadlines.items() if seconds is not None}


def check_tools_dir(directory: Path, at: KeyPath, findings: Findings) -> None:
    """Adds an error if other users can write to a directory of tools. Its files are checked when they are imported."""
    try:
        for text in refuse_foreign_directory(directory):
            findings.warning(at, printable(text, 500), text.code)
    except ConfigError as error:
        findings.error(at, printable(str(error), 500), error.hub_code or codes.OPEN_TO_OTHERS)
