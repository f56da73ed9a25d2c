"""Rules read from a file: shorthands unfolded, unknown keys told of, what does not fit a finding at its own place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args

from mcp_hub.config.canonical import only_known
from mcp_hub.config.checks import ValidationError, is_list
from mcp_hub.config.fields import Fields, Given
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.frozen import Frozen
from mcp_hub.config.rules import Breaker, Filter, Health, Label, Limits, PinMode, PostProcess, Retry, Screen, ToolRules

M = TypeVar("M", bound=Frozen)

OFF: Final[Mapping[type[Frozen], dict[str, Any]]] = {
    Retry: {"attempts": 1},
    Breaker: {"failures": 0},
    Health: dict.fromkeys(Health.model_fields, "off"),
    Screen: {"mode": "off"},
}
"""What `off` means for a rule that is always there."""
_NUMBER: Final[Mapping[type[Frozen], str]] = {Retry: "attempts", Breaker: "failures", Limits: "at_once"}
"""The field that a plain number stands for."""


def read_model(
    model: type[M], value: Any, at: KeyPath, findings: Findings, off: Mapping[str, Any] | None = None
) -> M | None:
    """`value` as a model. `off` (or false) is `off`, a number the model's main field; None where it does not fit."""
    off = OFF.get(model) if off is None else off
    if (value is False or value == "off") and off is not None:
        value = dict(off)
    elif isinstance(value, int) and not isinstance(value, bool) and model in _NUMBER:
        value = {_NUMBER[model]: value}
    elif value is True and off is not None:
        value = {}
    if not isinstance(value, dict):
        shorthand = " or 'off'" if off is not None else ""
        findings.error(at, f"must be a mapping with {', '.join(model.model_fields)}{shorthand}")
        return None
    known = only_known(value, model.model_fields, at, findings)
    try:
        return model.model_validate({key: _listed(model, key, one) for key, one in known.items() if one is not None})
    except ValidationError as error:
        for inner, text in error.errors:
            findings.error((*at, *inner), text)
        return None


def by_mode(given: Given | None) -> Given | None:
    """A word alone is a `mode`; YAML reads the modes inside of a mapping as booleans, where they are `off`."""
    if given is None:
        return None
    value = {"mode": given.value} if isinstance(given.value, str) and given.value != "off" else given.value
    if isinstance(value, dict) and value.get("mode") is False:
        value = {**value, "mode": "off"}
    return Given(value, given.at)


def _listed(model: type[Frozen], key: str, value: Any) -> Any:
    """One text where a list of texts is meant."""
    return [value] if isinstance(value, str) and is_list(model.model_fields[key].type) else value


def read_filters(fields: Fields) -> dict[str, Filter]:
    """{kind: Filter} of `enable_*` and `disable_*` in every dialect."""
    found: dict[str, Filter] = {}
    for kind in ("tools", "resources", "prompts"):
        values: dict[str, tuple[str, ...]] = {}
        for half in ("allow", "deny", "allow_tags", "deny_tags"):
            name = f"filters.{kind}.{half}"
            if name not in fields or fields.given[name].value is None:
                continue
            given = fields.given[name]
            if given.value == "*" and half == "allow":
                continue
            texts = fields.texts(name)
            if half != "allow" or texts != ("*",):
                values[half] = texts
        both = set(values.get("allow", ())) & set(values.get("deny", ()))
        if both:
            at = fields.given[f"filters.{kind}.deny"].at
            fields.error(at, f"refuses {', '.join(sorted(both))}, which is allowed here as well; keep one of them")
        if values:
            found[kind] = Filter(**values)
    return found


def read_steps(value: Any, at: KeyPath, findings: Findings) -> tuple[PostProcess, ...]:
    """`postprocess`: one step or a list of them, each a name or a mapping."""
    steps = []
    many = isinstance(value, list)
    for index, one in enumerate(value if many else [value]):
        place = (*at, index) if many else at
        step = read_model(PostProcess, {"step": one} if isinstance(one, str) else one, place, findings)
        if step is not None and not _is_step(step.step):
            findings.error(place, "must be truncate, select_text, json or 'module:function'")
        elif step is not None:
            steps.append(step)
    return tuple(steps)


def _is_step(step: str) -> bool:
    module, colon, function = step.partition(":")
    if not colon:
        return step in ("truncate", "select_text", "json")
    return all(part.isidentifier() for part in module.split(".")) and function.isidentifier()


_TOOL_ALIASES: Final = {"rename": "name", "disabled": "enabled", "description_override": "description"}
_OF_OTHERS: Final = frozenset({"approval_mode", "meta", "annotations", "enabled", "arguments"})


