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
from mcp_hub.config.entry_keys import SHOWN
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.models import Config
from mcp_hub.config.raw_entries import find_entries
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.downstream.page.endpoints import Json
from mcp_hub.downstream.page.feed import shown, shown_object
from mcp_hub.downstream.page.safe_json import bounded
from mcp_hub.errors import ConfigError
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.chain import KEYS, POLICIES
from mcp_hub.policy.selection import EVERYTHING
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.security.redaction import Redactor

if TYPE_CHECKING:
    from mcp_hub.downstream.page.sessions import Viewer
    from mcp_hub.downstream.page_access import ConfigurationFacts, Reload
    from mcp_hub.hub import Engine

MAX_RULES: Final = 2000
MAX_FINDINGS: Final = 200
MAX_VALUE: Final = 500
"""Characters of one text in the value of a rule."""
MAX_VALUES: Final = 2000
"""Characters of all texts of a rule, a profile or a reload together."""
NOT_RULES: Final = frozenset({"cache_dir", "token_store", "token_dir", "listen", "unread", "skills", "state_file"})
"""Keys of the root that say nothing about what may be called, and may have secrets."""
ENTRY_RULES: Final = frozenset({*SHOWN, *FILTERS, *RESTRICTIONS, *TIMEOUTS, *KEYS.entry_names})
"""Keys of an entry that are rules; the others say how its server is reached, and may have secrets."""
_LINE: Final = re.compile(r"(?P<where>[^\s:]+(?::\d+)?): (?P<text>.*)", re.DOTALL)


class ConfigView:
    """Shows the configuration of a hub. Only admins see more than their own profile and groups."""

    def __init__(self, hub: Engine, facts: Callable[[], ConfigurationFacts], cure: Callable[[str], str | None]) -> None:
        self._hub = hub
        self._facts = facts
        self._cure = cure
        self._cached_rules: tuple[Any, list[Json], dict[str, str]] = (None, [], {})
        """(Generation, its problem) for which the files were read; their rules; the places of groups and profiles."""

    @property
    def newest_load(self) -> Reload | None:
        """The last load of the files while the hub ran, whether it is in force or not."""
        reloads = self._facts().reloads
        return reloads[0] if reloads else None

    async def show(self, viewer: Viewer) -> Json:
        """Returns the parts `rules`, `groups`, `profiles` and `configuration` of the page's state."""
        facts, config = self._facts(), self._hub.config
        rules, locations = await self._rules(config, facts.refused)
        selection = self._hub.generation.selection
        if selection is not EVERYTHING:
            rule = {"policy": "access", "key": "selection", "value": shown(selection.name), "server": None}
            rules = [{**rule, "where": "command line"}, *rules]
        if not viewer.admin:
            own_profiles = [profile for profile in config.profiles if profile.name == viewer.principal.profile]
            return {
                "rules": [],
                "groups": self._groups(viewer, {}),
                "profiles": [{"name": profile.name} for profile in own_profiles],
                "configuration": {"files": [], "findings": [], "reloads": [], "problem": None},
            }
        profiles = [
            {
                **{"name": profile.name, "tool_sets": list(profile.tool_sets), "tools": list(profile.tools)},
                **{"tags": list(profile.tags), "where": locations.get(f"profiles.{profile.name}")},
            }
            for profile in config.profiles
        ]
        return {
            "rules": rules,
            "groups": self._groups(viewer, locations),
            "profiles": [_short(profile) for profile in profiles[:MAX_RULES]],
            "configuration": {
                "files": [shown(str(path)) for path in config.files],
                "findings": self._findings(facts),
                "reloads": [_short(msgspec.to_builtins(reload)) for reload in facts.reloads],
                "problem": shown(facts.refused) if facts.refused is not None else None,
                "waiting": shown(facts.waiting) if facts.waiting is not None else None,
            },
        }

    def _findings(self, facts: ConfigurationFacts) -> list[Json]:
        loaded = facts.loaded
        levels: dict[str, tuple[str, ...]] = {
            "error": loaded.left_out,
            "warning": (*loaded.warnings, *map(str, loaded.duplicates)),
            "advice": loaded.advice,
        }
        findings: list[Json] = []
        for level, lines in levels.items():
            for line in lines[: MAX_FINDINGS - len(findings)]:
                text, code = str(line), code_of(line)
                match = _LINE.fullmatch(text)
                location = {"text": match["text"], "where": match["where"]} if match else {"text": text, "where": None}
                cure = self._cure(code) if code is not None else None
                findings.append(shown({"level": level, "code": code, **location, "cure": cure}))
        return findings

    def _groups(self, viewer: Viewer, locations: dict[str, str]) -> list[Json]:
        config = self._hub.config
        if not config.groups and not config.meta_tools:
            return []
        groups = self._hub.groups
        caller = SOLE if viewer.admin else self._hub.callers.of(viewer.principal)
        active = groups.active() if viewer.admin else groups.active_for(caller)
        tool_counts: dict[str, int] = {}
        for entry in groups.whole_of(caller).entries(TOOLS):
            for name in groups.of(entry.route):
                tool_counts[name] = tool_counts.get(name, 0) + 1
        visible = list(groups) if viewer.admin else list(groups.shown_to(caller))
        return [
            shown(
                {
                    "name": group.name,
                    "description": group.description,
                    "active": group.name in active,
                    "tools": tool_counts.get(group.name, 0),
                    "where": locations.get(f"groups.{group.name}"),
                },
                MAX_VALUE,
            )
            for group in visible[:MAX_RULES]
        ]

    async def _rules(self, config: Config, refused: str | None) -> tuple[list[Json], dict[str, str]]:
        """Returns the rules of the files, and where groups and profiles are. They are read once for each generation."""
        key = (self._hub.generation.number, refused)
        if self._cached_rules[0] != key:
            rules, locations = await in_thread(_read_rules, config)
            self._cached_rules = key, rules, locations
        return self._cached_rules[1], self._cached_rules[2]


