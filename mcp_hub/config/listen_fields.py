"""`listen` read from a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mcp_hub.config.canonical import only_known
from mcp_hub.config.fields import Fields, Given
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.listen import CallerLimits, Listen, NamedPrincipal, Tls, Verify
from mcp_hub.config.quantities import parse_size
from mcp_hub.config.rule_fields import read_model
from mcp_hub.config.secret_str import SecretStr

_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")


def read_listen(fields: Fields, findings: Findings) -> Listen | None:
    """The network side; None where the file does not say or what it says does not fit."""
    given = fields.given.get("listen")
    if given is None or given.value is None:
        return None
    value = given.value
    if isinstance(value, str):
        # `HOST:PORT`, as mcpproxy and many others have it.
        host, _, port = value.rpartition(":")
        value = {"port": port} | ({"host": host.strip("[]")} if host else {})
    if not isinstance(value, dict):
        fields.error(given.at, "must be a mapping with " + ", ".join(Listen.model_fields))
        return None
    known = only_known(value, Listen.model_fields, given.at, findings)
    inner = fields.inner({name: Given(item, (*given.at, name)) for name, item in known.items()})
    token = inner.text("token")
    if token is not None and not token.strip():
        fields.error((*given.at, "token"), "must not be empty")
    values: dict[str, Any] = {
        "host": inner.text("host"),
        "port": inner.parsed("port", _port),
        "token": None if token is None else SecretStr(token.strip()),
        "principals": _principals(inner, findings),
        "public_host": inner.parsed("public_host", _public_hosts),
        "allowed_hosts": inner.texts("allowed_hosts"),
        "allowed_origins": inner.texts("allowed_origins"),
        "trusted_proxies": inner.texts("trusted_proxies"),
        "max_body": inner.parsed("max_body", parse_size),
    }
    for name, model in (("verify", Verify), ("limits", CallerLimits)):
        if known.get(name) is not None:
            values[name] = read_model(model, known[name], (*given.at, name), findings)
    if known.get("tls") is not None:
        values["tls"] = _tls(inner, known["tls"], (*given.at, "tls"), findings)
    values = {name: item for name, item in values.items() if item is not None}
    return read_model(Listen, values, given.at, findings)


def _principals(fields: Fields, findings: Findings) -> dict[str, NamedPrincipal]:
    found = {}
    for name, given in (fields.mapping("principals") or {}).items():
        value = {"token": given.value} if isinstance(given.value, str) else given.value
        if isinstance(value, dict) and isinstance(value.get("token"), str):
            value = {**value, "token": value["token"].strip()}
        one = read_model(NamedPrincipal, value, given.at, findings)
        if one is not None:
            found[name] = one
    return found


def _tls(fields: Fields, value: Any, at: KeyPath, findings: Findings) -> Tls | None:
    if isinstance(value, Mapping):
        value = {key: fields.scope.path(item) if isinstance(item, str) else item for key, item in value.items()}
    return read_model(Tls, value, at, findings)


def check_profiles(listen: Listen, profiles: Mapping[str, Any], findings: Findings) -> None:
    """Every profile that is named must be there."""
    for key, profile in listen.profiles.items():
        if profile not in profiles:
            there = ", ".join(profiles) or "none"
            findings.error(("listen", *key), f"there is no profile {profile!r} in this file (there is: {there})")
    if listen.verify is not None and listen.verify.profile_claim is not None and not profiles:
        findings.error(("listen", "verify", "profile_claim"), "there are no 'profiles' in this file that it could name")


def _public_hosts(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    return tuple(public_host(name) for name in names)


def public_host(value: Any) -> str:
    """The name in a `public_host`. Raises ValueError for anything but a host and perhaps a port."""
    if not isinstance(value, str) or not _HOST_AND_PORT.fullmatch(value):
        raise ValueError("must be the name a proxy makes it known by, as `hub.example` or `hub.example:8443`, no URL")
    return value.lower()


def _port(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise ValueError("must be a port, a whole number from 0 to 65535")
    return value
