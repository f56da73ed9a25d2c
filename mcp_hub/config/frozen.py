"""The base of all models of the configuration: checked when they are made, and immutable."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import msgspec

from mcp_hub.config.field_types import Check, ValidationError, check_of, is_list
from mcp_hub.config.findings import Findings, KeyPath, only_known


class FrozenMeta(msgspec.StructMeta):
    """Makes model classes, and checks the values of their objects."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> FrozenMeta:
        """Makes a model class.

        The `__dict__` of an object has the names of the fields that were given. Equality and hash ignore it.
        """
        made: FrozenMeta = super().__new__(mcls, name, bases, namespace, frozen=True, kw_only=True, dict=True)
        return made

    if not TYPE_CHECKING:  # type checkers would take its signature for that of every model

        def __call__(cls, /, **given: Any) -> Any:
            """Makes an object of the given values and defaults."""
            return cls.made_of(given)

    @property
    def model_fields(cls) -> Mapping[str, msgspec.structs.FieldInfo]:
        """The fields by name, in the order of the class."""
        return _fields(cls)

    def made_of(cls, given: Mapping[str, Any]) -> Any:
        """Makes an object of the given values and defaults. Raises ValidationError with all that does not fit."""
        values: dict[str, Any] = {}
        errors: list[tuple[KeyPath, str]] = []
        # An object of defaults alone needs no checks, and most objects are that.
        checks = _checks(cls) if given or _needs_values(cls) else {}
        for name, (check, required) in checks.items():
            if name in given:
                try:
                    values[name] = check(given[name])
                except ValidationError as error:
                    errors += [((name, *at), text) for at, text in error.errors]
            elif required:
                errors.append(((name,), "is missing"))
        errors += [((str(name),), "is not known") for name in given if name not in checks]
        if errors:
            raise ValidationError(errors)
        try:
            return cls._made(values)
        except ValidationError:
            raise
        except ValueError as error:  # of __post_init__, which checks fields together
            raise ValidationError([((), str(error))]) from None

    def _made(cls, values: Mapping[str, Any]) -> Any:
        made = super().__call__(**values)
        made.__dict__["set_fields"] = frozenset(values)
        return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Frozen(msgspec.Struct, metaclass=FrozenMeta, frozen=True):
    """An immutable model. Its errors never quote a value.

    It is made of values as they are written, in a file or in Python, and raises ValidationError if they do not fit.
    `__post_init__` checks fields together; its ValueError becomes a ValidationError.
    """

    NOT_SHOWN: ClassVar[frozenset[str]] = frozenset()
    """Fields that `repr` leaves out, as they may hold secrets."""
    OFF: ClassVar[Mapping[str, Any] | None] = None
    """The values that `off` stands for in a file; None where `off` means nothing."""
    NUMBER: ClassVar[str | None] = None
    """The field that a plain number in a file stands for."""

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Returns the model itself, or makes one of a mapping. Raises ValidationError."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValidationError([((), "must be a mapping")])
        made: Self = cls.made_of(value)
        return made

    @property
    def model_fields_set(self) -> frozenset[str]:
        """The names of the fields that were given, without those that have their default."""
        names: frozenset[str] = self.__dict__["set_fields"]
        return names

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Returns a copy with `update`, which is not checked. Raises TypeError for unknown fields."""
        copied: Self = super().__copy__()  # type: ignore[misc]  # it is there, written in C
        changes = dict(update or {})
        for name, value in changes.items():
            if name not in self.__struct_fields__:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            msgspec.structs.force_setattr(copied, name, value)
        copied.__dict__["set_fields"] = self.model_fields_set | changes.keys()
        return copied

    def model_dump(self, *, exclude: Mapping[str, Any] | Set[str] = frozenset()) -> dict[str, Any]:
        """Returns the fields as a dict, also of inner models. `exclude`: names, or {name: names of the inner model}."""
        found: dict[str, Any] = {}
        for name in self.__struct_fields__:
            inner = exclude.get(name) if isinstance(exclude, Mapping) else name in exclude or None
            if inner is not None and not isinstance(inner, Mapping | Set):
                continue
            found[name] = _dumped(getattr(self, name), inner or frozenset())
        return found

    def __copy__(self) -> Self:
        return self.model_copy()

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.NOT_SHOWN]
        return f"{type(self).__name__}({', '.join(shown)})"


def _dumped(value: Any, exclude: Mapping[str, Any] | Set[str] = frozenset()) -> Any:
    if isinstance(value, Frozen):
        return value.model_dump(exclude=exclude)
    if isinstance(value, dict):
        return {key: _dumped(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_dumped(one) for one in value)
    return value


def _needs_values(cls: FrozenMeta) -> bool:
    return len(cls.__struct_defaults__) < len(cls.__struct_fields__) or msgspec.NODEFAULT in cls.__struct_defaults__


@cache
def _fields(cls: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


@cache
def _checks(cls: type[msgspec.Struct]) -> dict[str, tuple[Check, bool]]:
    """Returns {field: (check, required)}. It is made with the first object, as most files need few classes."""
    return {name: (check_of(field.type), field.required) for name, field in _fields(cls).items()}


M = TypeVar("M", bound=Frozen)


def read_model(model: type[M], value: Any, at: KeyPath, findings: Findings) -> M | None:
    """Reads a model from what a file has at `at`; None, with errors in the findings, where it does not fit.

    `off` and `false` stand for the model's `OFF`, a plain number for its field `NUMBER`, `true` for its defaults.
    """
    if (value is False or value == "off") and model.OFF is not None:
        value = dict(model.OFF)
    elif isinstance(value, int) and not isinstance(value, bool) and model.NUMBER is not None:
        value = {model.NUMBER: value}
    elif value is True and model.OFF is not None:
        value = {}
    if not isinstance(value, dict):
        shorthand = " or 'off'" if model.OFF is not None else ""
        findings.error(at, f"must be a mapping with {', '.join(model.model_fields)}{shorthand}")
        return None
    known = only_known(value, model.model_fields, at, findings)
    try:
        return model.model_validate({key: _as_list(model, key, one) for key, one in known.items() if one is not None})
    except ValidationError as error:
        for inner, text in error.errors:
            findings.error((*at, *inner), text)
        return None


def _as_list(model: type[Frozen], key: str, value: Any) -> Any:
    """Returns a list of one text where the field is a list and one text was written."""
    return [value] if isinstance(value, str) and is_list(model.model_fields[key].type) else value
