"""Finds likely secrets by their form and by their place.

By form: private keys in PEM, JSON Web Tokens, tokens with the prefix of a service. By place: under a telling key, in a
URL, after `Bearer`, in a header line, in an XML element or attribute.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MASK: Final = "***"

_MIN_FORMAT: Final = 20
"""Characters of the shortest secret of a known format."""
_PREFIXES: Final = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),  # GitHub
    *("glpat-", "gldt-", "glrt-", "glptt-"),  # GitLab
    *("npm_", "pypi-", "hf_"),
    *("dop_v1_", "doo_v1_", "dor_v1_"),  # DigitalOcean
    *("shpat_", "shpss_", "shpca_", "shppa_"),  # Shopify
    *("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),  # Slack
    *("sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),  # OpenAI, Anthropic and others; Stripe
)
_RARE_PREFIXES: Final = ("AKIA", "ASIA", "AIza", "ya29.", "SG.", "SK", "eyJ")
_FORMATS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    rf"(?:{'|'.join(map(re.escape, _PREFIXES))})[A-Za-z0-9_-]{{16,}}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"  # Amazon
    r"|AIza[A-Za-z0-9_-]{35}"  # Google
    r"|ya29\.[A-Za-z0-9_-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"  # SendGrid
    r"|SK[0-9a-f]{32}(?![A-Za-z0-9])"  # Twilio
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*)?"
    r")"
)
_PEM: Final = "-----BEGIN "
_PEM_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY[A-Z ]{0,16}-----")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,64}(?:-----)?")
_PEM_REST: Final = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[rn])*+")
"""The content of a private key whose end was cut off."""


def is_secret_value(text: str) -> bool:
    """Returns whether a text contains a secret of a known format."""
    return _PEM in text or _FORMATS.search(text) is not None


def _hide_formats(text: str) -> str:
    """Returns `text` with `***` in place of secrets of a known format. It takes time linear in the length."""
    if len(text) < _MIN_FORMAT:
        return text
    if _PEM in text:
        text = _hide_private_keys(text)
    if _may_have_formats(text):
        text = _FORMATS.sub(MASK, text)
    return text


def _may_have_formats(text: str) -> bool:
    # Searching for each prefix is far cheaper than one regular expression for all of them.
    if "_" in text or "-" in text:
        for beginning in _PREFIXES:
            if beginning in text:
                return True
    for beginning in _RARE_PREFIXES:  # noqa: SIM110 - a loop takes half the time of `any`
        if beginning in text:
            return True
    return False


def _hide_private_keys(text: str) -> str:
    parts: list[str] = []
    hidden_end = 0
    end: re.Match[str] | None = None
    for match in _PEM_BEGIN.finditer(text):
        if match.start() < hidden_end:
            continue
        if hidden_end == 0 or end is not None:
            end = _PEM_END.search(text, match.end())  # after a search without a result, none is left
        until = end.end() if end is not None else _PEM_REST.match(text, match.end()).end()  # type: ignore[union-attr]
        parts += text[hidden_end : match.start()], MASK
        hidden_end = until
    return "".join((*parts, text[hidden_end:])) if parts else text


_MAX_KEY: Final = 128
"""Characters of a key that are read."""

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
"""Endings of compound words, as in `authtoken`. `key` is not one of them because of words such as `monkey`."""

_PLURALS: Final = frozenset(word + "s" for word in _WORDS if not word.endswith("s")) - {"keys", "tokens", "pins"}
"""Without `keys`, `tokens` and `pins`, which mostly mean something else. Compounds such as `api_keys` count."""

_JOINED_PLURALS: Final = frozenset({"apikeys", "accesstokens", "authtokens", "refreshtokens", "connectionstrings"})
_HARMLESS: Final = frozenset({"keyboard", "keyboards", "keyword", "keywords", "keynote"})
_GENERIC: Final = frozenset({"key", "session", "private", "auth", "pass", "signature", "sig", "bearer"})
"""Words that are too common in prose to name a secret before a colon."""

_CAMEL: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9]+")


@lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    """Returns whether the value of a key counts as a secret. Ignores case and separators of the key."""
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


def names_one_secret(key: str) -> bool:
    """Returns whether a key ends in a word for a secret, so that its value is one: `DB_PASSWORD`, not `AUTH_TYPE`."""
    words = _CAMEL.findall(key[-_MAX_KEY:])
    joined = "".join(words).lower()
    return joined.endswith(_ENDINGS) or (bool(words) and words[-1].lower() in _PASSWORDS)


_PASSWORDS: Final = frozenset({"passcode", "pass", "pwd", "pw", "pin", "dsn", "cvv", "otp", "jwt", "authorization"})

_ANYTHING: Final = re.compile(r"[:=%<]|--|[Bb][AEae][ASas]")
"""A text without a match has none for the patterns below either."""
_USERINFO: Final = re.compile(r"(://)[^\s/?#\"'<>\\]*@|(%3A%2F%2F)[^\s/?#&\"'<>]{1,256}?(?=%40)", re.IGNORECASE)
_DIALLED: Final = re.compile(r":[^\s:/@]{1,256}@(?=(?:tcp|unix)\()")
"""The password of a data source name such as `me:password@tcp(host:3306)/name`."""
_SCHEME: Final = re.compile(r"\b(bearer|basic)((?:\s|%20|\+){1,4})([A-Za-z0-9._~+/=\-]+)", re.IGNORECASE)
_PLAIN_WORD: Final = re.compile(r"[A-Z]?[a-z]{1,15}[.]*|[a-z_]{1,20}=")
_MARK: Final = re.compile(r"[=:]|%3[ADad]|--(?<![\w.\-\[\]]--)(?=\w)")
_KEY_REVERSED: Final = re.compile(r"\s{0,3}([\"']?\\*)([\w.\-\[\]]+)")
"""Matches the reversed text before a mark, as a search from the front would read every word of the text."""
_OPTION: Final = re.compile(r"(--[\w.\-\[\]]++)\s{1,3}(?=\S)")
_GAP: Final = re.compile(r"\s{0,3}")
_VALUE: Final = re.compile(
    r"\\{0,8}\"[^\"]*+\"?|\\{0,8}'[^']*+'?|(?![{\[]+(?:[\s\"'\\]|\Z))(?:(?!%26)[^\s&\"'<>,;)\]}])++", re.IGNORECASE
)
_LINE: Final = re.compile(r"[^\r\n\"]*+")
_WHOLE_LINE: Final = ("authorization", "cookie")
_BLOCK: Final = re.compile(r"[ \t]*([|>][-+0-9]{0,2}[ \t]*(?:#[^\r\n]*+)?)?\r?\n")
"""Matches the text between a YAML key and the lines of its value."""


def hide_likely_secrets(text: str) -> str:
    """Returns `text` with `***` in place of likely secrets, by their form or their place.

    It takes time linear in the length, and little time for a text without any.
    """
    text = _hide_formats(text)
    if _ANYTHING.search(text) is None:
        return text
    if ("@" in text and "://" in text) or "%40" in text:
        text = _USERINFO.sub(lambda match: f"{match[1] or match[2]}{MASK}{'@' if match[1] else ''}", text)
    if "@tcp(" in text or "@unix(" in text:
        text = _DIALLED.sub(f":{MASK}@", text)
    lower = text.casefold()
    if "bearer" in lower or "basic" in lower:
        credentials = _SCHEME.fullmatch(text.strip())
        text = f"{credentials[1]} {MASK}" if credentials else _SCHEME.sub(_credentials, text)
    if "<" in text:
        text = _hide_in_xml(text)
    if "=" in text or ":" in text or "%3" in text or "--" in text:
        text = _hide_assigned(text)
    return text


def likely_secrets(text: str) -> list[tuple[int, int]]:
    """Returns the spans of a text that `hide_likely_secrets` hides."""
    return masked_spans(text, hide_likely_secrets(text))


def masked_spans(text: str, redacted: str) -> list[tuple[int, int]]:
    """Returns the spans of a text for which its redacted form has `***`."""
    first, *others = redacted.split(MASK)
    if not others or not text.startswith(first):
        return [(0, len(text))] if others else []
    spans, start = [], len(first)
    for number, part in enumerate(others, 1):
        end = text.find(part, start) if number < len(others) else len(text) - len(part)
        if end > start:
            spans.append((start, end))
        start = max(start, end) + len(part)
    return spans


def _credentials(match: re.Match[str]) -> str:
    # "Basic authentication failed" is prose, `Bearer realm="..."` is a challenge.
    return match[0] if _PLAIN_WORD.fullmatch(match[3]) else match[1] + match[2] + MASK


def _hide_assigned(text: str) -> str:
    """Hides the values of `token=...`, `"apiKey": "..."`, `X-Api-Key: ...`, `--password ...` and `password: |`."""
    parts: list[str] = []
    hidden_end = 0
    for mark in _MARK.finditer(text):
        start = mark.start()
        if start < hidden_end or text.startswith("://", start):
            continue
        begin, end = _after_option(text, mark) if mark[0] == "--" else _after_key(text, mark, hidden_end)
        if begin < end:
            parts += text[hidden_end:begin], MASK
            hidden_end = end
    return "".join((*parts, text[hidden_end:])) if parts else text


def _after_option(text: str, mark: re.Match[str]) -> tuple[int, int]:
    """Returns the span of the value of a command-line option if it is secret, else an empty one."""
    option = _OPTION.match(text, mark.start())
    return _value(text, option.end(), _VALUE) if option is not None and is_secret_key(option[1]) else (0, 0)


def _after_key(text: str, mark: re.Match[str], hidden_end: int) -> tuple[int, int]:
    """Returns the span of the value that is assigned to a secret key, else an empty one."""
    start, colon = mark.start(), mark[0] == ":"
    before = _KEY_REVERSED.match(text[max(hidden_end, start - _MAX_KEY - 8) : start][::-1])
    if before is None:
        return 0, 0
    key, quoted = before[2][::-1], before[1] != ""
    if not is_secret_key(key) or (colon and not quoted and key.lower() in _GENERIC):
        return 0, 0
    if colon and (block := _BLOCK.match(text, start + 1)) is not None:
        lines = _indented_lines(text, start - before.end(), block)
        if lines is not None:
            return lines
    whole_line = colon and not quoted and key.lower().endswith(_WHOLE_LINE)
    return _value(text, _GAP.match(text, mark.end()).end(), _LINE if whole_line else _VALUE)  # type: ignore[union-attr]


def _value(text: str, start: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    match = pattern.match(text, start)
    return (start, match.end()) if match is not None else (0, 0)


def _indented_lines(text: str, key: int, block: re.Match[str]) -> tuple[int, int] | None:
    """Returns the span of the lines that are indented more than their YAML key; None if there are none.

    Without `|` or `>` the key must begin its line, because sentences may end in a colon too.
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


