"""Reads one native tool: its endpoint, parameters, credentials and rules."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from mcp_hub.codes import CodedText
from mcp_hub.config.entry_rules import ToolRules, read_tools
from mcp_hub.config.field_types import Size, boolean
from mcp_hub.config.fields import Fields, FieldValue
from mcp_hub.config.findings import Findings, KeyPath, only_known
from mcp_hub.config.native_tools import NativeParameter, NativeToolDefinition, ParameterPlace, path_parameters
from mcp_hub.config.secret_values import PLAIN_SECRET_ADVICE, is_plain_secret
from mcp_hub.config.variables import VariableScope, expand_tree, explain_unresolved
from mcp_hub.security.redaction import is_secret_key

MAX_PARAMETERS: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PARAMETER: Final = re.compile(r"[^\s{}\x00-\x1f\x7f]{1,100}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object")
_SYNONYMS: Final = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array",
    "dict": "object",
}  # fmt: skip
AuthMethod = Literal["none", "api_key", "bearer", "basic"]
_RESERVED_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "authorization", "cookie"}
)
"""Headers that callers must not set."""
TOOL_KEYS: Final = frozenset({
    "name", "title", "description", "tags", "parameters", "api_url", "method", "auth_method",
    "api_key", "api_key_header", "api_key_query", "token", "username", "password",
    "headers", "query", "body", "result", "max_bytes", "annotations", "enabled", "version",
})  # fmt: skip
RULE_KEYS: Final = frozenset(
    {"preset", "timeout", "idle_timeout", "validate_arguments", "max_result_bytes", "postprocess", "retry"}
)
PARAMETER_KEYS: Final = frozenset({
    "name", "type", "required", "description", "default", "enum", "where", "items", "properties", "format", "minimum",
    "maximum", "pattern", "minLength", "maxLength", "minItems", "maxItems",
})  # fmt: skip
KEY_ALIASES: Final = {"url": "api_url", "endpoint": "api_url", "auth": "auth_method", "mcp_api_key": "api_key"}


@dataclass(frozen=True)
class NativeToolEntry:
    """A native tool and the hub's rules for it. A tool that is switched off has only its name."""

    name: str
    tool: NativeToolDefinition | None = None
    rules: ToolRules = field(default_factory=ToolRules)


def read_native(
    values: Mapping[str, Any],
    at: KeyPath,
    stem: str,
    scope: VariableScope,
    written: Mapping[KeyPath, str],
    findings: Findings,
) -> NativeToolEntry | None:
    """Reads the tool of one mapping; None if `enabled` is false or, with errors in the findings, if it is not valid.

    A variable without a value switches the tool off, with a warning. Its name stays taken, so that no other tool
    gets its calls.
    """
    if boolean(values.get("enabled")) is False:
        return None
    renamed = {KEY_ALIASES.get(key, key): (key, value) for key, value in values.items()}
    known_values = only_known({key: value for key, (_, value) in renamed.items()}, TOOL_KEYS | RULE_KEYS, at, findings)
    fields: dict[str, FieldValue] = {}
    unresolved: dict[KeyPath, CodedText] = {}
    for key, value in known_values.items():
        key_path = (*at, renamed[key][0])
        if key in ("api_key", "token", "password") and is_plain_secret("token", value, scope):
            findings.advise(key_path, PLAIN_SECRET_ADVICE)
        # Texts for the model are not expanded: they may look like variables, and hold no secrets.
        expanded, reasons = (value, {}) if key in ("description", "parameters") else expand_tree(value, scope, key_path)
        fields[key] = FieldValue(expanded, key_path)
        unresolved |= reasons
    part = findings.part()
    tool = _NativeToolReader(Fields(fields, part, scope, written, unresolved), part, at).read(stem)
    rules, _ = read_tools({"it": {key: fields[key].value for key in RULE_KEYS if key in fields}}, None, at, part)
    findings.add(part)
    if unresolved:
        name = fields["name"].value if "name" in fields else stem
        findings.warning(at, f"is switched off: {explain_unresolved(unresolved, at)}")
        return NativeToolEntry(name) if isinstance(name, str) and not part.errors else None
    if tool is None or part.errors:
        return None
    return NativeToolEntry(tool.name, tool, rules.get("it", ToolRules()))


