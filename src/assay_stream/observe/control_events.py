"""What an operator's tool publishes: decisions as CloudEvents for the control topic.

Pure builders: ids and times are passed in. A decision takes effect from its event time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import orjson

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.model.record import Origin, Record, Role
from assay_stream.observe.events import Observation, observation_headers, rfc3339, timestamp_ms


def control_event(
    kind: str, data: Mapping[str, Any], *, author: str, event_id: str, decided_at: datetime
) -> Observation:
    """Return the event of one decision, checked as the stream will check it.

    Args:
        kind: an event type of ``model.control``.
        data: the decision; what is ``None`` is left out.
        author: who decides.
        event_id: unique among the events of this author.
        decided_at: from when on it counts; must know its time zone.

    Raises:
        InputError: where the stream would refuse it, with the path of what is wrong.
    """
    for name, value in {**data, "author": author}.items():
        if isinstance(value, str) and not _is_unicode(value):
            raise InputError("lone_surrogate", "half a surrogate pair is no Unicode text", path=f"$.data.{name}")
    event = {
        "specversion": "1.0",
        "type": kind,
        "source": f"urn:assay-stream:operator:{quote(author, safe='')}",
        "id": event_id,
        "time": rfc3339(decided_at),
        "datacontenttype": "application/json",
        "data": {name: value for name, value in data.items() if value is not None},
    }
    observation = Observation(
        kind="control",
        key=str(data["server_id"]).encode(),
        value=orjson.dumps(event),
        headers=observation_headers(None),
        timestamp_ms=timestamp_ms(decided_at),
    )
    read_event(
        Record(
            role=Role.CONTROL,
            origin=Origin(topic="", partition=0, offset=0),
            key=observation.key,
            value=observation.value,
            headers=observation.headers,
            timestamp_ms=observation.timestamp_ms,
        )
    )
    return observation


def _is_unicode(text: str) -> bool:
    # What a shell passes on as bytes that are no UTF-8 arrives as surrogates.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
