"""The base of all settings: frozen models, checked when they are made; and the configuration keys of policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, dataclass_transform, get_args

import msgspec

from mcp_hub.config.field_types import Check, ValidationError, boolean, check_of, is_noted, plain
from mcp_hub.config.findings import Findings, KeyPath, only_known

if TYPE_CHECKING:
    from mcp_hub.config.fields import FieldValue
    from mcp_hub.config.models import Config, Server
    from mcp_hub.config.variables import VariableScope


Exposed = Literal["auto", "all", "search", "code"]
"""Which tools are listed to a client. `all`: all; `search`: a few, and a search for the others; `code`: a few, and a
tool whose code calls the others; `auto`: by client and size."""


class FrozenMeta(msgspec.StructMeta):
    """Makes model classes, and checks the values of their objects."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> FrozenMeta:
        """Makes a model class.

        The `__dict__` of an object has the names of the fields that were given. Equality and hash ignore it.
        """
        model: FrozenMeta = super().__new__(mcls, name, bases, namespace, frozen=True, kw_only=True, dict=True)
        return model

    if not TYPE_CHECKING:  # type checkers would take its signature for that of every model

        def __call__(cls, /, **values: Any) -> Any:
            """Makes an object of the given values and defaults."""
            return cls.made_of(values)

    @property
    def model_fields(cls) -> Mapping[str, msgspec.structs.FieldInfo]:
        """The fields by name, in the order of the class."""
        return _fields(cls)

    def made_of(cls, arguments: Mapping[str, Any]) -> Any:
        """Makes an object of the given values and defaults. Raises ValidationError with all errors."""
        values: dict[str, Any] = {}
        errors: list[tuple[KeyPath, str]] = []
        # Most objects have only defaults, which need no checks.
        checks = _checks(cls) if arguments or _needs_values(cls) else {}
        for name, (check, required) in checks.items():
            if name in arguments:
                try:
                    values[name] = check(arguments[name])
                except ValidationError as error:
                    errors += [((name, *at), text) for at, text in error.errors]
            elif required:
                errors.append(((name,), "is missing"))
        errors += [((str(name),), "is not known") for name in arguments if name not in checks]
        if errors:
            raise ValidationError(errors)
        try:
            return cls._instance(values)
        except ValidationError:
            raise
        except ValueError as error:  # of __post_init__, which checks fields together
            raise ValidationError([((), str(error))]) from None

    def _instance(cls, values: Mapping[str, Any]) -> Any:
        instance = super().__call__(**values)
        instance.__dict__["set_fields"] = frozenset(values)
        return instance


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Frozen(msgspec.Struct, metaclass=FrozenMeta, frozen=True):
    """An immutable model. Its errors never quote a value.

    It is made of values as written, in a file or in Python, and raises ValidationError if they are not valid.
    `__post_init__` checks fields together; its ValueError becomes a ValidationError.
    """

    NOT_SHOWN: ClassVar[frozenset[str]] = frozenset()
    """Fields that `repr` leaves out, as they may hold secrets."""
    OFF: ClassVar[Mapping[str, Any] | None] = None
    """The values that `off` stands for in a file; None if `off` is not allowed."""
    SHORT: ClassVar[Mapping[type, str]] = {}
    """The field that a plain number, text or list in a file stands for, by its type."""

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Returns the model itself, or makes one of a mapping. Raises ValidationError."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValidationError([((), "must be a mapping")])
        instance: Self = cls.made_of(value)
        return instance

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

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.NOT_SHOWN]
        return f"{type(self).__name__}({', '.join(fields)})"


def _needs_values(cls: FrozenMeta) -> bool:
    return len(cls.__struct_defaults__) < len(cls.__struct_fields__) or msgspec.NODEFAULT in cls.__struct_defaults__


