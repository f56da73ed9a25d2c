"""How tools look to clients: their names, titles, descriptions and input schemas, and the arguments that are preset."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from mcp_hub.catalog import Item, Route
from mcp_hub.catalog.token_estimate import cut_to_tokens
from mcp_hub.config.entry_rules import SchemaForm
from mcp_hub.config.field_types import DescriptionLength, check_of, parse_description_length
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, RootKey, parsed_key
from mcp_hub.errors import InvalidParameters
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Listed, Next, Policy, PolicyParts
from mcp_hub.policy.patterns import ToolRulesTable
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.schema_edits import (
    Path,
    drop_argument,
    extend_schema,
    parse_path,
    set_argument,
    without_property,
)
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable

_END: Final = re.compile(
    r"(?P<mark>[.!?])[\"')\]*_`]*(?=\s+[^a-z\s]|\s*\Z)"  # a mark, and no small letter behind it
    r"|[。！？]"
    r"|\n[^\S\n]*\n"  # an empty line
    r"|(?<=[.!?:])[^\S\n]*\n"
    r"|\n(?=[^\S\n]*(?:[-*#•<]|\d{1,2}[.)]|[A-Z]\w*:))"  # a list, a heading, `Args:`
)
_SHORT_FORM: Final = re.compile(
    r"\b(?:(?i:e\.g|i\.e|etc|vs|cf|approx|incl|resp|mr|mrs|dr|no|fig|st)|(?<!['’])[A-Z])\.\Z"
)
LOOKED_AT: Final = 8 * 1024
"""The most characters in which the end of the first sentence is searched."""


def shortened_description(text: str, length: DescriptionLength) -> str:
    """Returns the beginning of a description; the text itself where nothing is left out."""
    if length == "full":
        return text
    return first_sentence(text) if length == "first_sentence" else _at_most(text, int(length))


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text, with its line breaks as spaces.

    If no sentence ends within LOOKED_AT characters, it returns these; a text without a second sentence is unchanged.
    """
    start = text.strip()
    end = next(_sentence_ends(start[:LOOKED_AT]), min(len(start), LOOKED_AT))
    return text if end == len(start) else " ".join(start[:end].split())


def _sentence_ends(text: str) -> Iterator[int]:
    """Yields the offset behind each sentence of a text."""
    for match in _END.finditer(text):
        if match["mark"] == "." and _SHORT_FORM.search(text, max(0, match.start() - 12), match.start() + 1):
            continue
        end = match.start() if match[0].isspace() else match.end()
        if text[:end].strip():
            yield end


