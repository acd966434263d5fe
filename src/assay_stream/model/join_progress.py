"""How far the join has come: what it goes by where the offsets of its group were lost or set back.

Evidence alone does not tell: re-routed calls are joined out of order, and by another partition's owner.
"""

import orjson
from typing_extensions import TypedDict

from assay_stream.errors import IntegrityError
from assay_stream.model.fields import Natural

KEY = b"progress"


class JoinProgress(TypedDict):
    """The next offsets to read of the call partition and of the re-routed partition of this number."""

    calls: Natural
    rerouted: Natural


def write_progress(progress: JoinProgress) -> bytes:
    return orjson.dumps(progress)


def read_progress(value: bytes | None) -> JoinProgress:
    """Decode a record of the progress topic.

    Raises:
        IntegrityError: ``foreign_fact`` if no join wrote it.
    """
    try:
        content = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        content = None
    match content:
        case {"calls": int(calls), "rerouted": int(rerouted)} if min(calls, rerouted) >= 0:
            return JoinProgress(calls=calls, rerouted=rerouted)
    raise IntegrityError(
        "foreign_fact", "the topic of the join's progress holds a record that is not ours: find who writes to it"
    )
