"""The rules of one entry, as frozen models, and their reader: filters, rules for tools, results, health.

All durations are seconds, all sizes bytes. Names of tools are patterns (`*`, `?`, `[...]`) over original names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from mcp_hub.config.field_types import After, DescriptionLimit, Duration, OptionalDuration, Size, boolean
from mcp_hub.config.fields import Fields
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.settings import EntryKey, Frozen, KeyReading, read_model

Validation = Literal["strict", "lenient", "off"]
SchemaForm = Literal["full", "compact"]
TokenLimit = Annotated[int, msgspec.Meta(ge=1)]


class PostProcessStep(Frozen):
    """One step that changes a result: a built-in by its name, or `module:function`."""

    SHORT: ClassVar[Mapping[type, str]] = {str: "step"}

    step: str
    """The name of a built-in step, or `module:function`."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments of the step."""
    on_error: Literal["fail", "keep"] = "fail"
    """`fail`: the call ends in `tool_error`, as the step may hide something. `keep`: the result stays as it was."""


def _check_schema_extension(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    if value.keys() - {"properties", "required", "$defs"} or not isinstance(value.get("properties"), dict):
        raise ValueError("must be a mapping with properties, and perhaps required and $defs")
    if not all(isinstance(schema, dict | bool) for schema in value["properties"].values()):
        raise ValueError("every property must be a JSON schema: a mapping, such as {type: string}")
    required = value.get("required", [])
    if not isinstance(required, list) or not all(name in value["properties"] for name in required):
        raise ValueError("required must be a list of names of its properties")
    if not isinstance(value.get("$defs", {}), dict):
        raise ValueError("$defs must be a mapping of names to JSON schemas")
    return value


class ToolRules(Frozen):
    """Rules for some tools of one upstream. What is not set changes nothing."""

    NOT_SHOWN: ClassVar[frozenset[str]] = frozenset({"preset", "in_program"})

    name: str | None = None
    """The name that clients see, without the namespace that is put before it."""
    title: str | None = None
    """The title that clients see."""
    description: str | None = None
    """The description that clients see."""
    tags: tuple[str, ...] = ()
    """Tags, beside those of the entry."""
    preset: dict[str, Any] = msgspec.field(default_factory=dict)
    """Argument, or path in one (`options.limit`, `items[].token`) -> the value that is always sent."""
    extend_schema: Annotated[dict[str, Any] | None, After(_check_schema_extension)] = None
    """Additional arguments: `properties`, `required` and `$defs` of a JSON Schema."""
    strip_titles: bool = False
    """Whether titles are removed from the input schema."""
    descriptions: DescriptionLimit = None
    """How much of its description and of those of its arguments is listed."""
    schemas: SchemaForm | None = None
    """`compact`: the input schema is listed without parts that cost tokens and change nothing."""
    timeout: Duration | None = None
    """How long one call may take in total, in place of `deadlines.call`."""
    idle_timeout: Duration | None = None
    """How long one call may take without a progress notification, in place of `deadlines.idle`."""
    validate_arguments: Validation | None = None
    """How arguments are checked; None: as the entry sets it."""
    max_result_bytes: Size | None = None
    """The largest result; None: as the entry sets it."""
    max_result_tokens: TokenLimit | None = None
    """The most tokens of a result; None: as the entry sets it."""
    postprocess: tuple[PostProcessStep, ...] = ()
    """Steps that change a result, in their order."""
    retry: bool | None = None
    """Whether a call that may have been executed can be retried; None: the tool's annotations decide."""
    input_schema: dict[str, Any] | None = None
    """An input schema that is listed instead of the tool's own. It is set in code only, never in a file."""
    in_program: Any = None
    """An `InProgram`, with functions for arguments and results. It is set in code only, never in a file."""


class Filter(Frozen):
    """The names of one kind that may be used: those in `allow` (None: all) but not in `deny`."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    allow_tags: tuple[str, ...] | None = None
    """Only items with one of these tags."""
    deny_tags: tuple[str, ...] = ()


class HealthSettings(Frozen):
    """How the hub notices dead connections and changed lists. `off` switches a single check off."""

    OFF: ClassVar[Mapping[str, Any]] = {"ping": "off", "relist": "off", "unlist_after": "off"}

    ping: OptionalDuration = 30.0
    """The silence after which an idle server of the handshake era is pinged."""
    relist: OptionalDuration = 300.0
    """How often the hub fetches the lists again, if the server does not reliably announce changes."""
    unlist_after: OptionalDuration = 60.0
    """How long the tools of an unavailable server stay listed."""


_DENY_WINS: Final = frozenset({"disabled_tools", "disabledTools", "excludeTools"})
"""Keys of Codex, Kiro and Gemini, which by their documentation win over keys that allow."""


def read_filters(fields: Fields) -> dict[str, Filter]:
    """Returns {kind: Filter} for `enable_*` and `disable_*` of every dialect."""
    filters: dict[str, Filter] = {}
    for kind in ("tools", "resources", "prompts"):
        values: dict[str, tuple[str, ...]] = {}
        for half in ("allow", "deny", "allow_tags", "deny_tags"):
            name = f"filters.{kind}.{half}"
            if (field := fields.get(name)) is None:
                continue
            if field.value == "*" and half == "allow":
                continue
            texts = fields.texts(name)
            if half != "allow" or texts != ("*",):
                values[half] = texts
        conflicts = set(values.get("allow", ())) & set(values.get("deny", ()))
        at = fields.values[f"filters.{kind}.deny"].at if conflicts else ()
        if conflicts and at[-1] not in _DENY_WINS:
            fields.error(at, f"refuses {', '.join(sorted(conflicts))}, which is allowed here as well; keep one of them")
        if values:
            filters[kind] = Filter(**values)
    return filters


def read_steps(value: Any, at: KeyPath, findings: Findings) -> tuple[PostProcessStep, ...]:
    """Reads `postprocess`: one step or a list of them, each a name or a mapping."""
    steps = []
    is_list = isinstance(value, list)
    for index, item in enumerate(value if is_list else [value]):
        key_path = (*at, index) if is_list else at
        step = read_model(PostProcessStep, item, key_path, findings)
        if step is not None and not _is_step(step.step):
            findings.error(key_path, "must be truncate, select_text, json or 'module:function'")
        elif step is not None:
            steps.append(step)
    return tuple(steps)


def _is_step(step: str) -> bool:
    module, colon, function = step.partition(":")
    if not colon:
        return step in ("truncate", "select_text", "json")
    return all(part.isidentifier() for part in module.split(".")) and function.isidentifier()


_FOREIGN_TOOL_KEYS: Final = frozenset({"approval_mode", "meta", "annotations", "enabled", "disabled", "arguments"})


def read_tools(
    value: Mapping[str, Any], presets: Mapping[str, Any] | None, at: KeyPath, findings: Findings
) -> tuple[dict[str, ToolRules], tuple[str, ...]]:
    """Reads the mapping `tools`: returns ({pattern: rules}, names of tools that are switched off).

    Of FastMCP's transforms, only those are supported that rules can express: `enabled: false`, and arguments that are
    hidden and have a default.
    """
    tools: dict[str, ToolRules] = {}
    disabled_names: list[str] = []
    for name, rules in value.items():
        key_path = (*at, name)
        if rules is None:
            continue
        if not isinstance(rules, dict):
            findings.error(key_path, f"must be a mapping with {', '.join(ToolRules.model_fields)}")
            continue
        for key in ("enabled", "disabled"):
            if rules.get(key) is not None and boolean(rules[key]) is None:
                findings.error((*key_path, key), "must be true or false")
        if boolean(rules.get("enabled")) is False or boolean(rules.get("disabled")):
            disabled_names.append(name)
        values = {
            key: setting for key, setting in rules.items() if key not in _FOREIGN_TOOL_KEYS and setting is not None
        }
        hidden = _hidden_arguments(rules.get("arguments"), (*key_path, "arguments"), findings)
        if hidden:
            values["preset"] = {**hidden, **_mapping(values.get("preset"), (*key_path, "preset"), findings)}
        if "postprocess" in values:
            values["postprocess"] = read_steps(values["postprocess"], (*key_path, "postprocess"), findings)
        rule = read_model(ToolRules, values, key_path, findings)
        if rule is not None and rule != ToolRules():
            tools[name] = rule
    for name, arguments in (presets or {}).items():
        preset = _mapping(arguments, ("preset", name), findings)
        existing = tools.get(name, ToolRules())
        tools[name] = existing.model_copy(update={"preset": {**existing.preset, **preset}})
    return tools, tuple(disabled_names)


def _hidden_arguments(value: Any, at: KeyPath, findings: Findings) -> dict[str, Any]:
    hidden: dict[str, Any] = {}
    for name, change in _mapping(value, at, findings).items():
        if isinstance(change, dict) and boolean(change.get("hide")) and "default" in change:
            hidden[name] = change["default"]
        elif change:
            findings.error((*at, name), "only {hide: true, default: VALUE} is supported: it becomes a preset")
    return hidden


def _mapping(value: Any, at: KeyPath, findings: Findings) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        findings.error(at, "must be a mapping of arguments to values")
        return {}
    return value


def read_rules(fields: Fields, findings: Findings, at: KeyPath) -> dict[str, Any]:
    """Reads the fields of a Server that are rules. Keys that the entry does not have are absent."""
    values: dict[str, Any] = {"filters": read_filters(fields)}
    presets = fields.mapping("preset")
    tools = fields.resolved("tools")
    disabled_names: tuple[str, ...] = ()
    if tools is not None or presets:
        raw_rules = tools.value if tools is not None else {}
        key_path = tools.at if tools is not None else at
        preset_values = {name: preset.value for name, preset in (presets or {}).items()}
        values["tools"], disabled_names = read_tools(raw_rules, preset_values, key_path, findings)
    descriptions = fields.mapping("toolDescriptionOverrides") or {}
    for name in descriptions:
        rule = values.setdefault("tools", {}).get(name, ToolRules())
        text = fields.inner(descriptions).text(name)
        if rule.description is None and text is not None:
            values["tools"][name] = rule.model_copy(update={"description": text})
    add_refused(values, disabled_names)
    if "tags" in fields:
        values["tags"] = fields.read("tags", tuple[str, ...]) or ()
    if (field := fields.resolved("postprocess")) is not None:
        values["postprocess"] = read_steps(field.value, field.at, findings)
    if (field := fields.resolved("health")) is not None:
        values["health"] = read_model(HealthSettings, field.value, field.at, findings)
    return {name: value for name, value in values.items() if value is not None}


def add_refused(values: dict[str, Any], tools: Sequence[str]) -> None:
    """Adds names and patterns of tools to those that the filters of an entry refuse."""
    if tools:
        existing = values["filters"].get("tools", Filter())
        values["filters"]["tools"] = existing.model_copy(update={"deny": (*existing.deny, *tools)})


def read_policy_keys(keys: Iterable[EntryKey[Any]], fields: Fields, findings: Findings) -> dict[str, Any]:
    """Reads the keys of policies. Returns {name: setting} for those that the entry has."""
    reading = KeyReading(findings, fields.scope)
    settings: dict[str, Any] = {}
    for key in keys:
        field = fields.resolved(key.name)
        setting = None if field is None else key.read(field, reading)
        if setting is not None:
            settings[key.name] = setting
    return settings