def _at_most(text: str, tokens: int) -> str:
    """Cuts a text to at most `tokens` tokens: behind a sentence if possible, else behind a word, with an ellipsis."""
    start = text.strip()
    if len(cut_to_tokens(start, tokens)) == len(start):
        return text
    part = cut_to_tokens(start, tokens - 1)  # one is for the ellipsis
    # Two more characters are needed to see whether a sentence ends at the cut.
    sentences = [end for end in _sentence_ends(start[: len(part) + 2]) if len(part) // 2 <= end <= len(part)]
    if sentences:
        return part[: sentences[-1]].rstrip()
    blank = start.rfind(" ", 0, len(part) + 1)
    return part[: blank if blank > len(part) // 2 else None].rstrip() + "…"


MAX_PATHS: Final = 10_000
"""Tools whose preset paths are cached."""


class PresetUnsettable(InvalidParameters):
    """The caller sent a value in which the preset argument cannot be set."""

    policy, refuses = "preset", True


class Preset(Policy):
    """Hides preset arguments in lists and sets them in calls.

    With `of_calls`, calls may also bring presets of the program that registered the tool.
    """

    name = "preset"

    def __init__(
        self,
        servers: Mapping[str, Server],
        listed: Listed = lambda route, caller: None,
        presented: Callable[[Route, Json], Json] = lambda route, schema: schema,
        *,
        of_calls: bool = False,
    ) -> None:
        self._rules = ToolRulesTable(servers)
        self._paths: Lru[Route, tuple[Path, ...]] = Lru(MAX_PATHS)
        self._of_calls = of_calls
        self._listed, self._presented = listed, presented

    @classmethod
    def of(cls, parts: PolicyParts) -> Preset:
        """Makes the policy of a configuration."""
        return cls(parts.servers, parts.listed, parts.find(Presentation).schema, of_calls=parts.in_program)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Removes preset arguments from the schemas of tools."""
        return [self._without_presets(item) for item in items]

    def _without_presets(self, item: Item) -> Item:
        preset = self._rules[item.route].preset
        if item.route.kind is not TOOLS or not preset or not isinstance(item.wire, dict):
            return item
        schema = item.wire.get("inputSchema")
        if not isinstance(schema, dict):
            return item
        for path_text in preset:
            schema = without_property(schema, parse_path(path_text), schema)
        return msgspec.structs.replace(item, wire={**item.wire, "inputSchema": schema})

    def concerns(self, route: Route) -> bool:
        """Returns whether calls of the route may have preset arguments."""
        return route.kind is TOOLS and (self._of_calls or bool(self._rules[route].preset))

    def preset_paths(self, call: Call) -> tuple[Path, ...]:
        """Returns the paths of preset arguments of a call."""
        of_call = tuple((name,) for name in call.preset or ())
        presets = self._rules[call.route].preset
        if not presets:
            return of_call
        paths = self._paths.get(call.route)
        if paths is None:
            paths = self._paths[call.route] = tuple(map(parse_path, presets))
        return (*paths, *of_call)

    def _declared_by(self, call: Call) -> frozenset[str]:
        """Returns the argument names in the tool's schema: no other spellings of a preset one, but of their own."""
        schema = self._rules[call.route].input_schema
        if schema is None:
            schema = (self._listed(call.route, call.caller) or {}).get("inputSchema")
            schema = self._presented(call.route, schema) if isinstance(schema, dict) else {}
        properties = schema.get("properties")
        return frozenset(properties) if isinstance(properties, dict) else frozenset()

    def without_preset(self, call: Call, arguments: Any) -> Any:
        """Returns the arguments that a caller sent without preset ones, for records and spans."""
        hidden = self.preset_paths(call)
        if hidden:
            declared = self._declared_by(call)
            for path in hidden:
                arguments = drop_argument(arguments, path, declared)
        return arguments

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call with the configured values, which replace whatever the caller sent for these arguments.

        Raises PresetUnsettable for JSON in a text where a value is to be set inside of it: some servers would parse it.
        """
        hidden = self.preset_paths(call) if call.method == TOOLS.act_method else ()
        if not hidden:
            return await call_next(call)
        arguments = call.params.get("arguments")
        merged: Any = arguments if isinstance(arguments, dict) else {}
        declared = self._declared_by(call)
        values = (*self._rules[call.route].preset.values(), *(call.preset or {}).values())
        large, dropped_count = weighs_more(merged), 0
        for path, value in zip(hidden, values, strict=True):
            args = (merged, path, value, declared)
            try:
                merged, dropped = await in_thread(set_argument, *args) if large else set_argument(*args)
            except ValueError as error:
                call.refused_by = "preset"
                text = f"The argument {path[0]!r} of {call.exposed!r} {error}."
                raise PresetUnsettable(text, server=call.route.upstream, executed=False) from None
            dropped_count += dropped
        # The note leaves out names and values, because more people read notes than the configuration.
        call.notes.append(
            f"preset: {len(hidden)} set" + (f"; {dropped_count} sent by the caller dropped" if dropped_count else "")
        )
        call.params = {**call.params, "arguments": merged}
        return await call_next(call)


log = logging.getLogger("mcp_hub.policy")

MAX_CHANGED: Final = 1000
"""Changed input schemas that are cached."""

SOURCE_KEY: Final = "mcp-hub/source"
"""In a tool's `_meta`: `native` or `builtin`."""

DESCRIPTIONS: Final[EntryKey[DescriptionLength]] = EntryKey(
    "descriptions", parsed_key(parse_description_length), "full", in_defaults=True
)
"""How much of descriptions is listed: `full`, `first_sentence`, or a number, the most tokens."""
SCHEMAS: Final[EntryKey[SchemaForm]] = EntryKey("schemas", parsed_key(check_of(SchemaForm)), "full", in_defaults=True)
"""`full`, or `compact`: input schemas are listed without parts that cost tokens and change nothing."""
ClientSchemaForm = Literal["auto", "portable", "original"]
CLIENT_SCHEMAS: Final[RootKey[ClientSchemaForm]] = RootKey("schemas", parsed_key(check_of(ClientSchemaForm)), "auto")
"""`portable`: every client is listed input schemas that all model providers take; `auto`: clients whose provider is
known are listed what that takes; `original`: nobody is. Arguments are checked by the server's own schema."""


class Presentation(Policy):
    """Replaces names, titles and descriptions of tools by those of the configuration.

    Input schemas lose their titles (`strip_titles`) and gain properties (`extend_schema`). `descriptions` and `schemas`
    make both shorter. Tools of the hub's own processes are marked in their `_meta`. The catalog maps names back.
    """

    name = "presentation"
    keys = (DESCRIPTIONS, SCHEMAS, CLIENT_SCHEMAS)

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._rules = ToolRulesTable(servers)
        self._sizes = {id: (DESCRIPTIONS.of(server), SCHEMAS.of(server)) for id, server in servers.items()}
        self._origins = {id: server.origin for id, server in servers.items() if server.origin != "mcp"}
        self._changed: Lru[tuple[Route, int], tuple[Json, Json]] = Lru(MAX_CHANGED)
        """By route and identity of the listed schema: that schema, which keeps its id from another one, and the changed
        one. A server may list the same tool with other schemas to other callers."""

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the tools that have rules, and their preset arguments."""
        for server in config.servers:
            for tools, rules in server.tools.items():
                key = f"servers.{server.id}." + ("preset" if rules.model_fields_set == {"preset"} else "tools")
                yield RuleNames(key, (tools,), server.id)
                yield RuleNames(f"{key}.{tools}", tuple(rules.preset), server.id, form="argument", of_tools=tools)

    @classmethod
    def of(cls, parts: PolicyParts) -> Presentation:
        """Makes the policy of a configuration."""
        return cls(parts.servers)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns the items with their configured names and texts."""
        return [self._presented(item) for item in items]

    def _presented(self, item: Item) -> Item:
        if item.route.kind is not TOOLS or not isinstance(item.wire, dict):
            return item
        rules = self._rules[item.route]
        texts: Json = {key: text for key in ("title", "description") if (text := getattr(rules, key)) is not None}
        if (origin := self._origins.get(item.route.upstream)) is not None:
            meta = item.wire.get("_meta")
            texts["_meta"] = {**(meta if isinstance(meta, dict) else {}), SOURCE_KEY: origin}
        listed = item.wire.get("inputSchema")
        schema = self.schema(item.route, listed) if isinstance(listed, dict) else listed
        if rules.input_schema is not None:
            schema = rules.input_schema
        length, form = self._sizes[item.route.upstream]
        length, form = rules.descriptions or length, rules.schemas or form
        if length != "full" or form != "full":
            from mcp_hub.schema.compact_schema import change_schemas, compact_schema
        if length != "full":
            # A description from the configuration is never shortened.
            texts = {**_shortened(item.wire, length), **texts}
            schema = change_schemas(schema, lambda inner: {**inner, **_shortened(inner, length)})
        if form == "compact" and isinstance(schema, dict):
            schema = compact_schema(schema)
        if rules.name is None and not texts and schema is listed:
            return item
        wire = {**item.wire, **texts} if schema is listed else {**item.wire, **texts, "inputSchema": schema}
        return msgspec.structs.replace(item, local=rules.name or item.local, wire=wire)

    def schema(self, route: Route, listed: Json) -> Json:
        """Returns the input schema that clients see in place of the listed one; the same object each time."""
        rules = self._rules[route]
        if rules.extend_schema is None and not rules.strip_titles:
            return listed
        cached = self._changed.get((route, id(listed)))
        if cached is not None:
            return cached[1]
        changed: Json = listed
        if rules.strip_titles:
            from mcp_hub.schema.compact_schema import drop_titles

            changed = drop_titles(listed)
        if rules.extend_schema is not None:
            try:
                changed = extend_schema(changed, rules.extend_schema, route.name)
            except ValueError as error:
                setting = f"servers.{route.upstream}.tools: extend_schema"
                log.warning("%s of %s is left out: %s", setting, printable(route.name, 200), printable(str(error), 300))
        self._changed[route, id(listed)] = (listed, changed)
        return changed


def _shortened(node: Json, length: DescriptionLength) -> Json:
    """Returns `{"description": shorter text}` for a tool or schema, {} if the text is short enough."""
    text = node.get("description")
    short = shortened_description(text, length) if isinstance(text, str) else text
    return {} if short is text else {"description": short}
