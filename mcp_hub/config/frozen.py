"""What all models of the configuration are: checked when they are made, and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

import msgspec

from mcp_hub.config.checks import Check, ValidationError, check_of
from mcp_hub.config.findings import KeyPath


class FrozenMeta(msgspec.StructMeta):
    """Makes the classes; and the objects, from values that fit."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> FrozenMeta:
        # The dict holds what was said; it counts neither for equality nor for the hash.
        made: FrozenMeta = super().__new__(mcls, name, bases, namespace, frozen=True, kw_only=True, dict=True)
        return made

    if not TYPE_CHECKING:  # it would take the place of the fields where types are checked

        def __call__(cls, /, **given: Any) -> Any:
            return cls.made_of(given)

    @property
    def model_fields(cls) -> Mapping[str, msgspec.structs.FieldInfo]:
        """The fields by name, in the order they are written in."""
        return _fields(cls)

    def made_of(cls, given: Mapping[str, Any]) -> Any:
        """An object of what is given and of defaults. Raises ValidationError with all that does not fit."""
        values: dict[str, Any] = {}
        errors: list[tuple[KeyPath, str]] = []
        # Where nothing is said, nothing has to be known of the types: most defaults are made so.
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
        except ValueError as error:  # of __post_init__, which looks at the fields together
            raise ValidationError([((), str(error))]) from None

    def _made(cls, values: Mapping[str, Any]) -> Any:
        made = super().__call__(**values)
        made.__dict__["said"] = frozenset(values)
        return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Frozen(msgspec.Struct, metaclass=FrozenMeta, frozen=True):
    """A model that never changes and never quotes its input.

    It is made of values as they are written, in a file or in Python, and raises ValidationError where they do not fit.
    A model that has to look at several fields together does so in `__post_init__`, whose ValueError becomes that.
    """

    NOT_SHOWN: ClassVar[frozenset[str]] = frozenset()
    """Fields whose values may be secrets."""

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """The model that `value` is or, a mapping, describes. Raises ValidationError."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValidationError([((), "must be a mapping")])
        made: Self = cls.made_of(value)
        return made

    @property
    def model_fields_set(self) -> frozenset[str]:
        """The fields that were said, not those that have their default."""
        said: frozenset[str] = self.__dict__["said"]
        return said

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same but for `update`, which is not checked. Raises TypeError for what is no field."""
        copied: Self = super().__copy__()  # type: ignore[misc]  # it is there, written in C
        changes = dict(update or {})
        for name, value in changes.items():
            if name not in self.__struct_fields__:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            msgspec.structs.force_setattr(copied, name, value)
        copied.__dict__["said"] = self.model_fields_set | changes.keys()
        return copied

    def model_dump(self, *, exclude: Mapping[str, Any] | Set[str] = frozenset()) -> dict[str, Any]:
        """The fields as a dict, models in them as well. `exclude`: names, or {name: what of the model there}."""
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
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.NOT_SHOWN]


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
    """Made when the first object of a class is: most files need few of them."""
    return {name: (check_of(field.type), field.required) for name, field in _fields(cls).items()}
