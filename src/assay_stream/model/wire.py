"""One declaration per record: reader, writer and JSON Schema follow from a frozen dataclass.

The fields of the dataclass are the members of the record's JSON object, under the same names:

1. A field without a default is always written. One that holds its default is left out, unless it is ``ALWAYS`` written.
2. A field whose value has another form on the wire is annotated with ``Wire``. Origins, enumerations and tuples need
   none: they are written as objects, texts and lists.
3. The fields that ``fact`` names stand in the record's key instead, behind the kind of fact.

Annotations beyond the type (patterns, bounds) are what the published schema says. Reading does not check them again:
only assay-stream writes these records, and what it reads back is taken as written or refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, create_model

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.fields import Closed, Natural, OriginField
from assay_stream.model.record import Origin

_Record = TypeVar("_Record")
_Convert = Callable[[Any], Any]

FactKey = tuple[str | int | bool, ...]
ALWAYS = "written even where it holds its default"
FACTS: dict[str, type[BaseFact]] = {}
"""What ``fact`` has declared, by kind. ``facts.FACT_CLASSES`` has all of them."""


class Wire(NamedTuple):
    """How a value stands on the wire.

    Args:
        form: its type there, as the schema has it.
        write: makes that of the value, ``None`` where both are the same.
        read: makes the value of that.
    """

    form: Any
    write: _Convert | None = None
    read: _Convert | None = None


_TEXTS: dict[str, str] = {}


def shared(text: str) -> str:
    """Return an equal text that was read before, if there is one: ids and digests stand in many facts."""
    if len(_TEXTS) >= DEFAULT_LIMITS.shared_texts_max:
        _TEXTS.clear()
    return _TEXTS.setdefault(text, text)


def pairs(value_form: Any) -> Wire:
    """Return the wire form of a mapping: a sorted list of names with their values."""
    return Wire(list[tuple[str, value_form]], lambda mapping: sorted(mapping.items()), dict)


def rows(row_form: Any) -> Wire:
    """Return the wire form of a tuple of tuples: a list of lists."""
    width = len(get_args(row_form))

    def read(given: list[list[Any]]) -> tuple[tuple[Any, ...], ...]:
        if any(len(row) != width for row in given):
            raise ValueError(f"a row has {width} parts")
        return tuple(map(tuple, given))

    return Wire(list[row_form], lambda given: list(map(list, given)), read)


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


def fact(kind: str, *key: str) -> Callable[[type[_Record]], type[_Record]]:
    """Declare a class of facts.

    Args:
        kind: its kind, the first part of every key.
        key: the fields that follow, an origin as the last one.
    """

    def declare(cls: type[_Record]) -> type[_Record]:
        assert issubclass(cls, BaseFact)  # noqa: S101 -- a mistake in a declaration shows at import
        cls.fact_kind, cls.key_fields, FACTS[kind] = kind, key, cls
        cls.key_parts = 1 + sum(3 if name == "origin" else 1 for name in key)
        parts = ", ".join(f"{'*' * (name == 'origin')}self.{name}" for name in key)
        cls.key = _compiled(f"def key(self): return ({kind!r}, {parts})", {})
        return cls

    return declare


def write_record(record: Any) -> dict[str, Any]:
    """Return the JSON object of a record, without the fields of its key."""
    content: dict[str, Any] = _codec(type(record)).write(record)
    return content


def read_record(cls: type[_Record], content: dict[str, Any]) -> _Record:
    """Return the record that a JSON object holds.

    Args:
        cls: its class, not one of facts.

    Raises:
        AttributeError, TypeError, ValueError or KeyError: where it is no such record.
    """
    found: _Record = _codec(cls).read((), content)
    return found


def read_fact(key: FactKey, content: dict[str, Any]) -> Any:
    """Return the fact that a key and a value hold.

    Raises:
        AttributeError, TypeError, ValueError or KeyError: where it is no fact of this version.
    """
    return _codec(FACTS[str(key[0])]).read(key, content)


def origin_of_key(place: list[str | int | bool]) -> Origin:
    """Return the origin that the last three parts of a fact's key name."""
    topic, partition, offset = place
    return Origin(topic=str(topic), partition=int(partition), offset=int(offset))


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
    model: type[BaseModel] = create_model(cls.__name__, __base__=Closed, __doc__=_purpose(cls), **described)  # type: ignore[call-overload]
    return model


