"""One declaration per record: reader, writer and JSON Schema follow from a frozen dataclass.

The fields of the dataclass are the members of the record's JSON object, under the same names:

1. A field without a default is always written. One that holds its default is left out, unless it is ``ALWAYS`` written.
2. A field whose value has another form on the wire is annotated with ``Wire``. Origins, enumerations and tuples need
   none: they are written as objects, texts and lists.
3. The fields that ``fact`` names stand in the record's key instead, behind the kind of fact.

Reading checks names and types (``msgspec.convert``), not what annotations say beyond the type (patterns, bounds): that
is for the published schema. Only assay-stream writes these records, and what it reads back is taken as written or
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache
from operator import attrgetter
from threading import Lock
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, create_model

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import Closed, Natural, OriginField
from assay_stream.model.record import Origin, Position

_Record = TypeVar("_Record")
_Convert = Callable[[Any], Any]

FactKey = tuple[str | int | bool, ...]
ALWAYS = "written even where it holds its default"
_FIRST_READ = Lock()
FACTS: dict[str, type[BaseFact]] = {}
"""What ``fact`` has declared, by kind. ``facts.FACT_CLASSES`` has all of them."""


class Wire(NamedTuple):
    """How a value stands on the wire.

    Args:
        form: its type there, as the schema has it.
        write: makes that of the value, ``None`` where both are the same.
        read: makes of that what the field's own type takes, ``None`` where it takes it as it is.
    """

    form: Any
    write: _Convert | None = None
    read: _Convert | None = None


_TEXTS: dict[str, str] = {}


def shared(text: str) -> str:
    """Intern a text: ids and digests occur in many facts."""
    if len(_TEXTS) >= DEFAULT_LIMITS.shared_texts_max:
        _TEXTS.clear()
    return _TEXTS.setdefault(text, text)


def pairs(value_form: Any) -> Wire:
    """Return the wire form of a mapping: a sorted list of names with their values."""
    return Wire(list[tuple[str, value_form]], lambda mapping: sorted(mapping.items()), dict)


def rows(row_form: Any) -> Wire:
    """Return the wire form of a tuple of tuples: a list of lists."""
    return Wire(list[row_form], lambda given: list(map(list, given)))


def nested(cls: type) -> Wire:
    """Return the wire form of a declared record within another one."""
    return Wire(record_model(cls), write_record, lambda content: read_record(cls, content))


class BaseFact:
    """Base of the records of the binding topic; ``fact`` gives each class its kind and the fields of its key."""

    __slots__ = ()
    fact_kind: ClassVar[str]
    key_fields: ClassVar[tuple[str, ...]]
    key_parts: ClassVar[int]
    """How many parts each key has."""
    key: ClassVar[Callable[[Any], FactKey]]
    """Returns the key: the kind, and the fields of the key; an origin takes three places."""


class PlacedFact(BaseFact):
    """What one record states, at a time."""

    __slots__ = ()
    origin: Origin
    time_us: int

    @property
    def position(self) -> Position:
        """The order of such facts: by time, then by the place of their records."""
        return (self.time_us, self.origin)


def fact(kind: str, *key: str) -> Callable[[type[_Record]], type[_Record]]:
    """Declare a class of facts.

    Args:
        kind: its kind, the first part of every key.
        key: the remaining fields of the key, an origin as the last one.
    """

    def declare(cls: type[_Record]) -> type[_Record]:
        assert issubclass(cls, BaseFact)  # noqa: S101 -- a mistake in a declaration shows at import
        cls.fact_kind, cls.key_fields, FACTS[kind] = kind, key, cls
        cls.key_parts = 1 + sum(3 if name == "origin" else 1 for name in key)
        parts: Callable[[Any], FactKey] = attrgetter("fact_kind", *(name for name in key if name != "origin"))
        if "origin" in key:
            cls.key = lambda self: (*parts(self), *self.origin)
        else:
            cls.key = lambda self: parts(self)
        return cls

    return declare


def write_record(record: Any) -> dict[str, Any]:
    """Return the JSON object of a record, without the fields of its key."""
    content = {}
    for name, default, write in _codec(type(record)).written:  # type: ignore[arg-type] # mypy: classes can be hashed
        value = getattr(record, name)
        if value is not default and value != default:
            content[name] = value if write is None else write(value)
    return content


def read_record(cls: type[_Record], content: dict[str, Any]) -> _Record:
    """Return the record that a JSON object holds.

    Args:
        cls: its class, not one of facts.

    Raises:
        AttributeError, TypeError, ValueError or KeyError: if it is no such record.
    """
    return _read(cls, content.copy())


def members_of(form: type, content: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object that has the members of a ``TypedDict``, and no other: what is unknown would get lost.

    Raises:
        AttributeError or ValueError: it has others.
    """
    if content.keys() != form.__annotations__.keys():
        raise ValueError(f"the members are not those of {form.__name__}")
    return content


