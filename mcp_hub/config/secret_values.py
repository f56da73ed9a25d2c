"""Finds the secrets of a configuration, to keep them out of logs and to warn of those in plain text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import KeyPath
from mcp_hub.config.models import Config, Listen, Server
from mcp_hub.config.settings import Frozen
from mcp_hub.config.syntax import MAX_DEPTH
from mcp_hub.config.variables import VariableScope, has_variable
from mcp_hub.security.redaction import MIN_SECRET, is_secret_key, preset_texts
from mcp_hub.security.redaction.heuristics import is_secret_value, likely_secrets, names_one_secret

PLAIN_SECRET_ADVICE: Final = (
    "a secret stands here in plain text; put it into a variable (${NAME}) or a file (${file:PATH}), so that the "
    "configuration can be shown and copied"
)

_PATH: Final = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:\\)[\w.@~ /\\-]*")
_PLACEHOLDER: Final = re.compile(r"<.*>|(?:your|my|enter|insert)[_ -].*|x+|\*+|\.+|…|change[_-]?me|todo", re.IGNORECASE)
_REFERENCE: Final = re.compile(r"\$\{(?:(?!:-)[^{}])*\}|\$\w+|\{env:\w+\}")
"""A value that is one variable of any client, without a default."""
_SCHEME: Final = re.compile(r"\A\s*(?:(?:bearer|basic|token|apikey) +)?", re.IGNORECASE)
_SETTING: Final = re.compile(r"true|false|yes|no|on|off|none|null|auto|\d{1,3}|", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z]{1,12}\d?|\d{1,8}", re.IGNORECASE)
"""Settings under a name that only mentions a secret: `SESSION_MODE: persistent`, `AUTH_TYPE: oauth2`."""
_HEADER_WORDS: Final = re.compile(
    r"(?:[A-Za-z]{1,20}|v?[\d.]{1,10})(?:[-_,;:/= ]{1,2}(?:[A-Za-z]{1,20}|v?[\d.]{1,10}))*"
)
"""Values of headers that are not secrets: `repos,issues`, `2025-06-18`."""
_ASSIGNED: Final = re.compile(r"([\w.-]+)[\"'\\]*\s*[=:]\s*[\"'\\]*\Z")

SecretSpan = tuple[int, int]


def find_plain_secrets(
    fields: Mapping[str, FieldValue], scope: VariableScope
) -> Iterator[tuple[KeyPath, str, list[SecretSpan]]]:
    """Yields (place, text, spans of its secrets) for each text of an entry, as written, that has secrets in it.

    They are secrets by their name or their form: what `hide_likely_secrets` hides, and values of headers.
    """
    for field_name, field in fields.items():
        previous = ""
        for name, text, at in _texts(field_name, field.value, field.at) if field_name in _SECRET_FIELDS else ():
            if field_name in _ONLY and _ONLY[field_name].isdisjoint(at):
                continue
            if field_name == "headers":
                spans = _in_header(name, text, scope)
            elif field_name in _COMMAND_LINES or isinstance(at[-1], int):
                spans = _in_argument(previous, text, scope)
                previous = text
            else:
                spans = secret_spans(name, text, scope)
            if spans:
                yield at, text, spans


_COMMAND_LINES: Final = frozenset({"url", "command", "args", "proxy"})
_SECRET_FIELDS: Final = _COMMAND_LINES | {"env", "headers", "api_key", "auth", "oauth", "egress", "tools"}
_ONLY: Final = {"oauth": frozenset({"client_secret", "private_key"}), "tools": frozenset({"preset"})}
"""Field -> the keys within it that have secrets."""


def _texts(name: str, value: Any, at: KeyPath) -> Iterator[tuple[str, str, KeyPath]]:
    if isinstance(value, str | int) and not isinstance(value, bool):
        yield name, str(value), at
    elif len(at) <= MAX_DEPTH and isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(str(key), item, (*at, key))


def is_plain_secret(name: str, value: Any, scope: VariableScope) -> bool:
    """Returns whether the written value of a name has a secret that is not a variable."""
    return isinstance(value, str) and bool(secret_spans(name, value, scope))


def secret_spans(name: str, text: str, scope: VariableScope) -> list[SecretSpan]:
    """Returns the spans of the secrets in the written value of a name. A variable is none."""
    start = len(text) - len(_SCHEME.sub("", text))
    if has_variable(text, scope):
        return _literal_spans(text, scope)
    spans = [
        (begin, end)
        for begin, end in likely_secrets(text)
        if _may_be_secret(_key_before(text, begin), text[begin:end].strip("\"'\\ "))
    ]
    if is_secret_key(name) and _may_be_secret(name, text[start:].strip()) and not (spans and "://" in text):
        return [(start, len(text))]
    return spans


def _key_before(text: str, at: int) -> str:
    """Returns the key that a likely secret is assigned to. A secret without one is known by its form."""
    key = _ASSIGNED.search(text, max(0, at - 200), at)
    return key[1] if key is not None else "token"


def _may_be_secret(name: str, text: str) -> bool:
    if _PATH.fullmatch(text) or _PLACEHOLDER.fullmatch(text) or text.startswith("$") or text == "git":
        return False
    if is_secret_value(text):
        return True
    if names_one_secret(name):
        return _SETTING.fullmatch(text) is None
    return len(text) >= MIN_SECRET and _WORD.fullmatch(text) is None


def _literal_spans(text: str, scope: VariableScope) -> list[SecretSpan]:
    """Returns the spans of secrets beside the variables of a text, such as in `postgres://me:password@${HOST}/db`."""
    spans = []
    variables = list(scope.tokens.finditer(text))  # of the whole text, as a span may end within a variable
    starts = [variable.start() for variable in variables]
    for begin, end in likely_secrets(text):
        for token in (*variables[bisect_left(starts, begin) : bisect_left(starts, end)], None):
            literal_end = token.start() if token is not None else end
            literal = text[begin:literal_end].strip("\"'\\ ")
            # Before the variable of a password stands the name of its user.
            if len(literal) >= MIN_SECRET and not literal.endswith(":") and _may_be_secret("token", literal):
                spans.append((begin, literal_end))
            begin = token.end() if token is not None else end
    return spans


def _in_header(name: str, text: str, scope: VariableScope) -> list[SecretSpan]:
    spans = secret_spans(name, text, scope)
    if spans or name.lower() in _PUBLIC_HEADERS or has_variable(text, scope) or "://" in text:
        return spans
    value = text.strip()
    is_plain = _HEADER_WORDS.fullmatch(value) or _PATH.fullmatch(value) or _PLACEHOLDER.fullmatch(value)
    if is_plain or len(value) < MIN_SECRET or value.startswith("$"):
        return []
    return [(len(text) - len(text.lstrip()), len(text))]


def _in_argument(previous: str, text: str, scope: VariableScope) -> list[SecretSpan]:
    """Returns the spans of the secrets in an argument of a command line, or a URL. `previous` is the one before it."""
    option, equals, value = text.partition("=")
    is_option = previous.startswith("-") and "=" not in previous and not text.startswith("-")
    if (is_option and previous in _HEADER_OPTIONS) or option in _HEADER_OPTIONS:
        name, _, header = (text if is_option else value).partition(":")
        offset = len(text) - len(header)
        return [(offset + begin, offset + end) for begin, end in _in_header(name.strip(), header, scope)]
    if is_option and (spans := secret_spans(previous.lstrip("-"), text, scope)):
        return spans
    if equals and _NAME.fullmatch(option) and not has_variable(text, scope):
        offset = len(option) + 1
        if spans := secret_spans(option.lstrip("-"), value, scope):
            return [(offset + begin, offset + end) for begin, end in spans]
    return secret_spans("", text, scope)


_HEADER_OPTIONS: Final = frozenset({"-H", "--header"})
_NAME: Final = re.compile(r"-{0,2}[\w. -]+")

_ORDINARY: Final = re.compile(r"[A-Za-z]{1,12}|[0-9.:]{1,12}")
"""Values that are not secrets under an ordinary name: `production`, `warning`, `127.0.0.1`."""
_PUBLIC_HEADERS: Final = frozenset({
    "accept", "accept-encoding", "accept-language", "content-type", "host", "mcp-protocol-version", "user-agent",
})  # fmt: skip


def secrets_of(config: Config) -> Iterator[str]:
    """Yields every value of a configuration that must not be shown."""
    for server in config.servers:
        yield from secrets_of_server(server)
    yield from _in_proxy(config.proxy)
    yield from secrets_of_listener(config.listen)
    yield from _in_text(config.web.docintel_endpoint)
    yield from _in_text(config.tracing.endpoint)
    for name, secret in config.tracing.headers.items():
        yield from _of_header(name, secret.get_secret_value())
    if config.store is not None:
        yield from _in_text(config.store.url.get_secret_value())
        yield from (key.get_secret_value() for key in config.store.keys)
    yield from _in_settings(config.settings)


_ENVIRONMENTS: Final = frozenset({"env", "environment", "envs"})
_HEADERS: Final = frozenset({"headers", "http_headers", "static_headers", "requestInit"})


def secret_texts(tree: Any, depth: int = 0) -> Iterator[str]:
    """Yields the secret values in a file of any client, which are recognised by the keys around them."""
    if depth > MAX_DEPTH or not isinstance(tree, dict | list):
        return
    if isinstance(tree, list):
        yield from _in_command_line([item for item in tree if isinstance(item, str)])
        for item in tree:
            yield from secret_texts(item, depth + 1)
        return
    for key, value in tree.items():
        if isinstance(value, str):
            if is_secret_key(key) and _REFERENCE.fullmatch(value) is None:
                yield value
            yield from _in_text(value)
        elif isinstance(value, dict) and key in _ENVIRONMENTS | _HEADERS:
            secrets_in = _of_variable if key in _ENVIRONMENTS else _of_header
            for name, text in value.items():
                is_shown = not isinstance(text, str) or _REFERENCE.fullmatch(text) or _PATH.fullmatch(text)
                if not is_shown:
                    yield from secrets_in(name, text)
        yield from secret_texts(value, depth + 1)


def _in_settings(value: Any) -> Iterator[str]:
    """Yields the secrets in settings of policies, whose models are not known here."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, Frozen):
        yield from _in_settings([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, Mapping):
        yield from _in_settings(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _in_settings(item)


def secrets_of_listener(listen: Listen) -> Iterator[str]:
    """Yields the tokens of callers, and the hub's client secret for token introspection."""
    if listen.token is not None:
        yield listen.token.get_secret_value()
    for principal in listen.principals.values():
        if principal.token is not None:
            yield principal.token.get_secret_value()
    if listen.verify is not None and listen.verify.introspection is not None:
        yield listen.verify.introspection.client_secret.get_secret_value()


def secrets_of_server(server: Server) -> Iterator[str]:
    """Yields the secrets of one entry: of its environment, headers, presets, command line and URL."""
    for name, secret in server.env.items():
        yield from _of_variable(name, secret.get_secret_value())
    for name, secret in server.headers.items():
        yield from _of_header(name, secret.get_secret_value())
    if server.oauth is not None:
        for credential in (server.oauth.client_secret, server.oauth.private_key):
            if credential is not None:
                yield credential.get_secret_value()
    for secret in server.secrets:
        yield secret.get_secret_value()
    for rules in server.tools.values():
        for text in preset_texts(rules.preset):
            yield text
            yield from _in_text(text)
    yield from _in_settings(server.settings)
    yield from _in_proxy(server.egress.proxy)
    yield from _in_text(server.url)
    yield from _in_command_line(server.args)


def _in_command_line(arguments: Sequence[str]) -> Iterator[str]:
    """Yields the secrets among the arguments of a command: values of options, `NAME=value`, URLs and headers."""
    for previous, argument in zip(("", *arguments), arguments, strict=False):
        if previous.startswith("-") and is_secret_key(previous) and not argument.startswith("-"):
            yield argument
        name, equals, value = argument.partition("=")
        if equals and is_secret_key(name):
            yield value
        yield from _in_text(argument)
        header, colon, value = argument.partition(":")
        if colon and "${" not in header and is_secret_key(header):
            yield value.strip()
            yield value.strip().partition(" ")[2]


def _of_header(name: str, value: str) -> Iterator[str]:
    if name.lower() not in _PUBLIC_HEADERS:
        yield value
        yield value.partition(" ")[2]  # without `Bearer`


def _of_variable(name: str, value: str) -> Iterator[str]:
    if is_secret_key(name) or _ORDINARY.fullmatch(value) is None:
        yield value
    yield from _in_text(value)


def _in_proxy(proxy: SecretStr | None) -> Iterator[str]:
    text = "" if proxy is None else proxy.get_secret_value()
    yield from _in_text(text if "://" in text else f"http://{text}")


def _in_text(text: str | None) -> Iterator[str]:
    """Yields the likely secrets of a text; the password and secret parameters of a URL as written and decoded."""
    if text is None:
        return
    for begin, end in likely_secrets(text):
        yield text[begin:end].strip("\"'\\")
    if "://" not in text:
        return
    try:
        parts = urlsplit(text)
    except ValueError:
        return
    userinfo = parts.netloc.rpartition("@")[0]
    password = userinfo.partition(":")[2] or userinfo
    if password not in ("", "git"):
        yield from (password, unquote(password))
    for name, value in parse_qsl(parts.query):
        if is_secret_key(name):
            yield value
