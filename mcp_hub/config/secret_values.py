"""The secrets a configuration holds, so that they can be kept out of everything that is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from mcp_hub.config.models import Config, Listen, Server
from mcp_hub.security.redaction import is_secret_key, preset_texts

_ORDINARY: Final = re.compile(r"[A-Za-z]{1,12}|[0-9.:]{1,12}")
"""Under a name that promises no secret: `production`, `warning`, `127.0.0.1`."""
_PUBLIC_HEADERS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def secrets_of(config: Config) -> Iterator[str]:
    """Every value of a configuration that must not be shown."""
    for server in config.servers:
        yield from secrets_of_server(server)
    yield from secrets_of_listener(config.listen)
    yield from _in_url(config.web.docintel_endpoint)
    yield from _in_url(config.tracing.endpoint)
    for name, secret in config.tracing.headers.items():
        yield from _of_header(name, secret.get_secret_value())


def secrets_of_listener(listen: Listen) -> Iterator[str]:
    """The tokens of its callers, and what the hub itself proves its identity with."""
    if listen.token is not None:
        yield listen.token.get_secret_value()
    for principal in listen.principals.values():
        yield principal.token.get_secret_value()
    if listen.verify is not None and listen.verify.introspection is not None:
        yield listen.verify.introspection.client_secret.get_secret_value()


def secrets_of_server(server: Server) -> Iterator[str]:
    """Those of one entry: environment, headers, presets, and what its command line and URL carry."""
    for name, secret in server.env.items():
        yield from _named(name, secret.get_secret_value())
    for name, secret in server.headers.items():
        yield from _of_header(name, secret.get_secret_value())
    if server.oauth is not None:
        for given in (server.oauth.client_secret, server.oauth.private_key):
            if given is not None:
                yield given.get_secret_value()
    for secret in server.secrets:
        yield secret.get_secret_value()
    for rules in server.tools.values():
        for text in preset_texts(rules.preset):
            yield text
            yield from _in_url(text)
    yield from _in_url(server.url)
    for before, word in zip(("", *server.args), server.args, strict=False):
        if before.startswith("-") and is_secret_key(before) and not word.startswith("-"):
            yield word
        name, equals, value = word.partition("=")
        if equals and is_secret_key(name):
            yield value
        yield from _in_url(word)
        header, colon, value = word.partition(":")
        if colon and is_secret_key(header):
            yield value.strip()
            yield value.strip().partition(" ")[2]


def _of_header(name: str, value: str) -> Iterator[str]:
    if name.lower() not in _PUBLIC_HEADERS:
        yield value
        yield value.partition(" ")[2]  # without `Bearer`


def _named(name: str, value: str) -> Iterator[str]:
    if is_secret_key(name) or _ORDINARY.fullmatch(value) is None:
        yield value
    yield from _in_url(value)


def _in_url(text: str | None) -> Iterator[str]:
    """Password and secret parameters of a URL, as they are written and as they are meant."""
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
