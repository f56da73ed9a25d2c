"""The configuration in force as the live page shows it: rules with their lines, groups, findings and reloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.codes import code_of
from mcp_hub.config.config_files import ConfigDocument, read_document
from mcp_hub.config.dialect import FILTERS, RESTRICTIONS, ROOT_KEYS, TIMEOUTS
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.models import RULES_OF_LISTS, Config
from mcp_hub.config.raw_entries import find_entries
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.downstream.page.endpoints import Json
from mcp_hub.downstream.page.feed import shown, shown_object
from mcp_hub.errors import ConfigError
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.chain import KEYS, POLICIES
from mcp_hub.policy.selection import EVERYTHING
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.redaction import Redactor

if TYPE_CHECKING:
    from mcp_hub.downstream.page.sessions import Viewer
    from mcp_hub.downstream.page_access import ConfigurationFacts, Reload
    from mcp_hub.hub import Engine

MAX_RULES: Final = 2000
MAX_VALUE: Final = 500
"""Characters of one text in the value of a rule."""
NOT_RULES: Final = frozenset({"cache_dir", "token_store", "token_dir", "listen", "unread", "skills", "state_file"})
"""Keys of the root that say nothing about what may be called, and may have secrets."""
ENTRY_RULES: Final = frozenset({
    *RULES_OF_LISTS, *FILTERS, *RESTRICTIONS, *TIMEOUTS, *KEYS.entry_names, "deadlines", "session", "enabled",
    "required", "lazy", "allow", "max_questions", "max_sessions", "allow_over_network", "namespace", "era",
}) - {"settings"}  # fmt: skip
"""Keys of an entry that are rules; the others say how its server is reached, and may have secrets."""
_LINE: Final = re.compile(r"(?P<where>[^\s:]+(?::\d+)?): (?P<text>.*)", re.DOTALL)


class ConfigView:
    """Shows the configuration of a hub. Only admins see more than their own profile and groups."""

    def __init__(self, hub: Engine, facts: Callable[[], ConfigurationFacts], cure: Callable[[str], str | None]) -> None:
        self._hub = hub
        self._facts = facts
        self._cure = cure
        self._read: tuple[Any, list[Json], dict[str, str]] = (None, [], {})
        """(Generation, its problem) for which the files were read; their rules; the places of groups and profiles."""

    @property
    def newest_load(self) -> Reload | None:
        """The last load of the files while the hub ran, whether it is in force or not."""
        reloads = self._facts().reloads
        return reloads[0] if reloads else None

    async def show(self, viewer: Viewer) -> Json:
        """Returns the parts `rules`, `groups`, `profiles` and `configuration` of the page's state."""
        facts, config = self._facts(), self._hub.config
        rules, places = await self._rules(config, facts.refused)
        selection = self._hub.generation.selection
        if selection is not EVERYTHING:
            of = {"policy": "access", "key": "selection", "value": shown(selection.name), "server": None}
            rules = [{**of, "where": "command line"}, *rules]
        if not viewer.admin:
            own = [one for one in config.profiles if one.name == viewer.principal.profile]
            return {
                "rules": [],
                "groups": self._groups(viewer, {}),
                "profiles": [{"name": one.name} for one in own],
                "configuration": {"files": [], "findings": [], "reloads": [], "problem": None},
            }
        profiles = [
            {
                **{"name": one.name, "tool_sets": list(one.tool_sets), "tools": list(one.tools)},
                **{"tags": list(one.tags), "where": places.get(f"profiles.{one.name}")},
            }
            for one in config.profiles
        ]
        return {
            "rules": rules,
            "groups": self._groups(viewer, places),
            "profiles": shown(profiles, MAX_VALUE),
            "configuration": {
                "files": [shown(str(path)) for path in config.files],
                "findings": self._findings(facts),
                "reloads": [shown(msgspec.structs.asdict(one)) for one in facts.reloads],
                "problem": shown(facts.refused) if facts.refused is not None else None,
            },
        }

    def _findings(self, facts: ConfigurationFacts) -> list[Json]:
        loaded = facts.loaded
        levels: dict[str, tuple[str, ...]] = {
            "error": loaded.left_out,
            "warning": (*loaded.warnings, *map(str, loaded.duplicates)),
            "advice": loaded.advice,
        }
        found: list[Json] = []
        for level, lines in levels.items():
            for line in lines:
                text, code = str(line), code_of(line)
                match = _LINE.fullmatch(text)
                place = {"text": match["text"], "where": match["where"]} if match else {"text": text, "where": None}
                cure = self._cure(code) if code is not None else None
                found.append(shown({"level": level, "code": code, **place, "cure": cure}))
        return found[:MAX_RULES]

    def _groups(self, viewer: Viewer, places: dict[str, str]) -> list[Json]:
        config = self._hub.config
        if not config.groups and not config.meta_tools:
            return []
        groups = self._hub.groups
        caller = None if viewer.admin else viewer.principal
        on = groups.active() if viewer.admin else groups.active_for(caller)
        members: dict[str, int] = {}
        for route in groups.whole_of(caller).routes(TOOLS):
            for name in groups.of(route):
                members[name] = members.get(name, 0) + 1
        listed = list(groups) if viewer.admin else list(groups.shown_to(caller))
        return [
            shown(
                {
                    "name": one.name,
                    "description": one.description,
                    "active": one.name in on,
                    "tools": members.get(one.name, 0),
                    "where": places.get(f"groups.{one.name}"),
                }
            )
            for one in listed
        ]

    async def _rules(self, config: Config, refused: str | None) -> tuple[list[Json], dict[str, str]]:
        """Returns the rules of the files, and where groups and profiles are. They are read once for each generation."""
        of = (self._hub.generation.number, refused)
        if self._read[0] != of:
            rules, places = await in_thread(_read_rules, config)
            self._read = of, rules, places
        return self._read[1], self._read[2]


