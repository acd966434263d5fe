"""Requests as events: the content modes of the CloudEvents HTTP binding 1.0.2, and what becomes of each event.

An event is held against the rules of the stage that reads its topic, so that nothing is accepted here that a stage
rejects. What is published is what the Python publisher makes of the same observation: structured mode, the event's own
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import orjson

from assay_stream.bindings.offers import check_offer
from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import InputError
from assay_stream.ingest.clients import KnownClient, RequestRefused
from assay_stream.limits import DEFAULT_LIMITS, INGEST_LIMITS, IngestLimits, Limits
from assay_stream.model.cloudevents import event_time_us, read_call, read_event
from assay_stream.model.observation import CallProfile, SnapshotEvent
from assay_stream.model.plain_call import is_native
from assay_stream.model.record import (
    CALL_TYPE,
    LIST_CHANGED_TYPE,
    LOSS_TYPE,
    OBSERVER_HEADER,
    SNAPSHOT_TYPE,
    Origin,
    Record,
    Role,
)
from assay_stream.model.rejected import Mark, mark_of
from assay_stream.observe.http.messages import media_type
from assay_stream.observe.observation import Observation, ObservationKind, observation_headers, with_keyed_digests
from assay_stream.observe.recorded import recorded_observation
from assay_stream.observe.wire import trace_of

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
BINARY = "application/json"
"""Content type of the data of an event in binary mode."""

_KINDS: dict[str, tuple[ObservationKind, Role]] = {
    SNAPSHOT_TYPE: ("list", Role.SNAPSHOTS),
    LIST_CHANGED_TYPE: ("list", Role.SNAPSHOTS),
    LOSS_TYPE: ("list", Role.SNAPSHOTS),
    CALL_TYPE: ("call", Role.CALLS),
}
NOT_YOURS = "not_yours"
_NOWHERE = Origin("", 0, 0)
_ORDER = ("specversion", "type", "source", "id", "time", "datacontenttype", "traceparent")
_ATTRIBUTE = re.compile("[a-z0-9]+")


class _Head(msgspec.Struct):
    """What tells where an event belongs. Of equal keys the last one is read; the stage's rules refuse them all."""

    type: str


_HEADS = msgspec.json.Decoder(_Head)


