"""Requests to ``ingest``: whose they are, and the events in them (CloudEvents HTTP binding 1.0.2).

A file lists the clients, with hashes of their tokens:

    [[clients]]
    observer_id = "gateway-1"
    servers = ["time", "github-*"]
    token = "sha256:9f86d0..."            # made by: assay-stream ingest token
    expires = 2027-01-31T00:00:00Z

    [[clients]]
    observer_id = "gateway-2"
    servers = ["*"]
    certificate = "DNS:gateway-2.internal"

A token has 256 random bits, so its plain hash cannot be turned back; nothing that is not made so counts as a token.

An event is held against the rules of the stage that reads its topic, so that nothing is accepted here that a stage
rejects. What is published is what the Python publisher makes of the same observation: structured mode, the event's own
bytes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import orjson

from assay_stream.bindings.offers import check_offer
from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.local import config_of, entries_of, no_field
from assay_stream.limits import DEFAULT_LIMITS, INGEST_LIMITS, IngestLimits, Limits
from assay_stream.model.cloudevents import event_time_us, read_call, read_event
from assay_stream.model.fields import compile_glob
from assay_stream.model.observation import CallData, CallEvent, CallProfile, SnapshotEvent
from assay_stream.model.plain_call import is_native
from assay_stream.model.record import OBSERVER_HEADER, Origin, Record
from assay_stream.model.rejected import Mark, mark_of
from assay_stream.observe.http.messages import media_type
from assay_stream.observe.observation import (
    KIND_OF,
    ROLE_OF,
    Observation,
    ObservationKind,
    Vantage,
    observation_headers,
    with_keyed_digests,
)
from assay_stream.observe.recorded import recorded_observation
from assay_stream.observe.wire import trace_of
from assay_stream.text.times import time_us_of

TOKEN_PREFIX = "asi_"  # noqa: S105 - what every token begins with
"""So that scanners for secrets find one that got out."""

_TOKEN = re.compile(TOKEN_PREFIX + "[A-Za-z0-9_-]{43}")
_TOKEN_HASH = re.compile("sha256:[0-9a-f]{64}")
_CERTIFICATE = re.compile(r"(?:DNS|URI):\S+")
_FIELDS = ("observer_id", "servers", "token", "certificate", "expires")
_SHAPE = "observer_id, servers (a list), either token or certificate, and optionally expires"


class RequestRefused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A request that is not taken, with the status and the code of its answer. The text quotes nothing of it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Unauthorized(RequestRefused):
    def __init__(self, message: str) -> None:
        super().__init__(401, "unauthorized", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """An authorised client.

    Args:
        vantage: the observer that it is; its server is of no matter.
        servers: globs over the servers that it may report on.
        expires_us: when its token ends, microseconds since the epoch.
    """

    vantage: Vantage
    servers: tuple[re.Pattern[str], ...]
    expires_us: int | None = None

    @property
    def observer_id(self) -> str:
        return self.vantage.observer_id

    def may_report_on(self, server_id: str) -> bool:
        return any(each.match(server_id) for each in self.servers)


class KnownClients:
    def __init__(self, entries: Mapping[str, KnownClient]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, authorization: Sequence[str], names: Sequence[str], *, now_us: int) -> KnownClient:
        if len(authorization) > 1:
            raise Unauthorized("there are two Authorization fields: send one")
        found = [self._entries[name] for name in dict.fromkeys(names) if name in self._entries]
        if authorization:
            found.append(self._of_token(authorization[0]))
        if not found:
            raise Unauthorized("send Authorization: Bearer and a token, or a client certificate that is listed")
        if any(each.observer_id != found[0].observer_id for each in found):
            raise Unauthorized("token and certificate belong to different clients")
        client = found[-1]
        if client.expires_us is not None and now_us >= client.expires_us:
            raise Unauthorized("this client's entry has expired: make a new token with assay-stream ingest token")
        return client

    def _of_token(self, authorization: str) -> KnownClient:
        scheme, _, token = authorization.partition(" ")
        token = token.strip(" ")
        if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
            raise Unauthorized("send Authorization: Bearer TOKEN, with a token that assay-stream ingest token made")
        try:
            return self._entries[hash_of(token)]
        except KeyError:
            raise Unauthorized("this token is not known: it may have been withdrawn") from None


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def read_clients(raw: bytes, where: str) -> KnownClients:
    """Return the clients that a file lists.

    Args:
        raw: its bytes, TOML.
        where: its name, for messages.

    Raises:
        ConfigurationError: ``bad_clients``, naming the entry, and quoting no value of it.
    """
    content = config_of(raw, where, "bad_clients")
    listed = entries_of(content, "clients", where, "bad_clients", entries_max=INGEST_LIMITS.clients_max)
    entries: dict[str, KnownClient] = {}
    for number, entry in enumerate(listed, 1):
        key, client = _entry(entry, f"{where}, entry {number}")
        if key in entries:
            raise _bad(f"{where}, entry {number}", "an entry before has the same token or certificate")
        entries[key] = client
    return KnownClients(entries)


def _entry(entry: Any, where: str) -> tuple[str, KnownClient]:
    if isinstance(entry, dict) and (strange := entry.keys() - _FIELDS):
        raise _bad(where, no_field(strange, _FIELDS))
    servers = entry.get("servers") if isinstance(entry, dict) and "observer_id" in entry else None
    if not isinstance(servers, list) or not servers or not all(isinstance(name, str) and name for name in servers):
        raise _bad(where, f"give {_SHAPE}")
    if not all(isinstance(value, str) for name, value in entry.items() if name not in ("servers", "expires")):
        raise _bad(where, f"give {_SHAPE}")
    token, certificate = entry.get("token"), entry.get("certificate")
    if (token is None) == (certificate is None):
        raise _bad(where, "give either token or certificate")
    if token is not None and not _TOKEN_HASH.fullmatch(token):
        raise _bad(where, "token must be the hash of one, sha256: and 64 hexadecimal digits, and never the token")
    if certificate is not None and not _CERTIFICATE.fullmatch(certificate):
        raise _bad(where, "certificate must be DNS: or URI: and a subject alternative name")
    try:
        expires_us = time_us_of(str(entry["expires"])) if "expires" in entry else None
        patterns = tuple(compile_glob(name) for name in servers)
        # The name stands for the servers.
        vantage = Vantage(server_id="-", observer_id=entry["observer_id"])
    except (InputError, ConfigurationError) as error:
        raise _bad(where, error.message) from None
    except TypeError:
        raise _bad(where, "expires must be a time with its offset: 2027-01-31T00:00:00Z") from None
    return token or certificate or "", KnownClient(vantage=vantage, servers=patterns, expires_us=expires_us)


def _bad(where: str, why: str) -> ConfigurationError:
    return ConfigurationError("bad_clients", f"{where}: {why}")


STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
BINARY = "application/json"
"""Content type of the data of an event in binary mode."""

NOT_YOURS = "not_yours"
_NOWHERE = Origin("", 0, 0)
_ORDER = ("specversion", "type", "source", "id", "time", "datacontenttype", "traceparent")
_ATTRIBUTE = re.compile("[a-z0-9]+")


class _Head(msgspec.Struct):
    """What tells where an event belongs. Of equal keys the last one is read; the stage's rules refuse them all."""

    type: str = ""