@cache
def _fields(cls: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


@cache
def _checks(cls: type[msgspec.Struct]) -> dict[str, tuple[Check, bool]]:
    """Returns {field: (check, required)}. It is made with the first object, as most files need few classes."""
    return {name: (check_of(field.type), field.required) for name, field in _fields(cls).items()}


@cache
def keys_of(model: type[Frozen]) -> dict[str, Key]:
    """Returns the fields of a model that are keys of entries, by name."""
    notes = {name: get_args(field.type)[1:] for name, field in model.model_fields.items() if is_noted(field.type)}
    return {name: note for name, members in notes.items() for note in members if isinstance(note, Key)}


M = TypeVar("M", bound=Frozen)


def read_model(
    model: type[M], value: Any, at: KeyPath, findings: Findings, scope: VariableScope | None = None
) -> M | None:
    """Reads a model from the value at `at` of a file; None, with errors in the findings, if it is not valid.

    `off` and `false` stand for the model's `OFF`, a plain value for the field that `SHORT` names, `true` for its
    defaults, switched on. Paths are relative to the file of `scope`.
    """
    is_on = boolean(value) if isinstance(value, str | bool) and model.OFF is not None else None
    if is_on is False:
        value = dict(model.OFF or {})
    elif is_on:
        value = {key: True for key, item in (model.OFF or {}).items() if item is False}
    elif type(value) in model.SHORT:
        value = {model.SHORT[type(value)]: value}
    if not isinstance(value, dict):
        shorthand = " or 'off'" if model.OFF is not None else ""
        findings.error(at, f"must be a mapping with {', '.join(model.model_fields)}{shorthand}")
        return None
    known_values = only_known(value, model.model_fields, at, findings, model.model_fields)
    values = {key: item for key, item in known_values.items() if item is not None}
    if scope is not None:
        paths = {key for key, item in values.items() if plain(model.model_fields[key].type) is Path}
        values |= {key: scope.path(values[key]) for key in paths if isinstance(values[key], str) and values[key]}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        for inner, text in error.errors:
            findings.error((*at, *inner), text)
        return None


class KeyReading(msgspec.Struct, frozen=True):
    """The context in which the value of a policy's key is read."""

    findings: Findings
    scope: VariableScope
    ids: Collection[str] = ()
    """For keys of the root: the ids of all servers."""


T = TypeVar("T")
Owner = TypeVar("Owner", "Server", "Config")
ReadKey = Callable[["FieldValue", KeyReading], T | None]
"""Returns the setting for a value; None, with errors in the findings, if it is not valid."""


class Key(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What a key of entries is. As a note in the annotation of a field of `Server` it makes the field a key."""

    spellings: tuple[str, ...] = ()
    """Further names of the key, the hub's older ones and those of clients."""
    in_defaults: bool = False
    """Whether `defaults` may set it for all entries."""
    restricts: bool = False
    """Whether it restricts what is allowed, so that a misspelt key is an error, and an empty value counts."""
    effect: Literal["offer", "grant", "reach"] = "grant"
    """`offer`: it decides what is offered, and when. `grant`: also what a server or its callers may do, which belongs
    to what a user trusts. `reach`: how the server is started and reached; then the live page does not show it either,
    as it may hold secrets."""
    reconnects: bool = True
    """Whether the hub connects anew when a field changes."""
    builtins: tuple[str, ...] = ()
    """The built-in servers that it is for; (): all servers."""
    keeps_empty: bool = False
    """Whether an empty value is a value. Else it means that the key is absent, as templates of clients write all."""
    meaning: str = ""
    """What the reference says of it, if no field does."""


class PolicyKey(Key, Generic[T, Owner], frozen=True, eq=False):
    """A key that belongs to one policy."""

    name: str
    read: ReadKey[T]
    default: T
    """The setting without the key."""

    def of(self, owner: Owner) -> T:
        """Returns the setting of an entry or a configuration."""
        setting: T = owner.settings.get(self.name, self.default)
        return setting

    def changed(self, owner: Owner, setting: T) -> Owner:
        """Returns the entry or the configuration with another setting."""
        return owner.model_copy(update={"settings": {**owner.settings, self.name: setting}})

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings."""
        return (self.name, *self.spellings)


class EntryKey(PolicyKey[T, "Server"], frozen=True, eq=False):
    """A key of entries."""


class RootKey(PolicyKey[T, "Config"], frozen=True, eq=False):
    """A key at the top of a file."""

    needs_restart: bool = False
    """Whether a change takes effect with the next start only."""


class KeyTable(msgspec.Struct, frozen=True, dict=True):
    """The keys of all policies. A policy may define a key that is otherwise known as one of other hosts."""

    entry: tuple[EntryKey[Any], ...] = ()
    root: tuple[RootKey[Any], ...] = ()

    @classmethod
    def of(cls, keys: Iterable[EntryKey[Any] | RootKey[Any]]) -> Self:
        """Returns the table of some keys. Raises ValueError if two of them have a name in common."""
        policy_keys = tuple(keys)
        table = cls(
            tuple(key for key in policy_keys if isinstance(key, EntryKey)),
            tuple(key for key in policy_keys if isinstance(key, RootKey)),
        )
        for kind, names in ((table.entry, table.entry_names), (table.root, table.root_names)):
            if len(names) != sum(1 + len(key.spellings) for key in kind):
                raise ValueError(f"two policies have one key: {', '.join(key.name for key in kind)}")
        return table

    @cached_property
    def entry_names(self) -> Mapping[str, str]:
        """Key of an entry as written -> name of the key."""
        return {spelling: key.name for key in self.entry for spelling in key.names}

    @cached_property
    def root_names(self) -> frozenset[str]:
        """Keys of the root in all spellings."""
        return frozenset(spelling for key in self.root for spelling in key.names)

    @cached_property
    def defaults(self) -> frozenset[str]:
        """Keys, in all spellings, that `defaults` may set."""
        return frozenset(spelling for key in self.entry if key.in_defaults for spelling in key.names)


def restricting(keys: Iterable[EntryKey[Any] | RootKey[Any]]) -> frozenset[str]:
    """Returns the names of the keys that restrict something, in all spellings."""
    return frozenset(name for key in keys if key.restricts for name in key.names)


def model_key(model: type[M]) -> ReadKey[M]:
    """Returns the reader of a key whose value is a model."""
    return lambda field, reading: read_model(model, field.value, field.at, reading.findings, reading.scope)


def parsed_key(parse: Callable[[Any], T]) -> ReadKey[T]:
    """Returns the reader of a key whose value `parse` reads; the text of its ValueError is the error."""

    def read(field: FieldValue, reading: KeyReading) -> T | None:
        try:
            return parse(field.value)
        except ValueError as error:
            reading.findings.error(field.at, str(error))
            return None

    return read
