"""What looks like a secret by where it stands: under a telling key, in a URL, after `Bearer`, in a line of a header."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from mcp_hub.security.redaction.markup import hide_in_markup
from mcp_hub.security.redaction.shapes import MASK, hide_shapes, is_secret_value

__all__ = ["MASK", "hide_telltales", "is_secret_key", "is_secret_value"]

_MAX_KEY: Final = 128
"""Characters of a key that are looked at."""

_WORDS: Final = frozenset(
    {
        "token",
        "key",
        "apikey",
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pass",
        "pwd",
        "secret",
        "authorization",
        "auth",
        "cookie",
        "credential",
        "session",
        "bearer",
        "private",
        "jwt",
        "otp",
        "signature",
        "sig",
        "pin",
        "pw",
        "dsn",
        "cvv",
    }
)
_ENDINGS: Final = (
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "cookie",
    "credential",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "sessionid",
    "sessionkey",
    "connectionstring",
)
"""Of words that are written together, as in `authtoken`. Not `key`: there are monkeys and turkeys."""

_PLURALS: Final = frozenset(word + "s" for word in _WORDS if not word.endswith("s")) - {"keys", "tokens", "pins"}
"""`keys` are pressed or looked up, `tokens` are counted, `pins` are put on a board; with a word in front (`api_keys`)
they are secret enough."""

_JOINED_PLURALS: Final = frozenset({"apikeys", "accesstokens", "authtokens", "refreshtokens", "connectionstrings"})
_HARMLESS: Final = frozenset({"keyboard", "keyboards", "keyword", "keywords", "keynote"})
_GENERIC: Final = frozenset({"key", "session", "private", "auth", "pass", "signature", "sig", "bearer"})
"""Too common in prose to mean anything before a colon."""

_CAMEL: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9]+")


@lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    """Whether what stands under this key is taken for a secret, whatever its case and separators."""
    key = key[:_MAX_KEY]
    parts = [part for part in _SEPARATORS.split(key) if part]
    joined = "".join(parts).lower()
    if joined in _HARMLESS:
        return False
    if joined in _JOINED_PLURALS or joined.endswith(_ENDINGS):
        return True
    for part in parts:
        lower = part.lower()
        if lower in _WORDS or lower in _PLURALS or lower.endswith(_ENDINGS):
            return True
        if lower not in _HARMLESS and any(word.lower() in _WORDS | _PLURALS for word in _CAMEL.findall(part)):
            return True
    return False


_ANYTHING: Final = re.compile(r"[:=%<]|--|[Bb][AEae][ASas]")
"""What a text has to have for anything below to be in it, `bearer` and `basic` among it."""
_USERINFO: Final = re.compile(r"(://)[^\s/?#\"'<>\\]*@|(%3A%2F%2F)[^\s/?#&\"'<>]{1,256}?(?=%40)", re.IGNORECASE)
_DIALLED: Final = re.compile(r":[^\s:/@]{1,256}@(?=(?:tcp|unix)\()")
"""The password of a data source name such as `me:password@tcp(host:3306)/name`."""
_SCHEME: Final = re.compile(r"\b(bearer|basic)((?:\s|%20|\+){1,4})([A-Za-z0-9._~+/=\-]+)", re.IGNORECASE)
_PLAIN_WORD: Final = re.compile(r"[A-Z]?[a-z]{1,15}[.]*|[a-z_]{1,20}=")
_MARK: Final = re.compile(r"[=:]|%3[ADad]|--(?<![\w.\-\[\]]--)(?=\w)")
_KEY_REVERSED: Final = re.compile(r"\s{0,3}([\"']?\\*)([\w.\-\[\]]+)")
"""What stands before a mark, from its end: a search from the front would look at every word of a text."""
_OPTION: Final = re.compile(r"(--[\w.\-\[\]]++)\s{1,3}(?=\S)")
_GAP: Final = re.compile(r"\s{0,3}")
_VALUE: Final = re.compile(r"\\{0,8}\"[^\"]*+\"?|\\{0,8}'[^']*+'?|(?:(?!%26)[^\s&\"'<>,;)\]}])++", re.IGNORECASE)
_LINE: Final = re.compile(r"[^\r\n\"]*+")
_WHOLE_LINE: Final = ("authorization", "cookie")
_BLOCK: Final = re.compile(r"[ \t]*([|>][-+0-9]{0,2}[ \t]*(?:#[^\r\n]*+)?)?\r?\n")
"""What stands between a key of YAML and the lines that are its value."""


def hide_telltales(text: str) -> str:
    """`text` with `***` for what stands where secrets do or has their shape.

    Linear in its length; cheap where there is nothing.
    """
    text = hide_shapes(text)
    if _ANYTHING.search(text) is None:
        return text
    if ("@" in text and "://" in text) or "%40" in text:
        text = _USERINFO.sub(lambda found: f"{found[1] or found[2]}{MASK}{'@' if found[1] else ''}", text)
    if "@tcp(" in text or "@unix(" in text:
        text = _DIALLED.sub(f":{MASK}@", text)
    lower = text.casefold()
    if "bearer" in lower or "basic" in lower:
        alone = _SCHEME.fullmatch(text.strip())
        text = f"{alone[1]} {MASK}" if alone else _SCHEME.sub(_credentials, text)
    if "<" in text:
        text = hide_in_markup(text, is_secret_key)
    if "=" in text or ":" in text or "%3" in text or "--" in text:
        text = _hide_assigned(text)
    return text


def _credentials(found: re.Match[str]) -> str:
    # "Basic authentication failed" is prose, `Bearer realm="..."` a challenge.
    return found[0] if _PLAIN_WORD.fullmatch(found[3]) else found[1] + found[2] + MASK


def _hide_assigned(text: str) -> str:
    """`***` for the values of `token=...`, `"apiKey": "..."`, `X-Api-Key: ...`, `--password ...` and `password: |`."""
    kept: list[str] = []
    done = 0
    for found in _MARK.finditer(text):
        at = found.start()
        if at < done or text.startswith("://", at):
            continue
        begin, end = _after_option(text, found) if found[0] == "--" else _after_key(text, found, done)
        if begin < end:
            kept += text[done:begin], MASK
            done = end
    return "".join((*kept, text[done:])) if kept else text


def _after_option(text: str, found: re.Match[str]) -> tuple[int, int]:
    """Where the value of an option of a command line stands, if that is secret."""
    option = _OPTION.match(text, found.start())
    return _value(text, option.end(), _VALUE) if option is not None and is_secret_key(option[1]) else (0, 0)


def _after_key(text: str, found: re.Match[str], done: int) -> tuple[int, int]:
    """Where the value stands that is assigned to a secret key, if it is one."""
    at, colon = found.start(), found[0] == ":"
    before = _KEY_REVERSED.match(text[max(done, at - _MAX_KEY - 8) : at][::-1])
    if before is None:
        return 0, 0
    key, quoted = before[2][::-1], before[1] != ""
    if not is_secret_key(key) or (colon and not quoted and key.lower() in _GENERIC):
        return 0, 0
    if colon and (block := _BLOCK.match(text, at + 1)) is not None:
        lines = _indented_lines(text, at - before.end(), block)
        if lines is not None:
            return lines
    whole = colon and not quoted and key.lower().endswith(_WHOLE_LINE)
    return _value(text, _GAP.match(text, found.end()).end(), _LINE if whole else _VALUE)  # type: ignore[union-attr]


def _value(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    found = pattern.match(text, at)
    return (at, found.end()) if found is not None else (0, 0)


def _indented_lines(text: str, key: int, block: re.Match[str]) -> tuple[int, int] | None:
    """The lines below a key that are indented more than it: a block of YAML. None where there are none.

    Without a `|` or `>` the key has to begin its line: a sentence may end in a colon too.
    """
    before = text[text.rfind("\n", 0, key) + 1 : key]
    if block[1] is None and before.strip(" \t-\"'"):
        return None
    indent = len(before) if not before.strip(" \t-") else len(before) - len(before.lstrip(" \t"))
    at = end = block.end()
    while at < len(text):
        next_line = text.find("\n", at) + 1 or len(text)
        line = text[at:next_line].rstrip("\r\n")
        if line.strip(" \t"):
            if len(line) - len(line.lstrip(" \t")) <= indent:
                break
            end = at + len(line)
        at = next_line
    begin = block.end() + len(text[block.end() : end]) - len(text[block.end() : end].lstrip(" \t\r\n"))
    return (begin, end) if begin < end else None
