"""Keys that are fields of evidence: declared by name, so that nothing else of a record is decoded to key it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, get_type_hints

import msgspec
from msgspec import Struct, defstruct

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.evidence import DecisionPayload
from assay_stream.model.record import Origin, made_of

_KNOWN = frozenset(get_type_hints(DecisionPayload)) - {"origin"}


class Fields:
    """A key function of evidence: the values of some fields of ``data``, or no key where one is missing.

    Args:
        names: the fields, which hold texts: ``Fields("server_id", "tool")``.

    Raises:
        ConfigurationError: ``agent_bad_declaration`` for a field that evidence does not have.
    """

    def __init__(self, *names: str) -> None:
        strange = [name for name in names if name not in _KNOWN]
        if strange or not names:
            why = f"evidence has no field {strange[0]!r}" if strange else "a key needs a field"
            raise ConfigurationError("agent_bad_declaration", f"Fields: {why}; there are {', '.join(sorted(_KNOWN))}")
        self.names = names

    def __call__(self, event: Any) -> tuple[Any, ...] | None:
        data = event.value["data"]
        key = tuple(data.get(name) for name in self.names)
        return None if None in key else key


class Keyed(NamedTuple):
    """Evidence as far as its keys need it.

    Args:
        time_us: event time, microseconds since the epoch.
        origin: the call's.
        keys: one for each reader of evidence, in order.
    """

    time_us: int
    origin: Origin
    keys: list[tuple[str, ...] | None]


class _Place(Struct):
    topic: str
    partition: int
    offset: int


class FieldReader:
    """Reads what some keys need of evidence.

    Args:
        keys: the key functions.
    """

    def __init__(self, keys: Iterable[Fields]) -> None:
        self._names = [key.names for key in keys]
        named = sorted({name for names in self._names for name in names})
        data = defstruct("_Data", [("origin", _Place), *((name, str | None, None) for name in named)])
        event = defstruct("_Evidence", [("time", str), ("data", data)])
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event)

    def read(self, value: bytes | None) -> Keyed | None:
        """Return the keys of a record of evidence, ``None`` where only a full look at it can say what it is."""
        try:
            event = self._decoder.decode(value or b"")
            data = event.data
            place = data.origin
            keys = []
            for names in self._names:
                key = tuple([getattr(data, name) for name in names])
                keys.append(None if None in key else key)
            origin = made_of(Origin, (place.topic, place.partition, place.offset))
            return made_of(Keyed, (time_us_of(event.time), origin, keys))
        except (msgspec.MsgspecError, InputError, AttributeError):
            return None