_MAX_XML_CONTENT: Final = 4096
"""Characters of an XML element that are searched for its end."""
_XML_TAG: Final = re.compile(r"<([A-Za-z_][\w:.\-]{0,127})((?:\s[^<>]{0,1024})?)>")
_XML_NAME: Final = re.compile(r"\b(?:name|key|id)\s{0,3}=\s{0,3}\\?[\"']([\w.:\- ]{1,128})\\?[\"']", re.IGNORECASE)
_XML_VALUE: Final = re.compile(r"(\bvalue\s{0,3}=\s{0,3})(\"[^\"]*+\"|'[^']*+'|\\\"[^\"]*+\")", re.IGNORECASE)
_XML_CUT_OFF: Final = re.compile(r"[^\s<]+\Z")
"""The content of an element whose end was cut off."""


def _hide_in_xml(text: str) -> str:
    """Hides the content of XML elements with a secret name, and the `value` beside a secret `name` or `key`."""
    parts: list[str] = []
    hidden_end = 0
    for tag in _XML_TAG.finditer(text):
        if tag.start() < hidden_end:
            continue
        attributes = tag[2]
        if attributes and (named := _XML_NAME.search(attributes)) is not None and is_secret_key(named[1]):
            parts += text[hidden_end : tag.start(2)], _XML_VALUE.sub(rf"\g<1>{MASK}", attributes)
            hidden_end = tag.end(2)
        if not attributes.endswith("/") and is_secret_key(tag[1]):
            end = _end_of_element(text, tag)
            if end > tag.end():
                parts += text[hidden_end : tag.end()], MASK
                hidden_end = end
    return "".join((*parts, text[hidden_end:])) if parts else text


def _end_of_element(text: str, tag: re.Match[str]) -> int:
    """Returns the end of an element's content; its beginning if the tag is only a word in angle brackets."""
    begin = tag.end()
    for closing in (f"</{tag[1]}", f"<\\/{tag[1]}"):
        end = text.find(closing, begin, begin + _MAX_XML_CONTENT)
        if end >= 0:
            return end
    cut = _XML_CUT_OFF.match(text, begin)
    return cut.end() if cut is not None else begin
