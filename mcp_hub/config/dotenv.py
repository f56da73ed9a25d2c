"""The `envFile` of an entry: lines `NAME=value`, as most programs understand them."""

from __future__ import annotations

import re
from typing import Final

from mcp_hub.config.variables import Scope, Unresolved, expand

_LINE: Final = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*=[^\S\n]*
    (?:'(?P<literal>[^']*)'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>(?!['"])[^\n]*?))
    [^\S\n]*(?:(?:^|(?<=\s))\#[^\n]*)?(?:\n|$)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_BLANK: Final = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|$)")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_dotenv(text: str, scope: Scope) -> dict[str, str]:
    """Names and values. Variables are expanded, but not between single quotes.

    Raises Unresolved, also for a line that is not `NAME=value`; values are not quoted in the reason.
    """
    values: dict[str, str] = {}
    text = text.replace("\r\n", "\n")
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        found = _LINE.match(text, at)
        if found is None:
            raise Unresolved(f"line {text.count(chr(10), 0, at) + 1} is not NAME=value")
        if found["literal"] is not None:
            values[found["name"]] = found["literal"]
        elif found["quoted"] is not None:
            value = _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), found["quoted"])
            values[found["name"]] = expand(value, scope)
        else:
            values[found["name"]] = expand(found["plain"], scope)
        at = found.end()
    return values
