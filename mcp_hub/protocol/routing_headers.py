"""The headers in which a modern HTTP request repeats its method, name and arguments, for both sides of the hub.

`Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` repeat parts of the body, so that an intermediary can route without reading
it; a request whose headers and body disagree is refused. The sender adds `MCP-Protocol-Version`, which `emit` does not.
The rules are the specification's; a test compares each of them with the SDK.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mcp_hub.errors import HEADER_MISMATCH, INVALID_PARAMS, ProtocolError
from mcp_hub.protocol import era as eras

PROTOCOL_VERSION: Final = "mcp-protocol-version"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
PARAM_PREFIX: Final = "Mcp-Param-"
ANNOTATION: Final = "x-mcp-header"
"""The keyword of an input schema that asks for an argument to be repeated in a header."""

NAME_KEYS: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The methods that are routed by a name, with the member of their params that holds it."""

ParamMap = dict[tuple[str, ...], str]
"""Path of an argument (keys from the top) -> its header's name without `PARAM_PREFIX`."""

_ROUTING: Final = (PROTOCOL_VERSION, METHOD, NAME)
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=")
_SAFE: Final = re.compile(r"[\x20-\x7e]*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.([0-9]+))?")
_TYPES: Final = frozenset({"string", "integer", "boolean"})
"""Not `number`: implementations write the same float differently."""

