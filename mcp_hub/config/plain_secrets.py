"""Secrets that stand in a file themselves, where a variable or a file could be named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_hub.config.fields import Given
from mcp_hub.config.findings import KeyPath
from mcp_hub.config.variables import Scope, has_variable
from mcp_hub.security.redaction import MIN_SECRET, is_secret_key
from mcp_hub.security.redaction.telltale import hide_telltales, is_secret_value

ADVICE: Final = (
    "a secret stands here in plain text; put it into a variable (${NAME}) or a file (${file:PATH}), so that the "
    "configuration can be shown and copied"
)

_PATH: Final = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:\\)[\w.@~ /\\-]*")
_PLACEHOLDER: Final = re.compile(r"<.*>|(?:your|my|enter|insert)[_ -].*|x+|\*+|\.+|…|change[_-]?me|todo", re.IGNORECASE)
_SCHEMES: Final = ("bearer ", "basic ", "token ")


def plain_secrets(given: Mapping[str, Given], scope: Scope) -> Iterator[KeyPath]:
    """Where in an entry, given as it is written, a value is a secret by its name or its form."""
    for key in ("env", "headers"):
        if key in given:
            yield from (at for name, value, at in _pairs(given[key]) if is_plain_secret(name, value, scope))
    for key in ("api_key", "auth"):
        if key in given and given[key].value != "oauth" and is_plain_secret("token", given[key].value, scope):
            yield given[key].at
    for key in ("url", "command", "args"):
        if key in given:
            words = given[key].value if isinstance(given[key].value, list) else [given[key].value]
            yield from (
                (*given[key].at, *((index,) if isinstance(given[key].value, list) else ()))
                for index, word in enumerate(words)
                if isinstance(word, str) and _tells(words[index - 1] if index else "", word, scope)
            )


def is_plain_secret(name: str, value: Any, scope: Scope) -> bool:
    """Whether what is written for a name is a secret itself."""
    if not isinstance(value, str) or has_variable(value, scope):
        return False
    bare = value.strip()
    for scheme in _SCHEMES:
        if bare.lower().startswith(scheme):
            bare = bare[len(scheme) :].strip()
    if len(bare) < MIN_SECRET or _PATH.fullmatch(bare) or _PLACEHOLDER.fullmatch(bare) or bare.startswith("$"):
        return False
    if is_secret_value(bare):
        return True
    return is_secret_key(name) and not _is_plain_word(bare)


def _is_plain_word(text: str) -> bool:
    # `SESSION_MODE: persistent`, `AUTH_TYPE: oauth2`, `KEY_COUNT: 100000`: a setting, not a secret.
    return re.fullmatch(r"[a-z]{1,12}\d?|\d{1,8}|true|false", text, re.IGNORECASE) is not None


def _pairs(given: Given) -> Iterator[tuple[str, Any, KeyPath]]:
    if isinstance(given.value, dict):
        for name, value in given.value.items():
            yield name, value, (*given.at, name)
    elif isinstance(given.value, list):
        for index, item in enumerate(given.value):
            name, _, value = item.partition("=") if isinstance(item, str) else ("", "", "")
            yield name, value, (*given.at, index)


def _tells(before: str, word: str, scope: Scope) -> bool:
    """Whether a word of a command line, or a URL, holds a secret."""
    if has_variable(word, scope):
        return False
    if isinstance(before, str) and before.startswith("-") and not word.startswith("-"):
        option = before.lstrip("-")
        if "=" not in option and is_plain_secret(option, word, scope):
            return True
    name, equals, value = word.partition("=")
    if equals and "://" not in name and is_plain_secret(name.lstrip("-"), value, scope):
        return True
    return is_secret_value(word) or hide_telltales(word) != word
