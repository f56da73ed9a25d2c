"""URL rules: decide which URLs tools may be used for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from mcp_hub.security.urls import QUICK_WORK, Url, WorkBudget, parse, trimmed, urls_in

HUGGINGFACE: Final = "huggingface"
"""The name of the rule against datasets and spaces of Hugging Face."""
UNREADABLE: Final = "too many URLs to check"
HUGGINGFACE_MESSAGE: Final = (
    "You are trying to scrape a Hugging Face dataset for answers, please do not use the scrape tool for this purpose."
)
MAX_READ_URI: Final = 16_384
"""Characters of a resource's URI or of a link in a result; a longer one is refused."""

_HUBS: Final = ("huggingface.co", "hf.co", "hf-mirror.com")
"""These and their subdomains: `cdn-lfs.huggingface.co/datasets` has the files of datasets."""
_ONLY_DATA: Final = ("datasets-server.huggingface.co", "datasets.huggingface.co", "hf.space")
_SEGMENTS: Final = ("datasets", "spaces")
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_BEFORE: Final = frozenset({"api", "resolve-cache"})
"""Path segments that may stand before `datasets` or `spaces`."""


_HARMLESS: Final = frozenset({"http", "https"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PORT: Final = re.compile(r"[^:]*:[0-9]{1,5}(?=[/\\?#]|$)")
_PAGE: Final = re.compile(
    r"(view-source|javascript|vbscript|blob|filesystem)(?=:\S)|(file)(?=:[/\\])|(about)(?=:[A-Za-z])"
    r"|(chrome[a-z-]*|devtools|edge|brave|opera|vivaldi|ftp|resource|jar|moz-extension|intent|content|googlechromes?)"
    r"(?=:/)|(data)(?=:(?!(?:audio|font|video|image/(?:avif|bmp|gif|jpeg|jpg|png|webp))[/;,])[^,\s]*,)",
    re.IGNORECASE,
)
"""Matches URLs that open something else than a web page in a browser, such as `file:///`; not `data:` images."""
_BLANK: Final = re.compile(r"about:blank(?:[?#]|$)", re.IGNORECASE)


class UrlRules(msgspec.Struct, frozen=True, dict=True):
    """Refuses URLs by patterns: `host`, `host/path`, `*.host/path*`. A URL that matches `allow` is never refused.

    `allow` may also contain schemes, such as `file:`.
    """

    huggingface: bool = True
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    message: str = HUGGINGFACE_MESSAGE

    def __bool__(self) -> bool:
        return self.huggingface or bool(self.deny)

    def refuses(self, text: str, work: WorkBudget | None = None) -> str | None:
        """Returns the rule that refuses a URL in `text`: `huggingface` or a pattern of `deny`; None if none does.

        Returns `UNREADABLE` if `work`, which several texts may share, does not suffice.
        """
        if not self:
            return None
        try:
            return next(filter(None, map(self._refuses, urls_in(text, work or WorkBudget()))), None)
        except ValueError:
            return UNREADABLE

    def refusal(self, text: str) -> str | None:
        """Returns what a caller is told who may not use a URL in `text`; None if none is refused."""
        rule = self.refuses(text)
        return None if rule is None else self.text_of(rule)

    def text_of(self, rule: str) -> str:
        """Returns what a caller is told whose URL a rule refuses: `message`, if that is not about another rule."""
        is_ours = rule == HUGGINGFACE or self.message != HUGGINGFACE_MESSAGE
        return self.message if is_ours else f"The person who runs this hub does not allow the URL (guard: {rule})."

    def refuses_uri(self, uri: str, work: WorkBudget | None = None) -> str | None:
        """Returns the rule that refuses a resource's URI or a link, `UNREADABLE` for one that takes long to read.

        `work` is the budget of all links of one result.
        """
        if len(uri) > MAX_READ_URI:
            return UNREADABLE
        part = WorkBudget(QUICK_WORK) if work is None else work.part()
        refusal = self.refuses(uri, part)
        if work is not None:
            work.settle(part)
        return refusal

    def refused_scheme(self, text: str, *, for_url: bool) -> str | None:
        """Returns the scheme of a text that is a URL of something else than a web page, None for any other text.

        With `for_url`, every scheme but http and https is refused.
        """
        if not self:
            return None
        text = trimmed(text)
        page_match = _PAGE.match(text)
        match = page_match or (_SCHEME.match(text) if for_url else None)
        if match is None or _BLANK.match(text) or (page_match is None and _PORT.match(text)):
            return None
        scheme = next(filter(None, match.groups())).lower()
        return None if scheme in _HARMLESS or scheme in self._allowed_schemes else scheme

    @cached_property
    def _allowed_schemes(self) -> frozenset[str]:
        """The schemes that `allow` contains as `scheme:`."""
        return frozenset(entry[:-1].lower() for entry in self.allow if _SCHEME.fullmatch(entry))

    def _refuses(self, url: Url) -> str | None:
        if any(pattern.covers(url) for pattern in self._allowed):
            return None
        if self.huggingface and _is_dataset_or_space(url):
            return HUGGINGFACE
        return next((pattern.text for pattern in self._denied if pattern.covers(url)), None)

    @cached_property
    def _denied(self) -> tuple[_Pattern, ...]:
        return tuple(_Pattern.read(text, fold=True) for text in self.deny)

    @cached_property
    def _allowed(self) -> tuple[_Pattern, ...]:
        return tuple(_Pattern.read(text, fold=False) for text in self.allow if not _SCHEME.fullmatch(text))

    def to_json(self) -> dict[str, Any]:
        """Returns the rules as a JSON object for `from_json`."""
        return {
            "huggingface": self.huggingface,
            "deny": list(self.deny),
            "allow": list(self.allow),
            "message": self.message,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UrlRules:
        """Makes rules from the JSON object of `to_json`."""
        return cls(
            bool(data.get("huggingface", True)),
            tuple(data.get("deny", ())),
            tuple(data.get("allow", ())),
            str(data.get("message", HUGGINGFACE_MESSAGE)),
        )


def _is_dataset_or_space(url: Url) -> bool:
    if url.scheme == "hf":  # `hf://datasets/owner/name`, as libraries write it
        return url.host in _SEGMENTS
    if _is_below(url.host, _ONLY_DATA):
        return True
    if not _is_below(url.host, _HUBS):
        return False
    for part in url.path.casefold().split("/")[1:]:
        if part not in _BEFORE:
            return part in _SEGMENTS
    return False


def _is_below(host: str, domains: tuple[str, ...]) -> bool:
    return any(host == domain or host.endswith("." + domain) for domain in domains)


class _Pattern(msgspec.Struct, frozen=True):
    """One parsed pattern. With `fold`, the case of paths is ignored, and a URL matches if its port is not certain."""

    text: str
    host: str
    port: int | None
    path: str
    query: frozenset[str]
    """Parameters that the query of a URL must contain."""
    fold: bool

    @classmethod
    def read(cls, text: str, *, fold: bool) -> _Pattern:
        """Parses a pattern, and normalises its parts like those of URLs."""
        scheme, separator, without_scheme = text.strip().partition("://")
        if not separator or not scheme.isalnum():
            without_scheme = text.strip()
        end = min((at for at in map(without_scheme.find, "/?#") if at >= 0), default=len(without_scheme))
        authority, tail = without_scheme[:end], without_scheme[end:]
        origin = parse(f"http://{authority.replace('*', 'x-any-x')}/")
        host = origin.host.replace("x-any-x", "*") if origin is not None else authority.lower()
        target = parse(f"http://x{tail}")
        path = "" if target is None or target.path == "/" else target.path
        return cls(
            text,
            _glob(host),
            origin.port if origin is not None else None,
            _glob(path.casefold() if fold else path),
            _parameters(target.query) if target is not None else frozenset(),
            fold,
        )

    def covers(self, url: Url) -> bool:
        """Returns whether the pattern matches a URL."""
        if not fnmatchcase(url.host, self.host) or not self._covers_port(url):
            return False
        if self.query and not self.query <= _parameters(url.query):
            return False
        path = url.path.casefold() if self.fold else url.path
        if not self.path or fnmatchcase(path, self.path):
            return True
        return "*" not in self.path and fnmatchcase(path, self.path + "/*")

    def _covers_port(self, url: Url) -> bool:
        if self.port is None or url.port is not None:
            return self.port in (None, url.port)
        if url.scheme:
            return self.port == _PORTS.get(url.scheme)
        return self.fold and self.port in _PORTS.values()  # the client chooses the scheme, and so the port


def _glob(text: str) -> str:
    """Escapes all wildcards of fnmatch but `*`."""
    return text.replace("[", "[[]").replace("?", "[?]")


def _parameters(query: str) -> frozenset[str]:
    return frozenset(unquote(pair) for pair in query.split("&") if pair)