@lru_cache(maxsize=8)
def _batches(events_max: int) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return what reads that many events and one more, and skips the rest: 16 MiB of zeros are eight million."""
    places = [(f"event_{number}", msgspec.Raw, None) for number in range(events_max + 1)]
    return msgspec.json.Decoder(msgspec.defstruct("Batch", places, array_like=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent:
    """One event of a request."""

    observation: Observation | None = None
    mark: Mark = b""
    error: InputError | None = None


def split(fields: Sequence[tuple[str, str]], body: bytes, *, limits: IngestLimits = INGEST_LIMITS) -> list[bytes]:
    """Return the events of a request, each in structured mode, as the bytes that were sent."""
    [content_type] = [value for name, value in fields if name.lower() == "content-type"] or [""]
    kind = media_type(content_type)
    if "charset=" in content_type.lower() and "utf-8" not in content_type.lower():
        raise RequestRefused(415, "unsupported_media_type", "events are UTF-8: send no other charset")
    if kind == STRUCTURED:
        return [body.strip(b" \t\r\n")]
    if kind == BATCH:
        return _batch(body, limits)
    if kind == BINARY and any(name.lower() == "ce-specversion" for name, _ in fields):
        return [_structured(fields, content_type, body)]
    raise RequestRefused(
        415, "unsupported_media_type", f"send {STRUCTURED}, {BATCH}, or {BINARY} with ce-* fields (binary mode)"
    )


def _batch(body: bytes, limits: IngestLimits) -> list[bytes]:
    try:
        batch = _batches(limits.events_max).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestRefused(422, "not_json", "the batch must be a JSON array of events") from None
    events = [bytes(event) for event in msgspec.structs.astuple(batch) if event is not None]
    if not events:
        raise RequestRefused(422, "not_an_event", "the batch is empty")
    if len(events) > limits.events_max:
        raise RequestRefused(413, "too_many_events", f"a batch may have {limits.events_max} events: send smaller ones")
    return events


def _structured(fields: Iterable[tuple[str, str]], content_type: str, body: bytes) -> bytes:
    """Return an event in binary mode as the publisher would write it (HTTP binding, section 3.1)."""
    stated: dict[str, str] = {"datacontenttype": content_type.strip()}
    for field, value in fields:
        name = field.lower().removeprefix("ce-")
        if name == field.lower():
            continue
        if name in stated or name == "data" or not _ATTRIBUTE.fullmatch(name):
            raise InputError("duplicate_key", "an attribute is stated twice, or under a name that none may have")
        try:
            stated[name] = unquote_to_bytes(value.strip('"')).decode()
        except UnicodeDecodeError:
            raise InputError("not_utf8", "an attribute is not percent-encoded UTF-8") from None
    ordered = {name: stated.pop(name) for name in _ORDER if name in stated} | stated
    return orjson.dumps(ordered)[:-1] + b',"data":' + body.strip(b" \t\r\n") + b"}"


@dataclass(kw_only=True)
class EventJudge:
    """Holds events against the rules of the stages, and against what their client may publish."""

    limits: Limits = DEFAULT_LIMITS
    call_profile: CallProfile = "assay"
    digest_key: DigestKey | None = None

    def steps(
        self, events: Iterable[bytes], client: KnownClient, judged: list[JudgedEvent], *, now_ms: int
    ) -> Iterator[int]:
        """Judge events step by step, and yield how many bytes each step looked at. Safe in several threads.

        A list that the registry will refuse is refused here, too, and yet published if its server and its observer can
        be told: otherwise calls would stay bound to the list before it, whatever the server offers now.

        Args:
            judged: what becomes of each event is added to it.
            now_ms: milliseconds since the epoch; an event may not be far ahead of it.
        """
        for raw in events:
            try:
                found = yield from self._judged(raw, client, now_ms)
            except InputError as error:
                is_theirs = error.code != NOT_YOURS
                found = self._refused(raw, client, error, now_ms) if is_theirs else JudgedEvent(error=error)
            judged.append(found)

    def _judged(self, raw: bytes, client: KnownClient, now_ms: int) -> Generator[int, None, JudgedEvent]:
        kind, role = self._place(raw)
        record = Record(role, _NOWHERE, None, raw)
        event: Any
        if role is Role.CALLS:
            event = data = read_call(record, limits=self.limits, call_profile=self.call_profile)
        else:
            event = read_event(record, limits=self.limits)
            data = event.data
        yield len(raw)
        if isinstance(event, SnapshotEvent):
            yield from check_offer(event.data, self.limits)
        _check(client, event.source, data.server_id, data.observer_id)
        time_ms = _time_us(event) // 1_000
        trace = trace_of(event.traceparent)
        observation = Observation(
            kind=kind,
            key=data.server_id.encode(),
            value=raw,
            headers=observation_headers(None if trace is None else trace[0], observer_id=client.observer_id),
            timestamp_ms=time_ms,
        )
        if self.digest_key is not None:
            observation = with_keyed_digests(observation, self.digest_key)
        error = None
        if time_ms > now_ms + INGEST_LIMITS.future_max_ms:
            error = InputError("time_in_future", "the event time is ahead of the clock: correct it", path="$.time")
        elif observation.size_bytes > self.limits.record_bytes_max:
            error = InputError("too_large", f"{self.limits.record_bytes_max} bytes are allowed with key and headers")
        if error is not None:
            return JudgedEvent(error=error)
        return JudgedEvent(observation=observation, mark=mark_of(client.observer_id, event.source, event.id))

    def _place(self, raw: bytes) -> tuple[ObservationKind, Role]:
        try:
            kind = _HEADS.decode(raw).type
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            kind = SNAPSHOT_TYPE  # whose rules say what is wrong
        if kind not in _KINDS:
            raise InputError("unknown_type", f"events of type {', '.join(_KINDS)} are taken here", path="$.type")
        return _KINDS[kind]

    def _refused(self, raw: bytes, client: KnownClient, error: InputError, now_ms: int) -> JudgedEvent:
        try:
            observation = recorded_observation(raw)
            is_theirs = client.may_report_on(observation.key.decode())
        except (InputError, UnicodeDecodeError):
            return JudgedEvent(error=error)
        is_theirs &= dict(observation.headers).get(OBSERVER_HEADER) == client.observer_id.encode()
        is_now = observation.timestamp_ms <= now_ms + INGEST_LIMITS.future_max_ms
        fits = observation.size_bytes <= self.limits.record_bytes_max
        if observation.kind != "list" or not (is_theirs and is_now and fits):
            return JudgedEvent(error=error)
        # No event has an empty source, so this is the mark of no other.
        return JudgedEvent(
            observation=observation, mark=mark_of(client.observer_id, "", sha256(raw).hexdigest()), error=error
        )


def _time_us(event: Any) -> int:
    return event.time_us if is_native(event) else event_time_us(event)


def _check(client: KnownClient, source: str, server_id: str, observer_id: str) -> None:
    for path, is_theirs in (
        ("$.data.observer_id", observer_id == client.observer_id),
        ("$.data.server_id", client.may_report_on(server_id)),
        ("$.source", source == client.vantage.source),
    ):
        if not is_theirs:
            raise InputError(
                "not_yours", "this client may not publish under that name: see the file of clients", path=path
            )