class _NativeToolReader:
    def __init__(self, fields: Fields, findings: Findings, at: KeyPath) -> None:
        self._fields = fields
        self._findings = findings
        self._at = at
        self._headers: dict[str, str] = {}
        self._query: list[tuple[str, str]] = []
        self._secrets: list[str] = []

    def read(self, stem: str) -> NativeToolDefinition | None:
        fields = self._fields
        name = fields.text("name") or stem
        if not _NAME.fullmatch(name):
            self._error("name", "must be 1 to 64 letters, digits, '_', '-' or '.'")
        url = self._url()
        if "method" in fields and isinstance(method := fields.values["method"].value, str):
            fields.values = {**fields.values, "method": FieldValue(method.upper(), fields.values["method"].at)}
        explicit_method = fields.read("method", Method)
        parameters = self._parameters(url or "", explicit_method)
        method = explicit_method or ("POST" if any(parameter.where == "body" for parameter in parameters) else "GET")
        if method == "GET" and any(parameter.where == "body" for parameter in parameters):
            self._error("method", "has no body with GET; write POST, PUT or PATCH, or 'where: query'")
        self._read_constants()
        auth_method = self._credentials()
        for parameter in parameters:
            if parameter.where == "header" and parameter.name.lower() in {
                *_RESERVED_HEADERS,
                *(key.lower() for key in self._headers),
            }:
                self._error("parameters", f"{parameter.name}: this header is not for callers to set")
        result = fields.text("result")
        if result is not None and result and not result.startswith("/"):
            self._error("result", "must be a JSON pointer, such as /data/items")
        form = fields.read("body", Literal["json", "form"]) == "form"
        annotations = {key: field_value.value for key, field_value in (fields.mapping("annotations") or {}).items()}
        if url is None:
            return None
        size = fields.read("max_bytes", Size)
        return NativeToolDefinition(
            name=name,
            description=fields.text("description") or name,
            url=url,
            method=method,
            parameters=tuple(parameters),
            title=fields.text("title"),
            tags=fields.read("tags", tuple[str, ...]) or (),
            annotations=annotations,
            headers=self._headers,
            query=tuple(self._query),
            secrets=tuple(dict.fromkeys(filter(None, self._secrets))),
            auth_method=auth_method,
            form=form,
            result=result or None,
            **({} if size is None else {"max_bytes": size}),
        )

    def _error(self, key: str, text: str) -> None:
        field_value = self._fields.values.get(key)
        self._fields.error(field_value.at if field_value is not None else (*self._at, key), text)

    def _url(self) -> str | None:
        text = self._fields.text("api_url")
        if text is None:
            if "api_url" not in self._fields:
                self._error("api_url", "is missing: the address of the endpoint, with {parameter} in its path")
            return None
        try:
            parts = urlsplit(text)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            is_valid = False
            parts = urlsplit("")
        if not is_valid or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
            self._error("api_url", "must be an address that begins with http:// or https://, percent-encoded")
            return None
        if "{" in parts.netloc or "{" in parts.query or parts.fragment:
            self._error("api_url", "may have {parameter} in its path only; a query is written as 'where: query'")
            return None
        if parts.username is not None:
            self._error("api_url", "must not have a user in it: write 'auth_method: basic', username and password")
            return None
        if any(part in (".", "..") for part in parts.path.split("/")):
            self._error("api_url", "must not have '.' or '..' as a part of its path")
            return None
        if parts.query:
            from urllib.parse import parse_qsl

            self._query += parse_qsl(parts.query, keep_blank_values=True)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    def _parameters(self, url: str, method: str | None) -> list[NativeParameter]:
        in_path = path_parameters(url) if url else ()
        parameters: dict[str, NativeParameter] = {}
        for key_path, name, values in self._parameter_values():
            if not isinstance(name, str) or not _PARAMETER.fullmatch(name):
                self._fields.error(key_path, "needs a name, a text without spaces and braces")
            elif name in parameters:
                self._fields.error(key_path, f"the name {name!r} is already taken")
            elif not isinstance(values, dict):
                self._fields.error(key_path, "must be a mapping with type, required, description, default, enum, where")
            elif (parameter := self._parameter(name, values, key_path, in_path, method)) is not None:
                parameters[name] = parameter
        for name in in_path:
            if name not in parameters and url:
                parameters[name] = NativeParameter(name, "path", {"type": "string"}, True)
        if len(parameters) > MAX_PARAMETERS:
            self._error("parameters", f"are more than {MAX_PARAMETERS}")
        return list(parameters.values())

    def _parameter_values(self) -> Iterator[tuple[KeyPath, Any, Any]]:
        """Yields (place, name, values) of each parameter of a mapping or a list."""
        if (field_value := self._fields.get("parameters")) is None:
            return
        if isinstance(field_value.value, dict):
            for name, values in field_value.value.items():
                # `city: string` is a type alone.
                yield (*field_value.at, name), name, {"type": values} if isinstance(values, str) else values
        elif isinstance(field_value.value, list):
            for index, values in enumerate(field_value.value):
                yield (*field_value.at, index), values.get("name") if isinstance(values, dict) else None, values
        else:
            self._fields.error(field_value.at, "must be a mapping of names to parameters, or a list of them")

    def _parameter(
        self, name: str, values: Mapping[str, Any], at: KeyPath, in_path: tuple[str, ...], method: str | None
    ) -> NativeParameter | None:
        known_values = only_known(values, PARAMETER_KEYS, at, self._findings)
        fields = self._fields.inner({key: FieldValue(value, (*at, key)) for key, value in known_values.items()})
        where = fields.read("where", ParameterPlace)
        if (name in in_path) != (where == "path") and (where is not None):
            text = (
                f"stands in api_url as {{{name}}}" if name in in_path else "needs its place in api_url: {" + name + "}"
            )
            self._fields.error(at, text)
            return None
        if where is None:
            where = "path" if name in in_path else "query" if method in (None, "GET", "DELETE") else "body"
        if where == "header" and not _HEADER.fullmatch(name):
            self._fields.error(at, "is not a valid name of a header")
        kind = known_values.get("type", "string")
        kind = _SYNONYMS.get(kind, kind) if isinstance(kind, str) else kind
        if kind not in _TYPES:
            self._fields.error((*at, "type"), f"must be one of {', '.join(_TYPES)}")
            return None
        schema = {
            "type": kind,
            **{key: value for key, value in known_values.items() if key not in ("name", "type", "required", "where")},
        }
        if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
            self._fields.error((*at, "enum"), "must be a list of values")
        if "description" in schema and fields.text("description") is None:
            del schema["description"]
        required = fields.read("required", bool)
        required = (where == "path" and "default" not in schema) if required is None else required
        if where == "path" and not required and "default" not in schema:
            self._fields.error(at, "is a part of the address: it is required, or has a default")
        return NativeParameter(name, where, schema, required)

    def _read_constants(self) -> None:
        """Reads the headers and the query that every call has."""
        for name, field_value in (self._fields.mapping("headers") or {}).items():
            text = self._fields.scalar(field_value.value, field_value.at)
            if text is not None:
                self._add_header(name, text, field_value.at)
                if is_secret_key(name) or name.lower() == "authorization":
                    self._secrets += [text.strip(), text.strip().partition(" ")[2]]
        for name, field_value in (self._fields.mapping("query") or {}).items():
            text = self._fields.scalar(field_value.value, field_value.at)
            if text is not None:
                self._query.append((name, text))
        self._secrets += [value for name, value in self._query if is_secret_key(name)]

    def _add_header(self, name: str, text: str, at: KeyPath) -> None:
        text = text.strip()
        if not _HEADER.fullmatch(name) or name.lower() in ("host", "content-length", "transfer-encoding"):
            self._fields.error(at, "is not a header that can be set")
        elif any(name.lower() == header.lower() for header in self._headers):
            self._fields.error(at, f"the header {name} is given twice")
        elif not text.isascii() or not text.replace("\t", " ").isprintable():
            self._fields.error(at, "holds a line break, a control character, or what is not ASCII")
        else:
            self._headers[name] = text

    def _credentials(self) -> str:
        """Adds the credentials to the headers or query of every call, and returns the `auth_method`."""
        fields = self._fields
        if "auth_method" in fields and isinstance(method := fields.values["auth_method"].value, str):
            normalized = method.strip().lower().replace(" ", "_").replace("-", "_")
            fields.values = {**fields.values, "auth_method": FieldValue(normalized, fields.values["auth_method"].at)}
        key, token = fields.text("api_key"), fields.text("token")
        user, password = fields.text("username"), fields.text("password")
        implied = "bearer" if token is not None else "api_key" if key is not None else "basic" if user else "none"
        auth_method = fields.read("auth_method", AuthMethod) or implied
        at = fields.values["auth_method"].at if "auth_method" in fields else self._at
        if auth_method == "none" and implied != "none":
            self._fields.error(at, "is 'none', but there are credentials; remove one of them")
        elif auth_method == "bearer":
            self._bearer(token if token is not None else key, at)
        elif auth_method == "api_key":
            self._api_key(key if key is not None else token, at)
        elif auth_method == "basic" and (user is None or password is None):
            self._fields.error(at, "basic needs username and password")
        elif auth_method == "basic":
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._secrets += [password or "", pair]
            self._add_header("Authorization", f"Basic {pair}", at)
        return auth_method

    def _bearer(self, token: str | None, at: KeyPath) -> None:
        if not token:
            self._fields.error(at, "bearer needs a token, such as ${NAME}")
            return
        self._secrets.append(token.strip())
        self._add_header("Authorization", f"Bearer {token.strip()}", at)

    def _api_key(self, key: str | None, at: KeyPath) -> None:
        header, parameter = self._fields.text("api_key_header"), self._fields.text("api_key_query")
        if not key:
            self._fields.error(at, "api_key needs an api_key, such as ${NAME}")
            return
        self._secrets.append(key.strip())
        if parameter is not None:
            if header is not None:
                self._fields.error(at, "has both api_key_header and api_key_query; keep one of them")
            self._query.append((parameter, key.strip()))
            return
        name, _, scheme = (header or "X-API-Key").partition(":")
        scheme = scheme.strip() or ("Bearer" if name.strip().lower() == "authorization" else "")
        self._add_header(name.strip(), f"{scheme} {key.strip()}".strip(), at)
