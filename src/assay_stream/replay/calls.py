"""Calls of a replay joined some at a time, since only what comes between them changes what is in force."""

from collections.abc import Collection, Iterable, Iterator
from itertools import compress

from assay_stream.errors import InputError
from assay_stream.join.processor import Join, process_calls
from assay_stream.limits.files import CALLS_TOGETHER_BYTES_MAX, CALLS_TOGETHER_MAX
from assay_stream.model.cloudevents import Call
from assay_stream.model.record import Output
from assay_stream.replay.order import Placed

_Calls = list[tuple[Placed, Call | InputError]]


def joined_calls(
    join: Join, merged: Iterable[Placed], server_ids: Collection[str] | None
) -> Iterator[tuple[Placed, list[Output] | None]]:
    """Yield records in their places: a call with what the join writes for it, any other with ``None``.

    Args:
        merged: records in order. Of these the caller applies each that is no call before it asks for the next.
        server_ids: calls of other servers lead to nothing; ``None`` for all.
    """
    calls: _Calls = []
    size_bytes = 0
    for placed in merged:
        event = placed.read
        if event is None:
            yield from _written(join, calls, server_ids)
            calls, size_bytes = [], 0
            yield placed, None
            continue
        calls.append((placed, event))
        size_bytes += len(placed.record.value or b"")
        if len(calls) >= CALLS_TOGETHER_MAX or size_bytes >= CALLS_TOGETHER_BYTES_MAX:
            yield from _written(join, calls, server_ids)
            calls, size_bytes = [], 0
    yield from _written(join, calls, server_ids)


def _written(join: Join, calls: _Calls, server_ids: Collection[str] | None) -> Iterator[tuple[Placed, list[Output]]]:
    if server_ids is None:
        found = process_calls(join, [(placed.record, event) for placed, event in calls])
        return zip((placed for placed, _ in calls), found, strict=True)
    wanted = [_is_of(placed, event, server_ids) for placed, event in calls]
    read = [(placed.record, event) for placed, event in compress(calls, wanted)]
    others = iter(process_calls(join, read))
    return ((placed, next(others) if is_wanted else []) for (placed, _), is_wanted in zip(calls, wanted, strict=True))


def _is_of(placed: Placed, event: Call | InputError, server_ids: Collection[str]) -> bool:
    """Tell whether a call is to one of some servers, by its key where it is refused."""
    if isinstance(event, InputError):
        key = placed.record.key
        return key is not None and key.decode("utf-8", "replace") in server_ids
    return event.server_id in server_ids
