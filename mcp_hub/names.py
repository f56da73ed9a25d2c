"""Original names to exposed ones; pure. The way back is the catalog's index, never a parse of the exposed name."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_LENGTH: Final = 64
"""What the strictest client allows in a tool's name."""
SEPARATOR: Final = "__"
URI_PREFIX: Final = "mcp-hub://"

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH: Final = 8


def expose(namespace: str, name: str) -> str:
    """`namespace__name` in characters and length every client accepts; deterministic.

    `""` as namespace puts nothing in front. A name that has to be changed by more than the prefix (illegal
    characters stay one `_` each) or is too long ends in 8 characters of hash of the full pair.
    """
    full = f"{namespace}{SEPARATOR}{name}" if namespace else name
    legal = _ILLEGAL.sub("_", full)
    return legal if len(legal) <= MAX_LENGTH else _shortened(legal, namespace, name)


def renamed(namespace: str, name: str, attempt: int = 0) -> str:
    """Another exposed name for the same pair, for when the first is taken; always with the hash. Deterministic."""
    full = f"{namespace}{SEPARATOR}{name}" if namespace else name
    return _shortened(_ILLEGAL.sub("_", full), namespace, f"{name}\0{attempt}" if attempt else name)


def _shortened(legal: str, namespace: str, name: str) -> str:
    digest = hashlib.sha256(f"{namespace}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{legal[: MAX_LENGTH - _HASH_LENGTH - 1]}_{digest}"


def expose_uri(upstream: str, uri: str) -> str:
    """The URI (or URI template) of one upstream's resource where another upstream has the same one."""
    return f"{URI_PREFIX}{upstream}/{uri}"


def original_uri(exposed: str) -> tuple[str, str] | None:
    """(upstream, URI) of what `expose_uri` made; None for any other URI."""
    if not exposed.startswith(URI_PREFIX):
        return None
    upstream, slash, uri = exposed[len(URI_PREFIX) :].partition("/")
    return (upstream, uri) if slash else None


_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)[^{}]*\}")
_MATCHES: Final = {
    "": r"[^/?#]*?",
    "+": r".*?",
    "#": r"(?:#.*?)?",
    ".": r"(?:\.[^/?#]*?)?",
    "/": r"(?:/[^?#]*?)?",
    ";": r"(?:;[^/?#]*?)?",
    "?": r"(?:\?[^#]*?)?",
    "&": r"(?:&[^#]*?)?",
}
MAX_EXPRESSIONS: Final = 16
"""Expressions in one URI template; no server needs more."""


def template_pattern(template: str) -> re.Pattern[str] | None:
    """What the URIs of an RFC 6570 template look like, for `fullmatch`; None for one with too many expressions.

    Each expression ends at the first place where the text behind it stands, and is never reconsidered (an atomic
    group), so that no URI makes the match slow.
    """
    expressions = list(_EXPRESSION.finditer(template))
    if len(expressions) > MAX_EXPRESSIONS:
        return None
    if not expressions:
        return re.compile(re.escape(template))
    pattern = re.escape(template[: expressions[0].start()])
    for expression, following in zip(expressions, [*expressions[1:], None], strict=True):
        literal = re.escape(template[expression.end() : following.start() if following else len(template)])
        matched = _MATCHES[expression[1]]
        pattern += f"(?>{matched}{literal})" if following and literal else matched + literal
    return re.compile(pattern, re.DOTALL)