def _read_rules(config: Config) -> tuple[list[Json], dict[str, str]]:
    """Reads the rules of all files again, to find their lines. A file that cannot be read now is skipped."""
    redactor, owners = Redactor(secrets_of(config)), _owners()
    root: dict[str, list[Json]] = {}
    entries: dict[str, list[Json]] = {}
    locations: dict[str, str] = {}
    for path in config.files:
        document = _document(path)
        if document is None or not isinstance(document.tree, dict):
            continue
        findings = document.findings()

        def location_of(at: KeyPath, findings: Findings = findings) -> str:
            file, line = findings.place(at)
            return file if line is None else f"{file}:{line}"

        for key, value in document.tree.items():
            if key in (ROOT_KEYS | KEYS.root_names) - NOT_RULES:
                earlier = root.get(key, []) if key == "blacklist" else []
                root[key] = [
                    *earlier,
                    _rule(owners.get(str(key), str(key)), (key,), value, None, location_of, redactor),
                ]
            if key in ("groups", "profiles"):
                locations |= dict(_named_locations(key, value, location_of))
        _, raw_entries = find_entries(document.tree, path, KEYS, Findings(findings.place), alone=False)
        for entry in raw_entries:
            entries[entry.id] = []
            for key, value in entry.values.items():
                if key in ENTRY_RULES:
                    owner = owners.get(KEYS.entry_names.get(key) or key, key)
                    entries[entry.id].append(_rule(owner, (*entry.at, key), value, entry.id, location_of, redactor))
    rules = [rule for section in (*root.values(), *entries.values()) for rule in section]
    return rules[:MAX_RULES], locations


def _document(path: Path) -> ConfigDocument | None:
    try:
        return read_document(path)
    except ConfigError:
        return None


def _rule(
    policy: str, at: KeyPath, value: Any, server: str | None, location_of: Callable[[KeyPath], str], redactor: Redactor
) -> Json:
    redacted = redactor.value({str(at[-1]): value})
    rule = {"policy": policy, "key": str(at[-1]), "server": server, "where": location_of(at)}
    value = redacted.get(str(at[-1])) if isinstance(redacted, dict) else redacted
    return _short({**rule, "value": value})


def _short(value: Json) -> Json:
    """Returns an object of the configuration cut to what a row of the page shows."""
    return shown_object(bounded(value, MAX_VALUES), MAX_VALUE)


def _owners() -> dict[str, str]:
    """Returns the name of the policy that owns each key."""
    owners: dict[str, str] = {}
    for policy in POLICIES:
        for key in getattr(policy, "keys", ()):
            for name in key.names:
                owners[name] = policy.name
    return {
        **owners,
        **dict.fromkeys((*FILTERS, *RESTRICTIONS, "blacklist", "profiles", "tool_sets", "tags"), "access"),
    }


def _named_locations(key: str, value: Any, location_of: Callable[[KeyPath], str]) -> Iterator[tuple[str, str]]:
    """Yields (`groups.NAME`, place) of a mapping by name, or of a list of mappings with names."""
    if isinstance(value, dict):
        for name in value:
            yield f"{key}.{name}", location_of((key, name))
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield f"{key}.{item.get('name')}", location_of((key, index))
