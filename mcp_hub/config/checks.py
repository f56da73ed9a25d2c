"""What a type allows, as a function that reads values of it: from what files and callers write to what models keep.

Texts of numbers and of `yes` and `no` are read as what they say, because a variable can only be a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, NoReturn, Union, get_args, get_origin

import msgspec

from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.config.secret_str import SecretStr

Check = Callable[[Any], Any]
"""Gives back the value as it is kept. Raises ValidationError."""

_TRUE: Final = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "f", "no", "n", "off", "0"})
_WHOLE: Final = re.compile(r"([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0*)?")


class ValidationError(ValueError):
    """Values that do not fit. `errors` has place and words of each; neither quotes a value."""

    def __init__(self, errors: Iterable[tuple[KeyPath, str]]) -> None:
        self.errors: tuple[tuple[KeyPath, str], ...] = tuple(errors)
        super().__init__("; ".join(f"{dotted(at)}: {text}" if at else text for at, text in self.errors))


class Before(msgspec.Struct, frozen=True):
    """In `Annotated`: `parse` makes of what is written what the type is about. Its ValueError is the error."""

    parse: Check


class After(msgspec.Struct, frozen=True):
    """In `Annotated`: `check` looks at what has the type already. Its ValueError is the error."""

    check: Check


def check_of(hint: Any) -> Check:
    """The check of one annotation. Raises TypeError for a type that no setting has had so far."""
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
            check = _noted(check, note)
        return check
    if origin is Literal:
        return _choice(inner)
    if origin in (Union, UnionType) and len(inner) == 2 and type(None) in inner:
        return _optional(check_of(next(one for one in inner if one is not type(None))))
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return _list(check_of(inner[0]))
    if origin is tuple:
        return _row([check_of(one) for one in inner])
    if origin is dict:
        return _mapping(check_of(inner[0]), check_of(inner[1]))
    raise TypeError(f"there is no check for {hint}")


def is_list(hint: Any) -> bool:
    """Whether values of this type are lists."""
    return get_origin(get_args(hint)[0] if get_origin(hint) is Annotated else hint) is tuple


def _noted(check: Check, note: Any) -> Check:
    if isinstance(note, Before):
        return _then(note.parse, check)
    if isinstance(note, After):
        return _then(check, note.check)
    if isinstance(note, msgspec.Meta):
        return _then(check, _bounds(note))
    raise TypeError(f"there is no check for {note!r}")


def _then(first: Check, second: Check) -> Check:
    def check(value: Any) -> Any:
        try:
            return second(first(value))
        except ValidationError:
            raise
        except ValueError as error:
            _refuse(str(error))

    return check


def _bounds(meta: msgspec.Meta) -> Check:
    pattern = None if meta.pattern is None else re.compile(meta.pattern)

    def check(value: Any) -> Any:
        # Written so that what is not a number is outside of every bound.
        if meta.ge is not None and not value >= meta.ge:
            _refuse(f"input should be greater than or equal to {meta.ge:g}")
        if meta.gt is not None and not value > meta.gt:
            _refuse(f"input should be greater than {meta.gt:g}")
        if meta.le is not None and not value <= meta.le:
            _refuse(f"input should be less than or equal to {meta.le:g}")
        if meta.min_length is not None and len(value) < meta.min_length:
            _refuse(f"must have at least {meta.min_length}")
        if pattern is not None and pattern.search(value) is None:
            _refuse(f"string should match pattern '{meta.pattern}'")
        return value

    return check


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("must be a text")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else value
    if isinstance(word, str) and (word in _TRUE or word in _FALSE):
        return word in _TRUE
    if isinstance(word, int | float) and word in (0, 1):
        return bool(word)
    return _refuse("must be true or false")


def _whole(value: Any) -> int:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, str) and len(value) <= 100 and (match := _WHOLE.fullmatch(value.strip())) is not None:
        return int(match[1])
    return _refuse("must be a whole number")


def _number(value: Any) -> float:
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return _refuse("must be a number")


def _path(value: Any) -> Path:
    return Path(value) if isinstance(value, str | Path) else _refuse("must be a path")


def _secret(value: Any) -> SecretStr:
    if isinstance(value, SecretStr):
        return value
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()  # as other libraries have them
    return SecretStr(_text(value))


def _choice(words: Sequence[Any]) -> Check:
    shown = [repr(word) for word in words]
    text = " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))

    def check(value: Any) -> Any:
        return value if isinstance(value, str) and value in words else _refuse(f"input should be {text}")

    return check


def _optional(inner: Check) -> Check:
    def check(value: Any) -> Any:
        return None if value is None else inner(value)

    return check


def _list(inner: Check) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
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
        keys = _each((str(key), of_key, key) for key in value)
        return dict(zip(keys, _each((str(key), of_value, item) for key, item in value.items()), strict=True))

    return check


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | Set):
        _refuse("must be a list")
    return value


def _each(parts: Iterable[tuple[str | int, Check, Any]]) -> tuple[Any, ...]:
    """Every value by its own check; the errors of all of them together."""
    found: list[Any] = []
    errors: list[tuple[KeyPath, str]] = []
    for at, check, value in parts:
        try:
            found.append(check(value))
        except ValidationError as error:
            errors += [((at, *inner), text) for inner, text in error.errors]
    if errors:
        raise ValidationError(errors)
    return tuple(found)


def _refuse(text: str) -> NoReturn:
    raise ValidationError([((), text)])


_PLAIN: Final[Mapping[Any, Check]] = {
    str: _text,
    bool: _flag,
    int: _whole,
    float: _number,
    Path: _path,
    SecretStr: _secret,
}
