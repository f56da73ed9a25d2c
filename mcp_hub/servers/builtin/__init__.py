"""The settings that the hub passes to a built-in upstream in its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import msgspec

from mcp_hub.config.native_tools import NativeToolDefinition
from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.proxies import ProxyRules
from mcp_hub.security.url_rules import UrlRules

VARIABLE: Final = "MCP_HUB_BUILTIN"
"""The environment variable that holds the settings as JSON."""
NATIVE: Final = "MCP_HUB_NATIVE_"
"""Prefix of the variables that hold the native tools as ASCII JSON, in pieces numbered from 0."""
PIECE: Final = 30_000
"""Characters of one piece. Windows allows 32,767, Linux 131,071."""


@dataclass(frozen=True)
class Settings:
    """The rules of the guard, the settings of `web`, and those of the entry itself for `browser` and the file tools."""

    url_rules: UrlRules = field(default_factory=UrlRules)
    address_rules: AddressRules = field(default_factory=AddressRules)
    proxies: ProxyRules = field(default_factory=ProxyRules)
    """The proxies by which pages are reached."""
    max_bytes: int = 32 * 1024 * 1024
    """Most bytes of one page, after decompression."""
    timeout: float = 60.0
    """Seconds for fetching and converting one page."""
    max_memory: int = 2 * 1024**3
    """Most bytes of memory that one conversion to Markdown may take."""
    docintel_endpoint: str | None = None
    """Endpoint of Azure Document Intelligence for MarkItDown. With None, MarkItDown gets no such argument."""
    javascript: bool = True
    """Whether a page without content but with scripts is opened in a browser."""
    profile: str | None = None
    """Directory in which the browser keeps cookies and logins. With None, they end with the browser."""
    headless: bool = True
    executable: str | None = None
    """The Chromium to start. With None, one is looked for."""
    policy: str | None = None
    """The policy for raw text I/O that the entry sets, or None."""
    roots: tuple[tuple[str, str, str], ...] = ()
    """(virtual path, directory, mode) of each root of the file tools."""

    def to_json(self) -> dict[str, Any]:
        """Returns an object from which `from_json` makes the same settings."""
        data = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        rules = {"url_rules": self.url_rules.to_json(), "address_rules": self.address_rules.to_json()}
        return {**data, **rules, "proxies": msgspec.to_builtins(self.proxies)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Reads the settings from an object; missing keys have their defaults. Raises TypeError for an unknown key."""
        values = dict(data)
        if "url_rules" in values:
            values["url_rules"] = UrlRules.from_json(values["url_rules"])
        if "address_rules" in values:
            values["address_rules"] = AddressRules.from_json(values["address_rules"])
        if "proxies" in values:
            values["proxies"] = msgspec.convert(values["proxies"], ProxyRules)
        if "roots" in values:
            values["roots"] = tuple((str(at), str(directory), str(mode)) for at, directory, mode in values["roots"])
        return cls(**values)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Reads the settings in `VARIABLE`; all have their defaults if it is not set.

        Raises ValueError if it is malformed.
        """
        try:
            return cls.from_json(json.loads(environ.get(VARIABLE) or "{}"))
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise ValueError(f"{VARIABLE} must be the JSON of these settings: {error}") from None


def native_to_environ(tools: str, proxies: ProxyRules) -> dict[str, str]:
    """Splits the ASCII JSON of native tools into environment variables, beside their settings."""
    pieces = [tools[start : start + PIECE] for start in range(0, len(tools), PIECE)]
    settings = json.dumps(Settings(proxies=proxies).to_json())
    return {VARIABLE: settings, **{f"{NATIVE}{number}": piece for number, piece in enumerate(pieces)}}


def native_from_environ(environ: Mapping[str, str]) -> list[NativeToolDefinition]:
    """Reads the native tools from those variables. Raises ValueError if they are malformed."""
    pieces: list[str] = []
    while (piece := environ.get(f"{NATIVE}{len(pieces)}")) is not None:
        pieces.append(piece)
    try:
        return [NativeToolDefinition.from_json(item) for item in json.loads("".join(pieces) or "[]")]
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{NATIVE}0 and so on must be the JSON of native tools: {type(error).__name__}") from None
