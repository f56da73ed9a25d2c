"""The types of settings: the check of each annotation, secret texts, durations and sizes as people write them.

Texts such as `30` and `yes` are accepted as numbers and booleans, because a variable's value is always a text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, NoReturn, Union, get_args, get_origin

import msgspec

from mcp_hub.config.findings import KeyPath, dotted

_STARS: Final = "**********"


class SecretStr:
    """A text that is shown as stars. `get_secret_value` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """Returns the text itself."""
        return self._text

    def __str__(self) -> str:
        return _STARS if self._text else ""

    def __repr__(self) -> str:
        return f"SecretStr('{self}')"

    def __len__(self) -> int:
        return len(self._text)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, SecretStr) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


Check = Callable[[Any], Any]
"""Returns the value as the model keeps it. Raises ValidationError."""

_BOOLEANS: Final = {
    **dict.fromkeys((True, "true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys((False, "false", "f", "no", "n", "off", "0"), False),
}
_INTEGER: Final = re.compile(r"([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0*)?")


class ValidationError(ValueError):
    """Values do not fit their types. `errors` has the place and the text of each; no text quotes a value."""

    def __init__(self, errors: Iterable[tuple[KeyPath, str]]) -> None:
        self.errors: tuple[tuple[KeyPath, str], ...] = tuple(errors)
        super().__init__("; ".join(f"{dotted(at)}: {text}" if at else text for at, text in self.errors))


class Before(msgspec.Struct, frozen=True):
    """In `Annotated`: `parse` converts the value before its type is checked. Its ValueError becomes the error."""

    parse: Check


class After(msgspec.Struct, frozen=True):
    """In `Annotated`: `check` gets the value after its type is checked. Its ValueError becomes the error."""

    check: Check


class Synonyms(msgspec.Struct, frozen=True, eq=False):
    """In `Annotated`: further words for values, and the value that each means."""

    words: Mapping[str, str]

    def word(self, value: Any) -> Any:
        """Returns the value that a word means."""
        return self.words.get(value, value) if isinstance(value, str) else value


def check_of(hint: Any) -> Check:
    """Returns the check of an annotation. Raises TypeError for a type that is not supported."""
    if hint is Any:
        return _as_it_is
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and hasattr(hint, "model_validate"):
        nested: Check = hint.model_validate
        return nested
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        check = check_of(inner[0])
        for note in inner[1:]:
            check = _apply_note(check, note)
        return check
    if origin is Literal:
        return _choice(inner)
    if origin in (Union, UnionType) and len(inner) == 2 and type(None) in inner:
        return _optional(check_of(next(argument for argument in inner if argument is not type(None))))
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return _list(check_of(inner[0]))
    if origin is tuple:
        return _row([check_of(argument) for argument in inner])
    if origin is dict:
        return _mapping(check_of(inner[0]), check_of(inner[1]))
    raise TypeError(f"there is no check for {hint}")


def is_noted(hint: Any) -> bool:
    """Returns whether a type has notes."""
    return get_origin(hint) is Annotated


def plain(hint: Any) -> Any:
    """Returns a type without notes and without None."""
    while is_noted(hint) or type(None) in get_args(hint):
        hint = next(inner for inner in get_args(hint) if inner is not type(None))
    return hint


def is_list(hint: Any) -> bool:
    """Returns whether values of this type are lists."""
    return get_origin(plain(hint)) is tuple


def _apply_note(check: Check, note: Any) -> Check:
    if isinstance(note, Before):
        return _chain(note.parse, check)
    if isinstance(note, After):
        return _chain(check, note.check)
    if isinstance(note, msgspec.Meta):
        return _chain(check, _bounds(note))
    if isinstance(note, Synonyms):
        return _chain(note.word, check)
    return check  # a note for others


def _chain(first: Check, second: Check) -> Check:
    def check(value: Any) -> Any:
        try:
            return second(first(value))
        except ValidationError:
            raise
        except ValueError as error:
            _refuse(str(error))

    return check


def _bounds(meta: msgspec.Meta) -> Check:
    def check(value: Any) -> Any:
        # Negated, so that NaN is outside of every bound.
        if meta.ge is not None and not value >= meta.ge:
            _refuse(f"must be {meta.ge:g} or more")
        if meta.gt is not None and not value > meta.gt:
            _refuse(f"must be more than {meta.gt:g}")
        if meta.le is not None and not value <= meta.le:
            _refuse(f"must be {meta.le:g} or less")
        if meta.min_length is not None and len(value) < meta.min_length:
            _refuse(f"must have at least {meta.min_length}")
        return value

    return check


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("must be a text")


def boolean(value: Any) -> bool | None:
    """Returns the boolean that a value means, also as a word such as `yes`, or as 0 or 1; None if it means none."""
    word = value.strip().lower() if isinstance(value, str) else value
    return _BOOLEANS.get(word) if isinstance(word, str | int | float) else None


def _flag(value: Any) -> bool:
    meant = boolean(value)
    return _refuse("must be true or false") if meant is None else meant


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        _refuse("must be a whole number")
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, str) and len(value) <= 100 and (match := _INTEGER.fullmatch(value.strip())) is not None:
        return int(match[1])
    return _refuse("must be a whole number")


def _number(value: Any) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return _refuse("must be a number")


def _path(value: Any) -> Path:
    if value == "":
        _refuse("must not be empty")
    return Path(value) if isinstance(value, str | Path) else _refuse("must be a path")


def _secret(value: Any) -> SecretStr:
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()  # also a secret type of another library
    return SecretStr(_text(value))


def _choice(choices: Sequence[Any]) -> Check:
    text = f"must be one of {', '.join(choices)}"

    def check(value: Any) -> Any:
        if value is False and "off" in choices:
            return "off"  # YAML 1.1 reads `off` as false
        return value if isinstance(value, str) and value in choices else _refuse(text)

    return check


def _optional(inner: Check) -> Check:
    def check(value: Any) -> Any:
        return None if value is None else inner(value)

    return check


def _list(inner: Check) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            return (inner(value),)  # a single text stands for a list of one
        return _each((index, inner, item) for index, item in enumerate(_items(value)))

    return check


def _row(inner: Sequence[Check]) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        items = list(_items(value))
        if len(items) != len(inner):
            _refuse(f"must be a list of {len(inner)}")
        return _each((index, check, item) for index, (check, item) in enumerate(zip(inner, items, strict=True)))

    return check


def _mapping(of_key: Check, of_value: Check) -> Check:
    def check(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            _refuse("must be a mapping")
        parts = [(str(key), pair, (key, item)) for key, item in value.items()]
        return dict(_each(parts))

    def pair(item: tuple[Any, Any]) -> tuple[Any, Any]:
        return of_key(item[0]), of_value(item[1])

    return check


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | Set):
        _refuse("must be a list")
    return value


def _each(parts: Iterable[tuple[str | int, Check, Any]]) -> tuple[Any, ...]:
    """Checks every value by its own check, and raises all errors together."""
    values: list[Any] = []
    errors: list[tuple[KeyPath, str]] = []
    for at, check, value in parts:
        try:
            values.append(check(value))
        except ValidationError as error:
            errors += [((at, *inner), text) for inner, text in error.errors]
    if errors:
        raise ValidationError(errors)
    return tuple(values)


def _refuse(text: str) -> NoReturn:
    raise ValidationError([((), text)])


_PLAIN: Final[Mapping[Any, Check]] = {
    str: _text,
    bool: _flag,
    int: _integer,
    float: _number,
    Path: _path,
    SecretStr: _secret,
}


_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"\s*(\d+)\s*(B|KiB|MiB|GiB|KB|MB|GB)?\s*", re.IGNORECASE)
_UNIT_BYTES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_duration(value: Any) -> float:
    """Returns seconds for `30`, `1.5`, `"30"`, `"30s"`, `"500ms"`, `"20m"` or `"1h"`. Raises ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a duration is a number of seconds or a text like '30s', '20m', '500ms'")
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            # The text is not quoted, as it may come from a variable.
            raise ValueError("not a duration; write 30, '30s', '20m' or '500ms'")
        value = float(match[1]) * _UNIT_SECONDS[match[2] or "s"]
    if not 0 < value <= sys.float_info.max:
        raise ValueError("a duration must be greater than zero, and finite")
    return float(value)


def parse_size(value: Any) -> int:
    """Returns bytes for `1048576`, `"64MiB"` or `"10MB"`. Raises ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size is a number of bytes or a text like '64MiB'")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("not a size; write 1048576, '64MiB' or '10MB'")
        value = int(match[1]) * _UNIT_BYTES[(match[2] or "B").lower()]
    if value <= 0:
        raise ValueError("a size must be greater than zero")
    return int(value)


def parse_optional_duration(value: Any) -> float | None:
    """Returns seconds, or None for `off`. Raises ValueError for others."""
    return None if value is None or value is False or value == "off" else parse_duration(value)


DescriptionLength = Literal["full", "first_sentence"] | int
"""How much of a description is shown; a number is the most tokens."""


def parse_description_length(value: Any) -> DescriptionLength:
    """Returns `full`, `first_sentence` or a number of tokens. Raises ValueError for others."""
    if value in ("full", "first_sentence"):
        length: DescriptionLength = value
        return length
    try:
        tokens = _integer(value)
    except ValidationError:
        tokens = 0
    if tokens < 1:
        raise ValueError("must be full, first_sentence, or a number of tokens")
    return tokens


Duration = Annotated[float, Before(parse_duration)]
OptionalDuration = Annotated[float | None, Before(parse_optional_duration)]
Size = Annotated[int, Before(parse_size)]
DescriptionLimit = Annotated[Any, Before(parse_description_length)] | None
