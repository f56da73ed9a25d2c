"""The page of the settings that are mappings, made of the models of the configuration."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from mcp_hub.config.credentials import OAuthSettings
from mcp_hub.config.entry_rules import DescriptionLimit, HealthSettings, PostProcessStep, ToolRules
from mcp_hub.config.field_types import Before, Duration, OptionalDuration, SecretStr, Size, parse_duration
from mcp_hub.config.models import Config, Deadlines
from mcp_hub.config.settings import Frozen, Key
from mcp_hub.policy.chain import KEYS
from tests.syntax import parsed_text

PAGES: Final = {
    "settings-root": "Settings at the top of a file",
    "settings-listen": "Settings of the listener",
    "settings-servers": "Settings of a server",
}
"""Page -> its title."""
OF_ENTRIES: Final[Mapping[str, type[Frozen]]] = {
    "deadlines": Deadlines,
    "health": HealthSettings,
    "auth": OAuthSettings,
    "tools.PATTERN": ToolRules,
    "postprocess": PostProcessStep,
}
"""Keys of an entry that are mappings and belong to no policy -> their model."""
NOT_WRITTEN: Final = {"ToolRules": {"input_schema", "in_program"}}
"""Fields that only a program sets."""
FLAT: Final = {"expose"}
"""Settings whose fields are keys of the root themselves."""
DURATIONS: Final = (Duration, OptionalDuration)
TYPE_NAMES: Final = {
    bool: "`true` or `false`",
    int: "number",
    float: "number",
    str: "text",
    Path: "path",
    Any: "anything",
}
PLAIN: Final = {int: "number", str: "text", list: "list"}
UNITS: Final = ((3600.0, "h"), (60.0, "m"), (1.0, "s"))
SIZES: Final = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1000**2, "MB"))

NamedModel = tuple[str, type[Frozen]]
"""A dotted path of keys, and the model of the mapping there."""


def of_root() -> Iterator[NamedModel]:
    """Yields the mappings at the top of a file."""
    for name, hint in hints_of(Config).items():
        if name not in FLAT and name not in ("servers", "settings"):
            yield from mappings(name, hint)
    for key in KEYS.root:
        if isinstance(key.default, Frozen):
            yield from mappings(key.name, type(key.default))


def of_entries() -> Iterator[NamedModel]:
    """Yields the mappings of one server."""
    yield from OF_ENTRIES.items()
    for key in KEYS.entry:
        if isinstance(key.default, Frozen):
            yield from mappings(key.name, type(key.default))


def mappings(name: str, hint: Any, *, named: str = "NAME") -> Iterator[NamedModel]:
    """Yields the mappings that a value of a type has, from the outermost."""
    if isinstance(hint, type) and issubclass(hint, Frozen):
        yield name, hint
        for field, field_hint in hints_of(hint).items():
            yield from mappings(f"{name}.{field}", field_hint)
        return
    by_name = get_origin(hint) in (dict, tuple)
    for inner in get_args(hint):
        yield from mappings(f"{name}.{named}" if by_name else name, inner)


@cache
def paths_of_models() -> dict[type[Frozen], str]:
    """Returns the shortest path of each model: where its keys are listed."""
    paths: dict[type[Frozen], str] = {}
    for name, model in (*of_root(), *of_entries()):
        if model not in paths or len(name) < len(paths[model]):
            paths[model] = name
    return paths


def on_page(page: str) -> Iterator[NamedModel]:
    """Yields the mappings of a page."""
    if page == "settings-servers":
        yield from of_entries()
        return
    for name, model in of_root():
        if (name.partition(".")[0] == "listen") == (page == "settings-listen"):
            yield name, model


def page_of(path: str) -> str:
    """Returns the page that lists the keys of a mapping."""
    return next(f"{page}.md" for page in PAGES if path in dict(on_page(page)))


def anchor(path: str) -> str:
    """Returns the anchor of the section of a mapping."""
    return re.sub(r"[^a-z_]", "", path.lower())


def notes_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def hints_of(model: type[Frozen]) -> dict[str, Any]:
    hints = get_type_hints(model, include_extras=True)
    left_out = NOT_WRITTEN.get(model.__name__, set())
    return {name: without_key(hints[name]) for name in model.model_fields if name not in left_out}


def without_key(hint: Any) -> Any:
    """Returns the type of a field without the note that makes it a key."""
    notes = tuple(note for note in notes_of(hint) if not isinstance(note, Key))
    if notes == notes_of(hint):
        return hint
    return Annotated[(get_args(hint)[0], *notes)] if notes else get_args(hint)[0]


def meanings(model: type[Frozen]) -> dict[str, str]:
    """Returns what the class says of each of its fields."""
    (class_node,) = parsed_text(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(class_node, ast.ClassDef)
    texts = {}
    for field, statement in zip(class_node.body, class_node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(statement, ast.Expr):
            texts[field.target.id] = " ".join(str(ast.literal_eval(statement.value)).split())
    return texts


def type_word(hint: Any) -> str:
    """Returns what may be written for a type."""
    if hint in DURATIONS or parse_duration in [note.parse for note in notes_of(hint) if isinstance(note, Before)]:
        return "duration"
    if hint == DescriptionLimit:
        return "`full`, `first_sentence` or number"
    if hint == Size:
        return "size"
    if isinstance(hint, type) and issubclass(hint, SecretStr):
        return "text, secret"
    if isinstance(hint, type) and issubclass(hint, Frozen):
        path = paths_of_models()[hint]
        return f"[mapping]({page_of(path)}#{anchor(path)})"
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_word(inner[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list: {type_word(inner[0])}"
    if origin is dict:
        return f"mapping: name to {type_word(inner[1])}"
    if origin is Union or type(None) in inner:
        return " or ".join(dict.fromkeys(type_word(member) for member in inner if member is not type(None)))
    return TYPE_NAMES[hint]


def default_word(field: msgspec.structs.FieldInfo, hint: Any) -> str:
    """Returns the default of a field as a file would have it."""
    if field.required:
        return "needed"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return value_word(value, type_word(hint) if isinstance(value, int | float) else "")


def value_word(value: Any, kind: str = "") -> str:
    """Returns a value of a type, as `type_word` has it, as a file would have it."""
    if value is None or value in ((), {}, "") or isinstance(value, Frozen):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if kind == "duration":
        return f"`{in_units(value, UNITS, 'ms' if value < 1 else 's')}`"
    if kind == "size":
        return f"`{in_units(value, SIZES, '')}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def in_units(value: float, units: Any, smallest: str) -> str:
    """Returns a value in the largest unit of which it is a whole multiple."""
    for size, unit in units:
        if value and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value * 1000 if smallest == 'ms' else value:g}{smallest}"


def said_to_users(text: str) -> str:
    """Returns the words of a docstring with what `None` and `()` are to whoever writes a file."""
    text = re.sub(r"(?:\bNone|\(\)):", "if not set,", " ".join(text.split()))
    return re.sub(r"(?:^|(?<=\. ))if not set", "If not set", text)


def sections(models: Iterator[NamedModel]) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """Yields the heading of each mapping with what it is, and a row for each key: key, type, default, meaning."""
    for name, model in models:
        if paths_of_models()[model] != name:
            continue
        hints, texts = hints_of(model), meanings(model)
        rows = [
            (f"`{key}`", type_word(hint), default_word(model.model_fields[key], hint), said_to_users(texts[key]))
            for key, hint in hints.items()
            if not (key == "name" and name.endswith(".NAME"))
        ]
        shorthands = [
            *(f"A plain {PLAIN[kind]} is `{field}`." for kind, field in model.SHORT.items()),
            *(["`off` switches it off."] if model.OFF is not None else []),
        ]
        yield f"## `{name}`\n\n{' '.join([said_to_users(inspect.getdoc(model) or ''), *shorthands])}", rows
