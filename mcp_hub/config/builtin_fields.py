"""What an entry with `builtin:` says besides: each key belongs to some of the built-in servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from mcp_hub.config.canonical import only_known
from mcp_hub.config.fields import Fields, Given
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.models import NO_ENTRY, OF_THIS_MACHINE, Builtin, Root
from mcp_hub.security.raw_text_policy import RawTextPolicy
from mcp_hub.security.virtual_paths import MODES, USUAL_MODES, Mode, overlapping, root_name
from mcp_hub.text import printable

BUILTINS: Final[Mapping[str, Builtin]] = {name: name for name in get_args(Builtin) if name not in NO_ENTRY}
_POLICIES: Final[Mapping[str, RawTextPolicy]] = {word: word for word in get_args(RawTextPolicy)}
_MODES: Final[Mapping[str, Mode]] = {mode: mode for mode in MODES}
_BELONGS_TO: Final[Mapping[str, tuple[Builtin, ...]]] = {
    **dict.fromkeys(("profile", "headless", "executable"), ("browser",)),
    "policy": ("text_files",),
    "roots": ("files",),
    "allow_over_network": OF_THIS_MACHINE,
}
_ELSEWHERE: Final = frozenset({"policy", "roots"})
"""Other programs know entries with such keys, and mean something else by them."""


def read_builtin(
    fields: Fields, builtin: Builtin | None, at: KeyPath, findings: Findings, unresolved: dict[KeyPath, str]
) -> dict[str, Any]:
    """The fields of a Server that only built-in ones have. What is wrong is in the findings."""
    foreign = {key: owners for key, owners in _BELONGS_TO.items() if key in fields and builtin not in owners}
    for key, owners in foreign.items() if builtin is not None or "builtin" not in fields else ():
        named = " or ".join(f"'builtin: {owner}'" for owner in owners)
        text = f"is for an entry with {named}"
        if builtin is None and key in _ELSEWHERE:
            fields.warning(fields.given[key].at, f"has no effect: it {text}")
        else:
            fields.error(fields.given[key].at, text)
    if builtin == "files" and fields.mapping("roots") is None:
        fields.error(at, "needs 'roots', such as {/workspace/: ~/work}: the directories its tools may use")
    found = {
        "profile": fields.path("profile"),
        "executable": fields.path("executable"),
        "headless": fields.flag("headless"),
        "policy": fields.choice("policy", _POLICIES) if builtin == "text_files" else None,
        "roots": _roots(fields, findings, unresolved) if builtin == "files" else None,
        "allow_over_network": fields.flag("allow_over_network"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _roots(fields: Fields, findings: Findings, unresolved: dict[KeyPath, str]) -> tuple[Root, ...]:
    found: dict[str, Root] = {}
    for name, given in (fields.mapping("roots") or {}).items():
        try:
            shown = root_name(name)
        except ValueError as error:
            fields.error(given.at, f"is no name of a root: {error}")
            continue
        if shown in found:
            fields.error(given.at, f"is {shown}, which is there already")
            continue
        value = given.value if isinstance(given.value, dict) else {"path": given.value}
        known = only_known(value, ("path", "mode"), given.at, findings)
        inner = fields.inner({key: Given(one, (*given.at, key)) for key, one in known.items()})
        directory = inner.path("path") if known.get("path") is not None else None
        mode = inner.choice("mode", _MODES) or USUAL_MODES.get(shown, "ro")
        if directory is None:
            fields.error(given.at, "must be a directory, or a mapping with 'path' and 'mode'")
        elif not directory.is_dir():
            unresolved.setdefault(given.at, f"there is no directory {printable(str(directory))}")
        else:
            found[shown] = Root(at=shown, path=Path(os.path.realpath(directory)), mode=mode)
    pair = overlapping(str(root.path) for root in found.values())
    if pair is not None:
        text = f"{printable(pair[0])} and {printable(pair[1])} overlap; what one of them forbids, the other would allow"
        fields.error(fields.given["roots"].at, text)
    return tuple(found.values())