def read_tools(
    value: Mapping[str, Any], presets: Mapping[str, Any] | None, at: KeyPath, findings: Findings
) -> tuple[dict[str, ToolRules], tuple[str, ...]]:
    """({pattern: rules}, names that are switched off) of the mapping `tools`.

    FastMCP's transforms are understood as far as they mean a rule of ours: `enabled: false`, and arguments that are
    hidden behind a default.
    """
    found: dict[str, ToolRules] = {}
    off: list[str] = []
    for name, rules in value.items():
        place = (*at, name)
        if rules is None:
            continue
        if not isinstance(rules, dict):
            findings.error(place, f"must be a mapping with {', '.join(ToolRules.model_fields)}")
            continue
        if rules.get("enabled") is False:
            off.append(name)
        values = {key: one for key, one in rules.items() if key not in _OF_OTHERS and one is not None}
        hidden = _hidden_arguments(rules.get("arguments"), (*place, "arguments"), findings)
        if hidden:
            values["preset"] = {**hidden, **_mapping(values.get("preset"), (*place, "preset"), findings)}
        if "postprocess" in values:
            values["postprocess"] = read_steps(values["postprocess"], (*place, "postprocess"), findings)
        rule = read_model(ToolRules, values, place, findings)
        if rule is not None and rule != ToolRules():
            found[name] = rule
    for name, arguments in (presets or {}).items():
        preset = _mapping(arguments, ("preset", name), findings)
        before = found.get(name, ToolRules())
        found[name] = before.model_copy(update={"preset": {**before.preset, **preset}})
    return found, tuple(off)


def _hidden_arguments(value: Any, at: KeyPath, findings: Findings) -> dict[str, Any]:
    hidden: dict[str, Any] = {}
    for name, change in _mapping(value, at, findings).items():
        if isinstance(change, dict) and change.get("hide") is True and "default" in change:
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


_PINS: Final[Mapping[str | bool, PinMode]] = {**{mode: mode for mode in get_args(PinMode)}, False: "off"}


def read_rules(fields: Fields, findings: Findings, at: KeyPath) -> dict[str, Any]:
    """The fields of a Server that are rules; what the entry does not say is absent."""
    values: dict[str, Any] = {"filters": read_filters(fields)}
    presets = fields.mapping("preset")
    tools = _given(fields, "tools")
    off: tuple[str, ...] = ()
    if tools is not None or presets:
        written = tools.value if tools is not None else {}
        place = tools.at if tools is not None else at
        plain = {name: given.value for name, given in (presets or {}).items()}
        values["tools"], off = read_tools(written, plain, place, findings)
    descriptions = fields.mapping("descriptions") or {}
    for name in descriptions:
        rule = values.setdefault("tools", {}).get(name, ToolRules())
        text = fields.inner(descriptions).text(name)
        if rule.description is None and text is not None:
            values["tools"][name] = rule.model_copy(update={"description": text})
    if off:
        before = values["filters"].get("tools", Filter())
        values["filters"]["tools"] = before.model_copy(update={"deny": (*before.deny, *off)})
    if "tags" in fields:
        values["tags"] = _tags(fields)
    if (given := _given(fields, "postprocess")) is not None:
        values["postprocess"] = read_steps(given.value, given.at, findings)
    for name, model in (("retry", Retry), ("breaker", Breaker), ("limits", Limits), ("health", Health)):
        if (given := _given(fields, name)) is not None:
            values[name] = read_model(model, given.value, given.at, findings)
    if (screen := by_mode(_given(fields, "screen"))) is not None:
        values["screen"] = read_model(Screen, screen.value, screen.at, findings)
    values["pins"] = fields.choice("pins", _PINS)
    if (given := _given(fields, "labels")) is not None:
        values["labels"] = _labels(given, findings)
    return {name: value for name, value in values.items() if value is not None}


def _labels(given: Given, findings: Findings) -> dict[str, tuple[str, ...]]:
    """A list of labels is of everything the server has; a mapping says which label is of which names."""
    words = get_args(Label)
    value = given.value
    if isinstance(value, list) and all(isinstance(label, str) for label in value):
        value = {label: ["*"] for label in value}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        findings.error(given.at, f"must be a list of {', '.join(words)}, or a mapping of them to names")
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for label, names in value.items():
        patterns = [names] if isinstance(names, str) else names
        if label not in words:
            findings.error((*given.at, label), f"is no label; there are {', '.join(words)}")
        elif not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
            findings.error((*given.at, label), "must be a name, a pattern, or a list of them")
        else:
            found[label] = tuple(patterns)
    return found


def _tags(fields: Fields) -> tuple[str, ...]:
    given = fields.given["tags"]
    if isinstance(given.value, str):
        return (given.value,)
    return fields.texts("tags")


def _given(fields: Fields, name: str) -> Given | None:
    given = fields.given.get(name)
    return None if given is None or given.value is None else given