# Keywords of JSON Schema 2020-12 that hold schemas: one, a list, or several by name. An annotation is valid only below
# `properties`. Keywords that hold data (`default`, `enum`, ...) are not searched, and `$ref` is not followed.
_SINGLE: Final = (
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties")


# --- values ----------------------------------------------------------------------------------------------------


_Annotated = tuple[tuple[tuple[str, ...] | None, dict[str, Any]], ...]
_ANNOTATED_SCHEMAS: Final[dict[int, tuple[Any, _Annotated]]] = {}
"""By the `id` of a schema. The schema is kept too, so that its id is not reused; schemas are never mutated."""
MAX_KNOWN: Final = 1000


def encode_value(value: str) -> str:
    """Encodes a value for a header: unchanged, or in base64 as `=?base64?...?=`.

    Raises UnicodeEncodeError for a lone surrogate, which no header can carry.
    """
    if _SAFE.fullmatch(value) and value == value.strip() and not _SENTINEL.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_value(value: str | None) -> str | None:
    """Decodes the value of a header; None for a missing header or broken base64, so that it equals nothing."""
    match = _SENTINEL.fullmatch(value) if value is not None else None
    if match is None:
        return value
    try:
        data = base64.b64decode(match[1], validate=True)
        # Base64 with nonzero padding bits decodes too: a second spelling of a value, on which two readers may disagree.
        return data.decode() if base64.b64encode(data).decode() == match[1] else None
    except ValueError:
        return None


def _header_text(value: Any) -> str | None:
    """Returns an argument as header text; None if it is not a scalar or has more digits than Python writes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    except ValueError:
        return None


# --- annotations in a tool's input schema ------------------------------------------------------------------------


def _schemas(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Yields every schema inside `root` with its path, None if a keyword other than `properties` leads to it."""
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while stack:  # a list instead of recursion, so that deep nesting cannot fail
        path, schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        yield path, schema
        properties = schema.get("properties")
        if isinstance(properties, dict):
            for name, subschema in properties.items():
                stack.append((None if path is None else (*path, name), subschema))
        stack.extend((None, schema[keyword]) for keyword in _SINGLE if keyword in schema)
        for keyword in _LISTED:
            if isinstance(schema.get(keyword), list):
                stack.extend((None, subschema) for subschema in schema[keyword])
        for keyword in _NAMED:
            if isinstance(schema.get(keyword), dict):
                stack.extend((None, subschema) for subschema in schema[keyword].values())


def _annotated_schemas(schema: Any) -> _Annotated:
    """Returns the schemas with an annotation. They are cached, as every call of the tool needs them."""
    cached = _ANNOTATED_SCHEMAS.get(id(schema))
    if cached is None or cached[0] is not schema:
        if len(_ANNOTATED_SCHEMAS) >= MAX_KNOWN:
            _ANNOTATED_SCHEMAS.clear()
        annotated = tuple((path, subschema) for path, subschema in _schemas(schema) if ANNOTATION in subschema)
        cached = _ANNOTATED_SCHEMAS[id(schema)] = (schema, annotated)
    return cached[1]


def invalid_annotation(schema: Any) -> str | None:
    """Returns the reason why a schema's `x-mcp-header` annotations are invalid; None if they are valid or absent."""
    tokens: set[str] = set()
    for path, subschema in _annotated_schemas(schema):
        if not path:
            return f"{ANNOTATION} stands where no argument is: only `properties` may lead to it"
        argument, token, kind = ".".join(path), subschema[ANNOTATION], subschema.get("type")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return f"{argument}: {ANNOTATION} must be a text that can be part of a header's name"
        if not isinstance(kind, str) or kind not in _TYPES:
            return f"{argument}: {ANNOTATION} needs the type string, integer or boolean"
        if token.lower() in tokens:
            return f"{argument}: {ANNOTATION} {token!r} is used twice"
        tokens.add(token.lower())
    return None


def param_map(schema: Any) -> ParamMap | None:
    """Returns the arguments that a tool's callers repeat in headers; None if an annotation is invalid."""
    if invalid_annotation(schema) is not None:
        return None
    return {path: subschema[ANNOTATION] for path, subschema in _annotated_schemas(schema) if path}


def _argument(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(key)
    return arguments


# --- the sending side ------------------------------------------------------------------------------------------


def emit(method: str, params: Mapping[str, Any], param_map: ParamMap | None = None) -> dict[str, str]:
    """Returns the headers of one modern request. `param_map`: that of the called tool; None: no annotations."""
    headers = {"Mcp-Method": method}
    name = params.get(NAME_KEYS.get(method, ""))
    if isinstance(name, str):
        _add(headers, "Mcp-Name", name)
    for path, token in (param_map or {}).items():
        value = _argument(params.get("arguments"), path)
        text = None if value is None else _header_text(value)
        if text is not None:
            _add(headers, PARAM_PREFIX + token, text)
    return headers


def _add(headers: dict[str, str], name: str, value: str) -> None:
    try:
        headers[name] = encode_value(value)
    except UnicodeEncodeError:
        return  # a lone surrogate: without the header, the server decides


# --- the receiving side ----------------------------------------------------------------------------------------


def check(headers: Iterable[tuple[str, str]], message: Mapping[str, Any], schema: Any) -> ProtocolError | None:
    """Returns the error of a request whose headers are wrong or whose envelope is missing; None if it is correct.

    `headers` are all header lines, with names in any case; `schema` is the input schema of the called tool, None if the
    request calls none or an unknown one. The order of checks is: repeated routing headers, a missing envelope (-32602),
    version, method, name, arguments.
    """
    lines: dict[str, list[str]] = {}
    for name, value in headers:
        lower = name.lower()
        if lower.startswith("mcp-"):
            lines.setdefault(lower, []).append(value)
    for name in _ROUTING:
        if len(lines.get(name, ())) > 1:
            return _mismatch(f"the header {name} appears more than once")
    method, params = message.get("method"), message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    absent = [key for key in (eras.VERSION_KEY, eras.CAPABILITIES_KEY) if not isinstance(meta, dict) or key not in meta]
    if absent or not isinstance(params, dict) or not isinstance(meta, dict):
        return ProtocolError(INVALID_PARAMS, f"params._meta lacks {', '.join(absent)}")
    version, routed_method, routed_name = (lines[name][0] if name in lines else None for name in _ROUTING)
    if version is None or version != meta[eras.VERSION_KEY]:
        return _mismatch(f"the header {PROTOCOL_VERSION} and the version in params._meta differ")
    if routed_method != method:
        return _mismatch(f"the header {METHOD} and the method differ")
    key = NAME_KEYS.get(method) if isinstance(method, str) else None
    named = params.get(key) if key is not None else None
    if named is not None and decode_value(routed_name) != named:
        return _mismatch(f"the header {NAME} and params.{key} differ")
    return check_params(lines, params.get("arguments"), schema)


def must_be_repeated(schema: Any, headers: Iterable[tuple[str, str]]) -> bool:
    """Returns whether a schema asks for arguments to be repeated in headers, and a request repeats none."""
    prefix = PARAM_PREFIX.lower()
    return bool(_annotated_schemas(schema)) and not any(name.lower().startswith(prefix) for name, _ in headers)


def check_params(lines: Mapping[str, list[str]], arguments: Any, schema: Any) -> ProtocolError | None:
    """Returns the error of wrong `Mcp-Param-*` headers; None if they are correct. `lines`: values by lower-case name.

    A header without its argument is refused as well, because an intermediary may have routed by it. If an annotation is
    invalid, nothing is checked: by the specification, clients then send no such headers.
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict) or invalid_annotation(schema) is not None:
        return None
    for path, subschema in _annotated_schemas(schema):
        if not path:
            continue
        header = PARAM_PREFIX + subschema[ANNOTATION]
        values = lines.get(header.lower(), [])
        value = _argument(arguments, path)
        text = None if value is None else _header_text(value)
        if len(values) > 1:
            return _mismatch(f"the header {header} appears more than once")
        if text is None and not values:
            continue
        decoded = decode_value(values[0]) if values else None
        if text is None or decoded is None or not _same(subschema.get("type"), value, text, decoded):
            return _mismatch(f"the header {header} and the argument {'.'.join(path)} differ")
    return None


def _same(kind: Any, value: Any, text: str, decoded: str) -> bool:
    """Compares integers as numbers (42 equals 42.0, however long), everything else as text."""
    match = _DECIMAL.fullmatch(decoded)
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind != "integer" or isinstance(value, bool) or not is_whole or match is None:
        return decoded == text
    try:
        return not (match[2] or "").strip("0") and int(match[1]) == int(value)
    except ValueError:
        return False


def _mismatch(difference: str) -> ProtocolError:
    return ProtocolError(HEADER_MISMATCH, f"Header mismatch: {difference}")
