"""What looks like a secret by where it stands: under a telling key, in a URL, after `Bearer`, in a header-like line."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MASK: Final = "***"

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
)
"""Of words that are written together, as in `authtoken`. Not `key`: there are monkeys and turkeys."""

_PLURALS: Final = frozenset(word + "s" for word in _WORDS if not word.endswith("s")) - {"keys", "tokens"}
"""`keys` are pressed or looked up, `tokens` are counted; with a word in front (`api_keys`) both are secret enough."""

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
    if joined in ("apikeys", "accesstokens", "authtokens", "refreshtokens") or joined.endswith(_ENDINGS):
        return True
    for part in parts:
        lower = part.lower()
        if lower in _WORDS or lower in _PLURALS or lower.endswith(_ENDINGS):
            return True
        if lower not in _HARMLESS and any(word.lower() in _WORDS | _PLURALS for word in _CAMEL.findall(part)):
            return True
    return False


_FORMS: Final = re.compile(
    r"(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|dop_v1_|shpat_|hf_|xox[abpsr]-|sk-|sk_live_|rk_live_|sk_test_)"
    r"[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
)
"""What well-known services and formats begin their secrets with, so that they are found."""


def is_secret_value(text: str) -> bool:
    """Whether a text has the form of a secret, wherever it stands."""
    return "-----BEGIN " in text or _FORMS.search(text) is not None


_ANYTHING: Final = re.compile(r"[:=%]|--|b(?:earer|asic)", re.IGNORECASE)
"""What a text has to have for anything below to be in it."""
_USERINFO: Final = re.compile(r"(://)[^\s/?#\"'<>\\]*@|(%3A%2F%2F)[^\s/?#&\"'<>]{1,256}?(?=%40)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"\b(bearer|basic)((?:\s|%20|\+){1,4})([A-Za-z0-9._~+/=\-]+)", re.IGNORECASE)
_PLAIN_WORD: Final = re.compile(r"[A-Z]?[a-z]{1,15}[.]*|[a-z_]{1,20}=")
_ASSIGNED: Final = re.compile(
    r"(?<![\w.\-\[\]])([\w.\-\[\]]++)(\\*[\"']?\s{0,3}(?:[=:]|%3[DA])\s{0,3}|\s{1,3}(?=\S))", re.IGNORECASE
)
_VALUE: Final = re.compile(r"\\{0,8}\"[^\"]*+\"?|\\{0,8}'[^']*+'?|(?:(?!%26)[^\s&\"'<>,;)\]}])++", re.IGNORECASE)
_LINE: Final = re.compile(r"[^\r\n\"]*+")
_WHOLE_LINE: Final = ("authorization", "cookie")


def hide_telltales(text: str) -> str:
    """`text` with `***` for what stands where secrets do. Linear in its length; cheap where there is nothing."""
    if _ANYTHING.search(text) is None:
        return text
    if "://" in text or "%3" in text:
        text = _USERINFO.sub(lambda found: f"{found[1] or found[2]}{MASK}{'@' if found[1] else ''}", text)
    lower = text.casefold()
    if "bearer" in lower or "basic" in lower:
        alone = _SCHEME.fullmatch(text.strip())
        text = f"{alone[1]} {MASK}" if alone else _SCHEME.sub(_credentials, text)
    if "=" in text or ":" in text or "%3" in text or "--" in text:
        text = _hide_assigned(text)
    return text


def _credentials(found: re.Match[str]) -> str:
    # "Basic authentication failed" is prose, `Bearer realm="..."` a challenge.
    return found[0] if _PLAIN_WORD.fullmatch(found[3]) else found[1] + found[2] + MASK


def _hide_assigned(text: str) -> str:
    """`***` for the values of `token=...`, `"apiKey": "..."`, `X-Api-Key: ...` and `--password ...`."""
    kept: list[str] = []
    done = 0
    for found in _ASSIGNED.finditer(text):
        word, mark = found[1], found[2]
        if found.start() < done or not _tells(word, mark):
            continue
        whole = ":" in mark and word.lower().endswith(_WHOLE_LINE) and "'" not in mark and '"' not in mark
        value = (_LINE if whole else _VALUE).match(text, found.end())
        if value is None or not value[0]:
            continue
        kept += text[done : found.end()], MASK
        done = value.end()
    return "".join((*kept, text[done:])) if kept else text


def _tells(word: str, mark: str) -> bool:
    if mark.isspace():
        return word.startswith("--") and is_secret_key(word)
    if ":" in mark and word.lower() in _GENERIC and mark[0] not in "\\\"'":
        return False
    return is_secret_key(word)
