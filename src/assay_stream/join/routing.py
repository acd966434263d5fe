"""Which partition a call belongs in, and re-routing of one that came in another.

1. A server belongs to one partition of the bindings, murmur2 of its id. The call partitions that are equal to it modulo
   the number of binding partitions are its own: joining one of them takes the bindings of that one only.
2. A call that came in another partition is copied to its server's in the topic of re-routed calls, once. The copy names
   the call's own place, so that evidence and all other outputs are those of the call where it came.
3. Only the join writes that topic. A copy that is in a wrong partition again is refused.
"""

from typing import NamedTuple

import orjson

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Origin, Output, Record, Role, home_of, size_bytes

FIRST_ORIGIN = "assay-first-origin"
"""Header of a re-routed call: topic, partition and offset of the call, and its log time in milliseconds."""

_INT64_MAX = 2**63 - 1
"""No record can be written with a greater value, and joining it would stop the stage."""

LABEL = "rerouted"
"""Label that re-routed calls are counted under."""


class Routing(NamedTuple):
    """How calls are spread over partitions.

    Args:
        calls: number of call partitions, a multiple of ``bindings``.
        bindings: number of binding partitions.
    """

    calls: int
    bindings: int

    def needed_by(self, partition: int) -> int:
        return partition % self.bindings

    def is_home(self, server_id: str, partition: int) -> bool:
        return home_of(server_id, self.bindings) == partition % self.bindings

    def home_near(self, server_id: str, partition: int) -> int:
        """Return the partition that a call is re-routed to: neighbouring partitions stay spread."""
        return partition - partition % self.bindings + home_of(server_id, self.bindings)


def reroute(record: Record, server_id: str, routing: Routing) -> Output:
    """Return the copy of a call that goes to a partition of its server.

    Raises:
        InputError: ``too_large`` if the topic of copies would not accept it.
    """
    if size_bytes(record.key, record.value, record.headers) > DEFAULT_LIMITS.rerouted_bytes_max:
        text = f"a call that is not in a partition of its server may have {DEFAULT_LIMITS.rerouted_bytes_max} bytes"
        raise InputError("too_large", f"{text}, with key and headers: leave headers out, or use the key server_id")
    # Not by RFC 8785, whose numbers are doubles: a producer may set any time.
    place = {**record.origin.as_json(), "timestamp_ms": record.timestamp_ms}
    first = orjson.dumps(place, option=orjson.OPT_SORT_KEYS)
    return Output(
        role=Role.REROUTED,
        key=record.key,
        value=record.value,
        headers=(*record.headers, (FIRST_ORIGIN, first)),
        timestamp_ms=record.timestamp_ms,
        partition=routing.home_near(server_id, record.origin.partition),
        label=LABEL,
    )


def call_in(copy: Record, *, topic: str, partitions: int) -> Record:
    """Return the call that a re-routed record copies, as it was where it came.

    Args:
        topic: the topic of calls.
        partitions: its number of partitions.

    Raises:
        InputError: ``bad_reroute`` if no join wrote the record.
    """
    *headers, (name, value) = copy.headers or (("", b""),)
    try:
        first = orjson.loads(value) if name == FIRST_ORIGIN else None
    except orjson.JSONDecodeError:
        first = None
    match first:
        case {"topic": str(named), "partition": int(number), "offset": int(offset), "timestamp_ms": int(timestamp_ms)}:
            numbers = (number, offset, timestamp_ms)
            if named == topic and number < partitions and all(type(n) is int and 0 <= n <= _INT64_MAX for n in numbers):
                return copy._replace(
                    role=Role.CALLS,
                    origin=Origin(topic, number, offset),
                    headers=tuple(headers),
                    timestamp_ms=timestamp_ms,
                )
    raise InputError("bad_reroute", f"the last header of a re-routed call is {FIRST_ORIGIN} with a place in {topic}")
