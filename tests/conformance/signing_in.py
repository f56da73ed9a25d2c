"""What the suite's scenarios of authorization want of a user: to sign in, and again where the hub says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.oauth.signing import command, login

Json = dict[str, Any]

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The client-id metadata document the suite expects of a client that has one."""
ROUNDS: Final = 3
"""How often a user is patient; a scenario counts those who never give up."""

_CHANGING: Final = frozenset({"auth/authorization-server-migration"})


def is_wanted(scenario: str) -> bool:
    """Whether this scenario is one of authorization."""
    return scenario.startswith("auth/")


def auth(context: Json) -> Json:
    """The key `auth` of the entry."""
    if "private_key_pem" in context:
        return {
            "grant": "client_credentials",
            "client_id": context["client_id"],
            "private_key": context["private_key_pem"],
            "signing_algorithm": context["signing_algorithm"],
        }
    if "client_secret" not in context:
        return {"client_metadata_url": DOCUMENT}
    grant = "authorization_code" if "issuer" in context else "client_credentials"
    credentials = {name: context[name] for name in ("client_id", "client_secret", "issuer") if name in context}
    return {"grant": grant, **credentials}


def asks_for_login(message: Json) -> bool:
    """Whether a call ended with the advice to sign in."""
    return "mcp-hub login" in json.dumps(message.get("result", {}).get("content", []))


async def sign_in(config: Path, scenario: str) -> None:
    """As a user does: sign in, and where the server changes its mind at once, look and sign in again."""
    await login(config, "suite")
    if scenario in _CHANGING:
        outcome = await command("check", "--json", "--config", str(config))
        if "mcp-hub login" in outcome.out:
            await login(config, "suite")
