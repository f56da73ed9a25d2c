"""Members of a request that the hub decides by, in other spellings; pure.

Some servers read the names of members without their case and take the last of two. Of `{"name": "a", "Name": "b"}` the
hub would check `a` and such a server carry out `b`; so a request that has a second spelling of what is read is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.protocol import era as eras
from mcp_hub.text import printable

_PARAMS: Final = (
    *("_meta", "argument", "arguments", "cursor", "inputResponses", "level", "name"),
    *("ref", "requestState", "taskId", "uri"),
)
_REFERENCE: Final = ("name", "type", "uri")


def folded(name: str) -> str:
    """Equal for names that differ by case or compatibility form only."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFKC", name).casefold()


def _table(names: Iterable[str]) -> Mapping[str, str]:
    return {folded(name): name for name in names}


_READ_PARAMS: Final = _table(_PARAMS)
_READ_REFERENCE: Final = _table(_REFERENCE)
_READ_META: Final = _table(eras.HOP_KEYS)
_SPELLED: Final = frozenset((*_PARAMS, *_REFERENCE, *eras.HOP_KEYS))
"""As they are read: nobody has to fold these."""


MAX_MEMBERS: Final = 10_000
"""Members of `params`, of its `ref` and of its `_meta`, all of which are looked at: some ms. Arguments are none."""


def ambiguous(params: Mapping[str, Any]) -> ProtocolError | None:
    """Why a request cannot be taken for one meaning; None if it can."""
    return (
        _other_spelling(params, _READ_PARAMS, "params")
        or _other_spelling(params.get("ref"), _READ_REFERENCE, "params.ref")
        or _other_spelling(params.get("_meta"), _READ_META, "params._meta")
    )


def _other_spelling(members: Any, read: Mapping[str, str], where: str) -> ProtocolError | None:
    if not isinstance(members, dict):
        return None
    if len(members) > MAX_MEMBERS:
        return ProtocolError(INVALID_PARAMS, f"{where} has more than {MAX_MEMBERS:,} members.")
    for name in members:
        if name in _SPELLED:
            continue
        meant = read.get(folded(name))
        if meant is not None and meant != name:
            text = f"{where} has {printable(name, 80)!r}, which some servers read as {meant!r}; write {meant!r}."
            return ProtocolError(INVALID_PARAMS, text)
    return None