def read_fact(key: FactKey, content: dict[str, Any]) -> Any:
    """Return the fact that a key and a value hold. Consumes ``content``.

    Raises:
        AttributeError, TypeError, ValueError or KeyError: if it is no fact of this version.
    """
    cls = FACTS[str(key[0])]
    if not content.keys().isdisjoint(cls.key_fields):
        raise ValueError("a field of the key stands in the value")
    for place, name in enumerate(cls.key_fields, start=1):
        if name == "origin":
            content[name] = origin_of_key(list(key[place:]))
        else:
            part = key[place]
            content[name] = shared(part) if isinstance(part, str) else part
    return _read(cls, content)


def origin_of_key(place: list[str | int | bool]) -> Origin:
    """Return the origin in the last three parts of a fact's key."""
    topic, partition, offset = place
    return Origin(topic=shared(str(topic)), partition=int(partition), offset=int(offset))


def record_model(cls: type, **more: Any) -> type[BaseModel]:
    """Return the model of a record's JSON object, for its schema."""
    hints = get_type_hints(cls, include_extras=True)
    members: dict[str, Any] = {
        name: (form, None if type(None) in get_args(form) else ...) for name, form in more.items()
    }
    for name, default in _value_fields(cls):
        form = _wire(hints[name]).form
        if default is MISSING or _is_always(hints[name]):
            members[name] = (form, ...)
        else:
            members[name] = ((Literal[True] if default is False else form) | None, None)
    described = {name: (form, Field(default)) for name, (form, default) in members.items()}
    purpose = (cls.__doc__ or "").split("Args:")[0]
    model: type[BaseModel] = create_model(cls.__name__, __base__=Closed, __doc__=purpose, **described)  # type: ignore[call-overload]
    return model


def key_form(cls: type[BaseFact]) -> Any:
    """Return the type of the keys of a class of facts, for its schema."""
    hints = get_type_hints(cls, include_extras=True)
    parts: list[Any] = [Literal[cls.fact_kind]]
    for name in cls.key_fields:
        form = _wire(hints[name]).form
        parts.extend((str, Natural, Natural) if form is OriginField else (form,))
    return tuple[tuple(parts)]  # type: ignore[misc]


def _value_fields(cls: type) -> list[tuple[str, Any]]:
    """Return names and defaults of the members of the JSON object; ``MISSING`` where there is no default."""
    in_key = cls.key_fields if issubclass(cls, BaseFact) else ()
    return [
        (field.name, field.default_factory() if field.default_factory is not MISSING else field.default)
        for field in fields(cls)
        if field.name not in in_key
    ]


class _Codec(NamedTuple):
    """How a class is written and read.

    Args:
        written: name, default (one that no value equals, where the member is always written) and writer of each member.
        names: all members, those of the key included.
        always: the members that must be there.
        read: the readers of members.
    """

    written: tuple[tuple[str, Any, _Convert | None], ...]
    names: frozenset[str]
    always: frozenset[str]
    read: dict[str, _Convert]


@cache
def _codec(cls: type) -> _Codec:
    hints = get_type_hints(cls, include_extras=True)
    found = {name: (MISSING if _is_always(hints[name]) else default) for name, default in _value_fields(cls)}
    wires = {field.name: _wire(hints[field.name]) for field in fields(cls)}
    in_key = cls.key_fields if issubclass(cls, BaseFact) else ()
    return _Codec(
        tuple((name, default, wires[name].write) for name, default in found.items()),
        frozenset(wires),
        frozenset(name for name, default in found.items() if default is MISSING),
        {name: wire.read for name, wire in wires.items() if wire.read and not (name in in_key and name == "origin")},
    )


@cache
def _read_codec(cls: type) -> _Codec:
    """Return the codec of a class that may be read from now on, in any thread."""
    import msgspec

    # While msgspec reads a class for the first time, other threads get what it knows of it so far, and crash.
    with _FIRST_READ, suppress(msgspec.ValidationError):
        msgspec.convert({}, cls)
    return _codec(cls)


def _read(cls: type[_Record], content: dict[str, Any]) -> _Record:
    import msgspec  # a proxy reads no records, and the base install goes without it

    codec = _read_codec(cls)  # type: ignore[arg-type] # as above
    if not codec.always <= content.keys() <= codec.names:
        raise ValueError(f"the members of {cls.__name__} are others")
    for name, read in codec.read.items():
        if name in content:
            content[name] = read(content[name])
    try:
        return msgspec.convert(content, cls)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _is_always(hint: Any) -> bool:
    return get_origin(hint) is Annotated and ALWAYS in get_args(hint)


def _wire(hint: Any) -> Wire:
    base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    more = [extra for extra in more if extra != ALWAYS]
    for extra in more:
        if isinstance(extra, Wire):
            return extra
    if base is Origin:
        return Wire(OriginField, Origin.as_json, lambda place: Origin(**place))
    if isinstance(base, type) and issubclass(base, StrEnum):
        return Wire(base, lambda member: member.value)
    if get_origin(base) is tuple and get_args(base)[-1] is ...:
        form: Any = list[get_args(base)[0]]  # type: ignore[misc]
        return Wire(_annotated(form, more), list)
    return Wire(_annotated(base, more))


def _annotated(form: Any, more: list[Any]) -> Any:
    return Annotated[(form, *more)] if more else form
