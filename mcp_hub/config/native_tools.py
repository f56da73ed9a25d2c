"""Native tools, which are REST endpoints: their schemas, and the requests for given arguments.

This module does no I/O. The configuration makes the definitions; the child process that serves them sends the requests.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote, unquote, urlencode

Json = dict[str, Any]
ParameterPlace = Literal["path", "query", "body", "header"]

MAX_BODY: Final = 8 * 1024 * 1024
"""The maximum size of a request's body, in bytes."""
MAX_ADDRESS: Final = 16 * 1024
"""The maximum length of a URL or a header, in characters. Many servers refuse longer ones."""
PATH_PARAMETER: Final = re.compile(r"\{([^{}]+)\}")
"""A parameter in the path of a URL."""

_MISSING: Final = object()


class InvalidArgument(ValueError):
    """The arguments cannot be sent. `str()` tells the caller which of them and why."""


class PointerNotFound(ValueError):
    """A JSON pointer does not exist in a response."""


@dataclass(frozen=True)
class NativeParameter:
    """One parameter of a tool. `schema` is its JSON Schema, with description, default and enum."""

    name: str
    where: ParameterPlace
    schema: Json
    required: bool = False


@dataclass(frozen=True)
class NativeRequest:
    """The request of one call."""

    url: str
    """The percent-encoded URL."""
    headers: dict[str, str]
    body: bytes | None


