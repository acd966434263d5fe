"""Validate observations as the stream will, and build operators' decisions as control-topic events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from assay_stream.canonical.decode import is_unicode
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.model.record import Origin, Record
from assay_stream.observe.observation import Observation, control_event


def decision_event(
    kind: str, data: Mapping[str, Any], *, author: str, event_id: str, decided_at: datetime
) -> Observation:
    """Return the event of an operator's decision, validated as the stream will validate it.

    Raises:
        InputError: if the stream would reject it, with the path of the bad field.
    """
    for name, value in {**data, "author": author}.items():
        # A shell passes bytes that are not UTF-8 on as surrogates.
        if isinstance(value, str) and not is_unicode(value):
            raise InputError("lone_surrogate", "a lone surrogate is not Unicode text", path=f"$.data.{name}")
    given = {name: value for name, value in data.items() if value is not None}
    source = f"urn:assay-stream:operator:{quote(author, safe='')}"
    observation = control_event(source, kind, given, event_id=event_id, at=decided_at)
    check_observation(observation)
    return observation


def check_observation(observation: Observation) -> None:
    """Raise the error with which the stream would reject an observation.

    Raises:
        InputError: with the path of the bad field.
    """
    read_event(
        Record(
            role=observation.role,
            origin=Origin(topic="", partition=0, offset=0),
            key=observation.key,
            value=observation.value,
            headers=observation.headers,
            timestamp_ms=observation.timestamp_ms,
        )
    )
