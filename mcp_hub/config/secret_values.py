"""Finds the secrets of a configuration, to keep them out of logs and to warn of those in plain text."""

from __future__ import annotations

import re
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
from mcp_hub.security.redaction.heuristics import hide_likely_secrets, is_secret_value

PLAIN_SECRET_ADVICE: Final = (
    "a secret stands here in plain text; put it into a variable (${NAME}) or a file (${file:PATH}), so that the "
    "configuration can be shown and copied"
)

_PATH: Final = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:\\)[\w.@~ /\\-]*")
_PLACEHOLDER: Final = re.compile(r"<.*>|(?:your|my|enter|insert)[_ -].*|x+|\*+|\.+|…|change[_-]?me|todo", re.IGNORECASE)
_SCHEMES: Final = ("bearer ", "basic ", "token ")


def find_plain_secrets(fields: Mapping[str, FieldValue], scope: VariableScope) -> Iterator[KeyPath]:
    """Yields the places of an entry, as written, whose value is a secret by its name or its form."""
    for key in ("env", "headers"):
        if key in fields:
            yield from (at for name, value, at in _pairs(fields[key]) if is_plain_secret(name, value, scope))
    for key in ("api_key", "auth"):
        if key in fields and fields[key].value != "oauth" and is_plain_secret("token", fields[key].value, scope):
            yield fields[key].at
    for key in ("url", "command", "args", "proxy"):
        if key in fields:
            arguments = fields[key].value if isinstance(fields[key].value, list) else [fields[key].value]
            yield from (
                (*fields[key].at, *((index,) if isinstance(fields[key].value, list) else ()))
                for index, argument in enumerate(arguments)
                if isinstance(argument, str)
                and _is_plain_secret_argument(arguments[index - 1] if index else "", argument, scope)
            )


def is_plain_secret(name: str, value: Any, scope: VariableScope) -> bool:
    """Returns whether the written value of a name is a secret and not a variable."""
    if not isinstance(value, str) or has_variable(value, scope):
        return False
    text = value.strip()
    for scheme in _SCHEMES:
        if text.lower().startswith(scheme):
            text = text[len(scheme) :].strip()
    if len(text) < MIN_SECRET or _PATH.fullmatch(text) or _PLACEHOLDER.fullmatch(text) or text.startswith("$"):
        return False
    if is_secret_value(text):
        return True
    return is_secret_key(name) and not _is_ordinary_setting(text)


def _is_ordinary_setting(text: str) -> bool:
    # Settings, not secrets: `SESSION_MODE: persistent`, `AUTH_TYPE: oauth2`, `KEY_COUNT: 100000`.
    return re.fullmatch(r"[a-z]{1,12}\d?|\d{1,8}|true|false", text, re.IGNORECASE) is not None


def _pairs(field: FieldValue) -> Iterator[tuple[str, Any, KeyPath]]:
    if isinstance(field.value, dict):
        for name, value in field.value.items():
            yield name, value, (*field.at, name)
    elif isinstance(field.value, list):
        for index, item in enumerate(field.value):
            name, _, value = item.partition("=") if isinstance(item, str) else ("", "", "")
            yield name, value, (*field.at, index)


def _is_plain_secret_argument(previous: str, argument: str, scope: VariableScope) -> bool:
    """Returns whether an argument of a command line, or a URL, holds a secret. `previous` is the argument before it."""
    if has_variable(argument, scope):
        return False
    if isinstance(previous, str) and previous.startswith("-") and not argument.startswith("-"):
        option = previous.lstrip("-")
        if "=" not in option and is_plain_secret(option, argument, scope):
            return True
    name, equals, value = argument.partition("=")
    if equals and "://" not in name and is_plain_secret(name.lstrip("-"), value, scope):
        return True
    return is_secret_value(argument) or hide_likely_secrets(argument) != argument


_ORDINARY: Final = re.compile(r"[A-Za-z]{1,12}|[0-9.:]{1,12}")
"""Values that are not secrets under an ordinary name: `production`, `warning`, `127.0.0.1`."""
_PUBLIC_HEADERS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def secrets_of(config: Config) -> Iterator[str]:
    """Yields every value of a configuration that must not be shown."""
    for server in config.servers:
        yield from secrets_of_server(server)
    yield from _in_proxy(config.proxy)
    yield from secrets_of_listener(config.listen)
    yield from _in_url(config.web.docintel_endpoint)
    yield from _in_url(config.tracing.endpoint)
    for name, secret in config.tracing.headers.items():
        yield from _of_header(name, secret.get_secret_value())
    if config.store is not None:
        yield from _in_url(config.store.url.get_secret_value())
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
            if is_secret_key(key) and not value.startswith("$"):
                yield value
            yield from _in_url(value)
        elif isinstance(value, dict) and key in _ENVIRONMENTS | _HEADERS:
            secrets_in = _of_variable if key in _ENVIRONMENTS else _of_header
            for name, text in value.items():
                if isinstance(text, str) and not text.startswith(("$", "{env:")) and _PATH.fullmatch(text) is None:
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
            yield from _in_url(text)
    yield from _in_settings(server.settings)
    yield from _in_proxy(server.egress.proxy)
    yield from _in_url(server.url)
    yield from _in_command_line(server.args)


def _in_command_line(arguments: Sequence[str]) -> Iterator[str]:
    """Yields the secrets among the arguments of a command: values of options, `NAME=value`, URLs and headers."""
    for previous, argument in zip(("", *arguments), arguments, strict=False):
        if previous.startswith("-") and is_secret_key(previous) and not argument.startswith("-"):
            yield argument
        name, equals, value = argument.partition("=")
        if equals and is_secret_key(name):
            yield value
        yield from _in_url(argument)
        header, colon, value = argument.partition(":")
        if colon and is_secret_key(header):
            yield value.strip()
            yield value.strip().partition(" ")[2]


def _of_header(name: str, value: str) -> Iterator[str]:
    if name.lower() not in _PUBLIC_HEADERS:
        yield value
        yield value.partition(" ")[2]  # without `Bearer`


def _of_variable(name: str, value: str) -> Iterator[str]:
    if is_secret_key(name) or _ORDINARY.fullmatch(value) is None:
        yield value
    yield from _in_url(value)


def _in_proxy(proxy: SecretStr | None) -> Iterator[str]:
    text = "" if proxy is None else proxy.get_secret_value()
    yield from _in_url(text if "://" in text else f"http://{text}")


def _in_url(text: str | None) -> Iterator[str]:
    """Yields the password and the secret parameters of a URL, as written and decoded."""
    if text is None or "://" not in text:
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
