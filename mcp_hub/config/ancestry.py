"""Which hubs a hub runs behind and which run behind it: no hub serves itself, and a row of hubs has an end.

There are two ways to another hub, and each has a mark. A hub that is started by another inherits `VARIABLE`, with a
digest of the configuration of every hub above it. A hub that is connected to tells other hubs, in the `_meta` of its
handshake and of its lists, which hubs its lists come from (`Behind`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from mcp_hub.errors import INVALID_REQUEST, LeftOut, ProtocolError, UpstreamAnswered
from mcp_hub.text import printable

NAME: Final = "mcp-hub"
"""How a hub names itself to its servers and its clients."""
VARIABLE: Final = "MCP_HUB_ABOVE"
"""`SALT:DIGEST,DIGEST`, outermost hub first, in the environment of every child of a hub."""
HUB_KEY: Final = "mcp-hub/hub"
"""Member of the `_meta` of what a hub answers to another hub, and of the data of the error by which it refuses to."""
ITSELF: Final = "is this hub itself; it is left out"
MAX_HUB_DEPTH: Final = 4
"""Hubs in a row, the first and the last included. More than two are rare; a loop has no end."""
MAX_HUBS: Final = 256
"""Hubs behind one hub. A hub that tells of more is left out, as its own id may be among those it did not tell."""
MAX_NOTES: Final = 8
MAX_NOTE: Final = 300
"""Characters."""

_ABOVE: Final = re.compile(r"([0-9a-f]{32}):([0-9a-f]{16}(?:,[0-9a-f]{16}){0,63})")
_ID: Final = re.compile(r"[0-9a-f]{32}")


class Behind(msgspec.Struct, frozen=True):
    """What a hub tells of itself to another hub; of any other server nothing is known."""

    hubs: tuple[str, ...] = ()
    """Its id, then those of all hubs that its lists come from."""
    depth: int = 0
    """How many hubs stand in a row, itself included."""
    notes: tuple[str, ...] = ()
    """What it and the hubs behind it have left out to keep the row within its bounds, a text each."""

    @classmethod
    def read(cls, answer: Any) -> Self:
        """What the answer to a handshake or a list says. Whatever is not as a hub writes it is ignored."""
        meta = answer.get("_meta") if isinstance(answer, dict) else None
        said = meta.get(HUB_KEY) if isinstance(meta, dict) else None
        hubs = said.get("hubs") if isinstance(said, dict) else None
        if not isinstance(said, dict) or not isinstance(hubs, list):
            return cls()
        known = tuple(id for id in hubs[: MAX_HUBS + 1] if isinstance(id, str) and _ID.fullmatch(id))
        depth, notes = said.get("depth"), said.get("leftOut")
        texts = [text for text in notes if isinstance(text, str)] if isinstance(notes, list) else []
        return cls(
            known,
            depth if isinstance(depth, int) and depth > 0 else 1,
            tuple(printable(text, MAX_NOTE) for text in texts[:MAX_NOTES]),
        )


class Ancestry(msgspec.Struct, frozen=True):
    """The place of one hub in a row of hubs."""

    above: tuple[str, ...]
    """Digests of the configurations of the hubs above it, outermost first."""
    own: str
    """That of its own configuration."""
    salt: str
    """The key of the digests: they say nothing to whoever does not know the paths anyway."""
    limit: int
    """Hubs that may stand in a row."""
    identity: Callable[[], str]
    """Its id. Two hubs of one user and one machine with the same configuration have the same."""

    @classmethod
    def of(cls, path: Path | None, environ: Mapping[str, str], limit: int, key: Callable[[], bytes | None]) -> Self:
        """That of a hub with the configuration at `path`, None for one made in code, started with `environ`.

        `key()` is a secret of the user's; None where none can be kept. It is asked for when another hub is met.
        """
        written = _ABOVE.fullmatch(environ.get(VARIABLE, ""))
        salt = written[1] if written is not None else secrets.token_hex(16)
        above = tuple(written[2].split(",")) if written is not None else ()
        known: list[str] = []

        def identity() -> str:
            if not known:
                secret = key() if path is not None else None
                known.append(secrets.token_hex(16) if path is None or secret is None else _digest(secret, path))
            return known[0]

        own = secrets.token_hex(8) if path is None else _digest(bytes.fromhex(salt), path)[:16]
        return cls(above, own, salt, limit, identity)

    @property
    def for_children(self) -> str:
        """The value of `VARIABLE` in the environment of its children."""
        return f"{self.salt}:{','.join([*self.above, self.own][-64:])}"

    @property
    def too_deep(self) -> bool:
        """Whether there are too many hubs above it."""
        return len(self.above) >= self.limit

    @property
    def repeated(self) -> bool:
        """Whether a hub above it serves the same configuration."""
        return self.own in self.above

    def refusal(self, client_info: Any) -> ProtocolError | None:
        """Why a client that connects to it by its standard streams is not served; None if it is.

        Behind a hub with the same configuration it is a loop only if its client is a hub. Any other client was itself
        started by a tool of that hub, an agent in a shell for example, and wants to be served; such rows are bounded
        by their depth.
        """
        if self.too_deep:
            place = {"code": "too_deep", "hubs": len(self.above) + 1, "limit": self.limit}
            return ProtocolError(INVALID_REQUEST, f"This hub {_too_deep(place)}.", {HUB_KEY: place})
        if self.repeated and is_hub(client_info):
            between = self.above[::-1].index(self.own)
            text = "This hub runs behind a hub with the same configuration."
            return ProtocolError(INVALID_REQUEST, text, {HUB_KEY: {"code": "itself", "between": between}})
        return None

    def admit(self, behind: Behind) -> None:
        """Raises LeftOut for a server that is this hub itself, leads back to it, or makes the row too long."""
        if not behind.hubs:
            return
        if behind.hubs[0] == self.identity():
            raise LeftOut(ITSELF)
        if self.identity() in behind.hubs:
            raise LeftOut("is this hub itself, by way of another hub; it is left out")
        if len(behind.hubs) > MAX_HUBS:
            raise LeftOut(f"has more than {MAX_HUBS} hubs behind it; it is left out")
        if (hubs := len(self.above) + 1 + behind.depth) > self.limit:
            raise LeftOut(f"would make {hubs} hubs in a row, more than max_hub_depth: {self.limit}; it is left out")

    def told(self, behind: Iterable[Behind], notes: Iterable[str]) -> dict[str, Any]:
        """What other hubs are told of it. `behind` are those of the servers that its lists come from."""
        shown = list(behind)
        hubs = dict.fromkeys([self.identity(), *(id for one in shown for id in one.hubs)])
        said: dict[str, Any] = {
            "hubs": list(hubs)[: MAX_HUBS + 1],
            "depth": 1 + max((one.depth for one in shown), default=0),
        }
        if texts := [text[:MAX_NOTE] for text in notes][:MAX_NOTES]:
            said["leftOut"] = texts
        return said


def is_hub(client_info: Any) -> bool:
    """Whether a client is a hub, also one that a proxy has put its own name behind (`mcp-hub (via mcp-remote)`)."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    return isinstance(name, str) and name.partition(" ")[0] == NAME


def refused_by(error: UpstreamAnswered) -> LeftOut | None:
    """Why a hub that was connected to must not be served, if that is what its answer says."""
    said = error.data.get(HUB_KEY) if isinstance(error.data, dict) else None
    if not isinstance(said, dict):
        return None
    if said.get("code") == "itself":
        between = said.get("between")
        return LeftOut("leads back to a hub that this one runs behind; it is left out" if between else ITSELF)
    return LeftOut(f"{_too_deep(said)}; it is left out")


def _too_deep(place: Mapping[str, Any]) -> str:
    hubs, limit = (printable(str(place.get(key)), 20) for key in ("hubs", "limit"))
    return f"would be number {hubs} in a row of hubs, and the max_hub_depth of its configuration is {limit}"


def _digest(key: bytes, path: Path) -> str:
    # Containers may share their users' files and paths, and are told apart by their names.
    node = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    said = os.fsencode(f"{node}\0{path.resolve()}")
    return hmac.new(key, said, hashlib.sha256).hexdigest()[:32]