@dataclass(frozen=True)
class NativeToolDefinition:
    """One endpoint. `headers` and `query` are sent with every call and include the credentials."""

    name: str
    description: str
    url: str
    """Scheme, host and path with `{parameter}` in it; no query."""
    method: str = "GET"
    parameters: tuple[NativeParameter, ...] = ()
    title: str | None = None
    tags: tuple[str, ...] = ()
    annotations: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that are removed from errors."""
    auth_method: str = "none"
    """How its credentials are sent: `none`, `api_key`, `bearer` or `basic`."""
    form: bool = False
    """Whether the body is a form and not JSON."""
    result: str | None = None
    """The JSON pointer to the part of a response that is the result; None: all of it."""
    max_bytes: int = 8 * 1024 * 1024
    """The maximum size of a decompressed response, in bytes."""

    def to_json(self) -> Json:
        """Returns an object from which `from_json` makes the same tool."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NativeToolDefinition:
        """Reads a tool from an object. Raises TypeError if it is malformed."""
        lists = {name: tuple(data.get(name, ())) for name in ("tags", "secrets")}
        parameters = tuple(NativeParameter(**parameter) for parameter in data.get("parameters", ()))
        query = tuple((name, value) for name, value in data.get("query", ()))
        return cls(**{**data, **lists, "parameters": parameters, "query": query})

    @property
    def definition(self) -> Json:
        """The tool as it is listed by `tools/list`."""
        required = [parameter.name for parameter in self.parameters if parameter.required]
        schema: Json = {
            "type": "object",
            "properties": {parameter.name: parameter.schema for parameter in self.parameters},
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }
        tool: Json = {"name": self.name, "description": self.description, "inputSchema": schema}
        if self.title is not None:
            tool["title"] = self.title
        tool["annotations"] = {**_hints(self.method), **self.annotations}
        if self.tags:
            tool["_meta"] = {"mcp-hub/tags": list(self.tags)}
        return tool

    def request(self, arguments: Mapping[str, Any]) -> NativeRequest:
        """Returns the request of a call. Defaults replace missing arguments. Raises InvalidArgument."""
        values = self._argument_values(arguments)
        try:
            url = self._address(values)
            body = self._body(values)
        except UnicodeEncodeError:
            raise InvalidArgument("a text holds half of a surrogate pair") from None
        headers = {**self.headers, **self._headers(values)}
        if body is not None:
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded" if self.form else "application/json")
        return NativeRequest(url, headers, body)

    def _argument_values(self, arguments: Mapping[str, Any]) -> dict[str, tuple[NativeParameter, Any]]:
        parameters = {parameter.name: parameter for parameter in self.parameters}
        if unknown_names := [name for name in arguments if name not in parameters]:
            raise InvalidArgument(f"{', '.join(unknown_names)}: is not an argument of this tool")
        values: dict[str, tuple[NativeParameter, Any]] = {}
        for name, parameter in parameters.items():
            value = arguments.get(name)
            value = parameter.schema.get("default", _MISSING) if value is None else value
            if value is not _MISSING and value is not None:
                values[name] = (parameter, value)
            elif parameter.required:
                raise InvalidArgument(f"{name}: is missing")
        return values

    def _address(self, values: Mapping[str, tuple[NativeParameter, Any]]) -> str:
        def replace(match: re.Match[str]) -> str:
            return quote(_segment(match[1], values[match[1]][1]), safe="")

        origin, slash, path = _split_url(self.url)
        path = PATH_PARAMETER.sub(replace, path)
        # A value with `..`, encoded or not, would lead to another endpoint.
        if any(part in (".", "..") for part in re.split(r"[/\\]", unquote(path))):
            raise InvalidArgument("a value in the path must not be '.' or '..', nor lead there")
        pairs = list(self.query)
        for parameter, value in values.values():
            if parameter.where == "query":
                pairs += [(parameter.name, as_text(item)) for item in (value if isinstance(value, list) else [value])]
        url = f"{origin}{slash}{path}" + (f"?{urlencode(pairs, quote_via=quote)}" if pairs else "")
        if len(url) > MAX_ADDRESS:
            raise InvalidArgument(f"the address would be longer than {MAX_ADDRESS:,} characters")
        return url

    def _headers(self, values: Mapping[str, tuple[NativeParameter, Any]]) -> dict[str, str]:
        header_texts = {
            parameter.name: as_text(value) for parameter, value in values.values() if parameter.where == "header"
        }
        for name, text in header_texts.items():
            if not text.isascii() or not text.isprintable() or len(text) > MAX_ADDRESS:
                raise InvalidArgument(f"{name}: goes into a header, which takes one line of ASCII")
        return header_texts

    def _body(self, values: Mapping[str, tuple[NativeParameter, Any]]) -> bytes | None:
        members = {parameter.name: value for parameter, value in values.values() if parameter.where == "body"}
        if not members and (not any(parameter.where == "body" for parameter in self.parameters)):
            return None
        if self.form:
            pairs = [
                (name, as_text(item))
                for name, value in members.items()
                for item in (value if isinstance(value, list) else [value])
            ]
            body = urlencode(pairs).encode()
        else:
            body = json.dumps(members, ensure_ascii=False).encode()
        if len(body) > MAX_BODY:
            raise InvalidArgument(f"the body would be larger than {MAX_BODY:,} bytes")
        return body


def as_text(value: Any) -> str:
    """Returns a value as a text for a URL, a form or a header."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Returns the value at a JSON pointer (RFC 6901). Raises PointerNotFound."""
    for segment in pointer.split("/")[1:]:
        token = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isdecimal() and int(token[:10]) < len(value):
            value = value[int(token[:10])]
        else:
            raise PointerNotFound(f"there is nothing at {pointer!r}")
    return value


def path_parameters(url: str) -> tuple[str, ...]:
    """Returns the parameters in the path of a URL, in their order."""
    return tuple(PATH_PARAMETER.findall(_split_url(url)[2]))


def _split_url(url: str) -> tuple[str, str, str]:
    """Splits a URL into (scheme and host, `/` if there is a path, path)."""
    scheme, colon, authority_and_path = url.partition("://")
    host, slash, path = authority_and_path.partition("/")
    return f"{scheme}{colon}{host}", slash, path


def _segment(name: str, value: Any) -> str:
    text = as_text(value)
    if not text:
        raise InvalidArgument(f"{name}: is a part of the address and must not be empty")
    return text


def _hints(method: str) -> Json:
    """Returns the annotations of a tool that follow from its HTTP method."""
    if method in ("GET", "HEAD"):
        return {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}
    return {"readOnlyHint": False, "idempotentHint": method in ("PUT", "DELETE"), "openWorldHint": True}