def key_form(cls: type[BaseFact]) -> Any:
    """Return the type of the keys of a class of facts, for its schema."""
    hints = get_type_hints(cls, include_extras=True)
    parts: list[Any] = [Literal[cls.fact_kind]]
    for name in cls.key_fields:
        form = _wire(hints[name]).form
        parts.extend((str, Natural, Natural) if form is OriginField else (form,))
    return tuple[tuple(parts)]  # type: ignore[misc]


def _purpose(cls: type) -> str:
    return (cls.__doc__ or "").split("Args:")[0]


def _value_fields(cls: type) -> list[tuple[str, Any]]:
    """Return names and defaults of what stands in the JSON object; ``MISSING`` where there is no default."""
    in_key = cls.key_fields if issubclass(cls, BaseFact) else ()
    return [
        (field.name, field.default_factory() if field.default_factory is not MISSING else field.default)
        for field in fields(cls)
        if field.name not in in_key
    ]


class _Codec(NamedTuple):
    write: _Convert
    read: Callable[[FactKey, dict[str, Any]], Any]


_CODECS: dict[type, _Codec] = {}


def _codec(cls: type) -> _Codec:
    known = _CODECS.get(cls)
    if known is None:
        known = _CODECS[cls] = _codec_of(cls)
    return known


def _codec_of(cls: type) -> _Codec:
    """Return writer and reader of a class, compiled as ``dataclasses`` compiles a constructor: facts are the many."""
    hints = get_type_hints(cls, include_extras=True)
    names = {name for name, _ in _value_fields(cls)}
    used: dict[str, Any] = {"cls": cls, "names": names, "Origin": Origin}
    used["text"] = _text
    always, optional, arguments = [], [], []
    for name, default in _value_fields(cls):
        form = _wire(hints[name])
        used |= {f"write_{name}": form.write, f"read_{name}": form.read, f"default_{name}": default}
        written = f"write_{name}(self.{name})" if form.write else f"self.{name}"
        taken = f"read_{name}(content[{name!r}])" if form.read else f"content[{name!r}]"
        if default is MISSING or _is_always(hints[name]):
            always.append(f"{name!r}: {written}")
        else:
            present = f"self.{name} is not None" if default is None else f"self.{name} != default_{name}"
            optional.append(f"    if {present}: content[{name!r}] = {written}")
            taken = f"{taken} if {name!r} in content else default_{name}"
        arguments.append(f"{name}={taken}")
    unpacked = ""
    if issubclass(cls, BaseFact):
        known = {name: _wire(hints[name]).read or _plain_type(hints[name]) for name in cls.key_fields}
        used |= {f"read_{name}": convert for name, convert in known.items() if name != "origin"}
        places = ("topic, partition, offset" if name == "origin" else f"key_{name}" for name in known)
        unpacked = f"    _, {', '.join(places)} = key\n"
        arguments += [
            f"{name}=Origin(text(topic), int(partition), int(offset))"
            if name == "origin"
            else f"{name}=read_{name}(key_{name})"
            for name in known
        ]
    write = [f"def write(self):\n    content = {{{', '.join(always)}}}", *optional, "    return content"]
    read = [
        f"def read(key, content):\n{unpacked}    if not content.keys() <= names: raise ValueError",
        f"    return cls({', '.join(arguments)})",
    ]
    return _Codec(_compiled("\n".join(write), used), _compiled("\n".join(read), used))


def _compiled(source: str, used: dict[str, Any]) -> Any:
    made: dict[str, Any] = {}
    exec(source, used, made)  # noqa: S102 -- of names in our own declarations, nothing else
    return next(iter(made.values()))


def _is_always(hint: Any) -> bool:
    return get_origin(hint) is Annotated and ALWAYS in get_args(hint)


def _plain_type(hint: Any) -> _Convert:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return base if isinstance(base, type) and base is not str else _text


def _text(given: Any) -> str:
    return shared(str(given))


def _wire(hint: Any) -> Wire:
    base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    more = [extra for extra in more if extra != ALWAYS]
    for extra in more:
        if isinstance(extra, Wire):
            return extra
    if base is Origin:
        return Wire(OriginField, Origin.as_json, lambda place: place if type(place) is Origin else Origin(**place))
    if isinstance(base, type) and issubclass(base, StrEnum):
        return Wire(base, lambda member: member.value, base)
    if get_origin(base) is tuple and get_args(base)[-1] is ...:
        form: Any = list[get_args(base)[0]]  # type: ignore[misc]
        return Wire(_annotated(form, more), list, tuple)
    return Wire(_annotated(base, more))


def _annotated(form: Any, more: list[Any]) -> Any:
    return Annotated[(form, *more)] if more else form