_HEADS = msgspec.json.Decoder(_Head)
_IGNORED_MAX, _IGNORED_CHARS_MAX = 8, 64


@lru_cache(maxsize=8)
def _batches(events_max: int) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return what reads that many events and one more, and skips the rest: 16 MiB of zeros are eight million."""
    places = [(f"event_{number}", msgspec.Raw, None) for number in range(events_max + 1)]
    return msgspec.json.Decoder(msgspec.defstruct("Batch", places, array_like=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent:
    observation: Observation | None = None
    mark: Mark = b""
    error: InputError | None = None
    ignored: Sequence[str] = ()
    """Members of a call that no stage reads: of a later release, or misspelt."""


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
        kind = self._kind(raw)
        record = Record(ROLE_OF[kind], _NOWHERE, None, raw)
        event: Any
        if kind == "call":
            event = data = read_call(record, limits=self.limits, call_profile=self.call_profile)
        else:
            event = read_event(record, limits=self.limits)
            data = event.data
        yield len(raw)
        ignored: Sequence[str] = ()
        if isinstance(event, CallEvent) and event.fields is None:  # a plain call has none
            strange = orjson.loads(raw)["data"].keys() - CallData.__annotations__
            ignored = sorted(name[:_IGNORED_CHARS_MAX] for name in strange)[:_IGNORED_MAX]
        if isinstance(event, SnapshotEvent):
            yield from check_offer(event.data, self.limits)
        for path, is_theirs in (
            ("$.data.observer_id", data.observer_id == client.observer_id),
            ("$.data.server_id", client.may_report_on(data.server_id)),
            ("$.source", event.source == client.vantage.source),
        ):
            if not is_theirs:
                why = "this client may not publish under that name: see the file of clients"
                raise InputError("not_yours", why, path=path)
        time_ms = (event.time_us if is_native(event) else event_time_us(event)) // 1_000
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
        mark = mark_of(client.observer_id, event.source, event.id)
        return JudgedEvent(observation=observation, mark=mark, ignored=ignored)

    def _kind(self, raw: bytes) -> ObservationKind:
        try:
            stated = _HEADS.decode(raw).type
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "list"  # whose rules say what is wrong
        if stated not in KIND_OF:
            raise InputError("unknown_type", f"events of type {', '.join(KIND_OF)} are taken here", path="$.type")
        return KIND_OF[stated]

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
