"""Which URLs tools must not be used for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from mcp_hub.urls import Url, parse, urls_in

HUGGINGFACE: Final = "huggingface"
"""The name of the rule about datasets and spaces."""
UNREADABLE: Final = "too many URLs to check"
MESSAGE: Final = (
    "You are trying to scrape a Hugging Face dataset for answers, please do not use the scrape tool for this purpose."
)
MAX_MEMBERS: Final = 200_000
"""Members of a value that are looked at."""

_HUBS: Final = frozenset({"huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co", "hf-mirror.com"})
_ONLY_DATA: Final = frozenset({"datasets-server.huggingface.co", "hf.space"})
_BEFORE: Final = frozenset({"api", "resolve-cache"})
"""Segments before the one that says what is asked for."""


@dataclass(frozen=True)
class UrlRules:
    """`deny` and `allow` have `host`, `host/path`, `*.host/path*`; a URL that `allow` covers is never refused."""

    huggingface: bool = True
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    message: str = MESSAGE

    def __bool__(self) -> bool:
        return self.huggingface or bool(self.deny)

    def refuses(self, text: str) -> str | None:
        """The rule that refuses a URL in `text`: `huggingface`, or the pattern of `deny`; None if all may be used."""
        if not self:
            return None
        try:
            return next(filter(None, map(self._refuses, urls_in(text))), None)
        except ValueError:
            return UNREADABLE

    def _refuses(self, url: Url) -> str | None:
        if any(pattern.covers(url) for pattern in self._allowed):
            return None
        if self.huggingface and _is_dataset_or_space(url):
            return HUGGINGFACE
        return next((pattern.written for pattern in self._denied if pattern.covers(url)), None)

    @cached_property
    def _denied(self) -> tuple[_Pattern, ...]:
        return tuple(_Pattern.read(text, fold=True) for text in self.deny)

    @cached_property
    def _allowed(self) -> tuple[_Pattern, ...]:
        return tuple(_Pattern.read(text, fold=False) for text in self.allow)

    def to_json(self) -> dict[str, Any]:
        """An object that `from_json` makes the same rules of."""
        return {
            "huggingface": self.huggingface,
            "deny": list(self.deny),
            "allow": list(self.allow),
            "message": self.message,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UrlRules:
        """The rules in such an object."""
        return cls(
            bool(data.get("huggingface", True)),
            tuple(data.get("deny", ())),
            tuple(data.get("allow", ())),
            str(data.get("message", MESSAGE)),
        )


def _is_dataset_or_space(url: Url) -> bool:
    if url.host in _ONLY_DATA or url.host.endswith(".hf.space"):
        return True
    if url.host not in _HUBS:
        return False
    for part in url.path.casefold().split("/")[1:]:
        if part not in _BEFORE:
            return part in ("datasets", "spaces")
    return False


@dataclass(frozen=True)
class _Pattern:
    """One pattern, read once. `fold`: the case of a path does not count."""

    written: str
    host: str
    port: int | None
    path: str
    fold: bool

    @classmethod
    def read(cls, text: str, *, fold: bool) -> _Pattern:
        plain = text.strip()
        _, _, plain = plain.rpartition("://") if "://" in plain else ("", "", plain)
        authority, slash, rest = plain.partition("/")
        whole = parse(f"http://{authority.replace('*', 'x-any-x')}/")
        host = whole.host.replace("x-any-x", "*") if whole is not None else authority.lower()
        path = f"{slash}{rest}"
        if "*" not in path and (read := parse(f"http://x{path}")) is not None:
            path = "" if read.path == "/" else read.path
        return cls(text, host, whole.port if whole is not None else None, path.casefold() if fold else path, fold)

    def covers(self, url: Url) -> bool:
        if not fnmatchcase(url.host, self.host) or (self.port is not None and self.port != url.port):
            return False
        path = url.path.casefold() if self.fold else url.path
        if "*" in self.path:
            return fnmatchcase(path, self.path)
        return not self.path or path == self.path or path.startswith(self.path + "/")


def strings_in(value: Any) -> Iterator[str]:
    """Every text at any depth of a JSON value, keys too. Raises ValueError for one of too many members."""
    waiting = [value]
    for _ in range(MAX_MEMBERS):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    if waiting:
        raise ValueError("the value has too many members")