def _read_rules(config: Config) -> tuple[list[Json], dict[str, str]]:
    """Reads the rules of all files again, to find their lines. A file that cannot be read now is skipped."""
    redaction, owners = Redactor(secrets_of(config)), _owners()
    root: dict[str, list[Json]] = {}
    entries: dict[str, list[Json]] = {}
    places: dict[str, str] = {}
    for path in config.files:
        document = _document(path)
        if document is None or not isinstance(document.tree, dict):
            continue
        findings = document.findings()

        def where(at: KeyPath, findings: Findings = findings) -> str:
            file, line = findings.place(at)
            return file if line is None else f"{file}:{line}"

        for key, value in document.tree.items():
            if key in (ROOT_KEYS | KEYS.root_names) - NOT_RULES:
                before = root.get(key, []) if key == "blacklist" else []
                root[key] = [*before, _rule(owners.get(str(key), str(key)), (key,), value, None, where, redaction)]
            if key in ("groups", "profiles"):
                places |= dict(_named_places(key, value, where))
        _, found = find_entries(document.tree, path, KEYS, Findings(findings.place), alone=False)
        for entry in found:
            entries[entry.id] = []
            for key, value in entry.values.items():
                if key in ENTRY_RULES:
                    owner = owners.get(KEYS.entry_names.get(key) or key, key)
                    entries[entry.id].append(_rule(owner, (*entry.at, key), value, entry.id, where, redaction))
    rules = [rule for listed in (*root.values(), *entries.values()) for rule in listed]
    return rules[:MAX_RULES], places


def _document(path: Path) -> ConfigDocument | None:
    try:
        return read_document(path)
    except ConfigError:
        return None


def _rule(
    policy: str, at: KeyPath, value: Any, server: str | None, where: Callable[[KeyPath], str], redaction: Redactor
) -> Json:
    clean = redaction.value({str(at[-1]): value})
    return shown_object(
        {
            "policy": policy,
            "key": str(at[-1]),
            "value": clean.get(str(at[-1])) if isinstance(clean, dict) else clean,
            "server": server,
            "where": where(at),
        },
        MAX_VALUE,
    )


def _owners() -> dict[str, str]:
    """Returns the name of the policy that owns each key."""
    found: dict[str, str] = {}
    for policy in POLICIES:
        for key in getattr(policy, "keys", ()):
            for name in (key.name, *key.spellings):
                found[name] = policy.name
    return {**found, **dict.fromkeys((*FILTERS, *RESTRICTIONS, "blacklist", "profiles", "tool_sets", "tags"), "access")}


def _named_places(key: str, value: Any, where: Callable[[KeyPath], str]) -> Iterator[tuple[str, str]]:
    """Yields (`groups.NAME`, place) of a mapping by name, or of a list of mappings with names."""
    if isinstance(value, dict):
        for name in value:
            yield f"{key}.{name}", where((key, name))
    for index, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, dict):
            yield f"{key}.{one.get('name')}", where((key, index))
