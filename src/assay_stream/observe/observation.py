"""Observations in published form: CloudEvents 1.0 JSON, their vantage, and the tool names that gateways prefix.

Pure builders: ids and times are passed in; every time must be timezone-aware. Definitions are included exactly as
received; arguments and results only as digests.

Prefixes of tool names:

1. A rule is a prefix, separator included, and the server behind it. It holds for every name that begins with it and
   goes on after it.
2. Where the gateway names the server, only that server's prefixes count: a tool of one server cannot pass
   for another's by its name.
3. A name that matches several prefixes is ambiguous: `git_` and `git_hub_` before `hub_x` and `x`
   make the same name. It keeps the shown name, and belongs to no server, as a name that matches none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack
from urllib.parse import quote

import orjson

from assay_stream.canonical.decode import decode_json, is_unicode
from assay_stream.canonical.digest import DigestKey, redacted_digest
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import (
    CALL_TYPE,
    LIST_CHANGED_TYPE,
    LOSS_TYPE,
    OBSERVER_HEADER,
    SNAPSHOT_TYPE,
    Headers,
    Role,
)
from assay_stream.text.times import rfc3339, timestamp_ms

if TYPE_CHECKING:
    from assay_stream.model.observation import CallFacts, Timing

ObservationKind = Literal["list", "call", "control"]
KIND_OF: Mapping[str, ObservationKind] = {
    SNAPSHOT_TYPE: "list",
    LIST_CHANGED_TYPE: "list",
    LOSS_TYPE: "list",
    CALL_TYPE: "call",
}
"""By type of event, what proxies observe; the other types are operators' decisions."""

_SOURCE_CHARS_MAX = 2_048
ROLE_OF: Mapping[ObservationKind, Role] = {"list": Role.SNAPSHOTS, "call": Role.CALLS, "control": Role.CONTROL}

Completeness = Literal["complete", "partial", "unknown"]
Decision = Literal["allow", "deny", "requires_approval", "error"]
EVENT_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max - 16 * 1_024
"""Limit of one event: a record, less room for its key, headers and Kafka's framing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantage:
    """An observer and the server that it observes.

    Args:
        server_id: the operator's name for the server; never what the server calls itself.
        observer_id: the proxy that observes.
        server_scoped: whether definitions are bound to this server's name.
        auth_context: a label (not a secret) for the permissions under which the server was queried.
        shown_prefix: a gateway's prefix of the server's tool names; every name here is the server's own.

    Raises:
        ConfigurationError: ``bad_identifier`` for a name not allowed in records, ``bad_prefix``.
    """

    server_id: str
    observer_id: str
    server_scoped: bool = False
    auth_context: str | None = None
    shown_prefix: str = ""

    def __post_init__(self) -> None:
        if len(self.shown_prefix) > DEFAULT_LIMITS.prefix_chars_max or not is_unicode(self.shown_prefix):
            raise ConfigurationError(
                "bad_prefix", f"a prefix is valid Unicode and has at most {DEFAULT_LIMITS.prefix_chars_max} characters"
            )
        for what in ("server_id", "observer_id", "auth_context"):
            name = getattr(self, what)
            if name is not None:
                _check_name(what, name)
        if len(self.source) > _SOURCE_CHARS_MAX:
            raise ConfigurationError("bad_identifier", "observer_id is too long for a URI: shorten it")

    @property
    def source(self) -> str:
        return f"urn:assay-stream:observer:{quote(self.observer_id, safe='')}"


def _check_name(what: str, name: str) -> None:
    if not is_unicode(name):
        raise ConfigurationError("bad_identifier", f"{what} is not valid Unicode: remove the broken characters")
    if not name.strip() or len(name) > DEFAULT_LIMITS.identifier_chars_max:
        raise ConfigurationError(
            "bad_identifier", f"{what} must have 1 to {DEFAULT_LIMITS.identifier_chars_max} characters, not all blank"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One record to publish; its time is the event's."""

    kind: ObservationKind
    key: bytes
    value: bytes
    headers: Headers
    timestamp_ms: int

    @property
    def role(self) -> Role:
        return ROLE_OF[self.kind]

    @property
    def size_bytes(self) -> int:
        """Size in a queue or a request, without Kafka's framing."""
        return len(self.key) + len(self.value) + sum(len(name) + len(value) for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message with unsound JSON, kept as raw bytes.

    It replaces the tools in an event and makes the event just as unsound: the registry then rejects it with the
    precise reason and marks the server, instead of missing the list.
    """

    raw: bytes


def snapshot_event(
    vantage: Vantage,
    *,
    event_id: str,
    snapshot_id: str,
    observed_at: datetime,
    completeness: Completeness,
    tools: Any,
    protocol_version: str | None = None,
    prompts: list[Any] | None = None,
    resource_templates: list[Any] | None = None,
    instructions: Any = None,
    hidden: Sequence[Mapping[str, str]] = (),
    signatures: Mapping[str, Any] | None = None,
    ttl_ms: int | None = None,
    traceparent: str | None = None,
) -> Observation:
    """Return the event of one ``tools/list`` result.

    Args:
        event_id: unique among this observer's events.
        snapshot_id: referenced by calls.
        completeness: whether these are all the tools the server offers.
        tools: the tools exactly as received (whatever their JSON type), or a ``RawMessage``.
        instructions: what the server tells every model that uses it, as received; ``""`` if it is known to say
            nothing, ``None`` if that is not known.
        hidden: ``name`` and full ``digest`` of each tool withheld from the client.
        ttl_ms: the list's cache lifetime stated by the server, in milliseconds.
    """
    data = {
        "snapshot_id": snapshot_id,
        "server_scoped": vantage.server_scoped,
        "completeness": completeness,
        "auth_context": vantage.auth_context,
        "shown_prefix": vantage.shown_prefix or None,
        "protocol_version": protocol_version,
        "prompts": prompts,
        "resource_templates": resource_templates,
        "instructions": instructions,
        "hidden": list(hidden) or None,
        "signatures": signatures,
        "ttl_ms": ttl_ms,
    }
    event = _event(vantage, SNAPSHOT_TYPE, event_id, observed_at, data, traceparent)
    # The tools come last, so that raw bytes that are not JSON can take their place.
    if isinstance(tools, RawMessage):
        value = _dumps(event)[:-2] + b',"tools":' + tools.raw.strip(b"\r\n") + b"}}"
    else:
        event["data"]["tools"] = tools
        value = _dumps(event)
    return _observation("list", vantage.server_id, vantage.observer_id, value, observed_at, traceparent)


def list_changed_event(
    vantage: Vantage, *, event_id: str, observed_at: datetime, session_id: str | None = None
) -> Observation:
    data = {"session_id": session_id, "auth_context": vantage.auth_context}
    event = _event(vantage, LIST_CHANGED_TYPE, event_id, observed_at, data)
    return _observation("list", vantage.server_id, vantage.observer_id, _dumps(event), observed_at)


def loss_event(vantage: Vantage, *, event_id: str, observed_at: datetime, lists: int, calls: int) -> Observation:
    """Return the event of observations dropped since the last: lists and announcements, and calls."""
    event = _event(vantage, LOSS_TYPE, event_id, observed_at, {"lists": lists, "calls": calls})
    return _observation("list", vantage.server_id, vantage.observer_id, _dumps(event), observed_at)


def call_event(
    vantage: Vantage,
    *,
    event_id: str,
    observed_at: datetime,
    tool_name: str,
    tool_call_id: str,
    decision: Decision,
    reason_code: str,
    traceparent: str | None = None,
    **fields: Unpack[CallFacts],
) -> Observation:
    """Return the event of one ``tools/call``.

    Args:
        event_id: unique among this observer's events.
        observed_at: when the call was seen on its way to the server.
        tool_name: the server's own name for the tool; ``shown_tool_name`` is the caller's, if that differs.
        tool_call_id: unique to this call.
        fields: optional facts. Digests only: never pass arguments or results.
    """
    data: dict[str, Any] = {
        "tool_name": tool_name,
        "tool_call_id": tool_call_id,
        "decision": decision,
        "reason_code": reason_code,
    }
    if vantage.shown_prefix:
        data["shown_tool_name"] = vantage.shown_prefix + tool_name
    present = {name: value for name, value in fields.items() if value is not None}
    event = _event(vantage, CALL_TYPE, event_id, observed_at, data | present, traceparent)
    return _observation("call", vantage.server_id, vantage.observer_id, _dumps(event), observed_at, traceparent)


def timing_of(started_at: datetime, ended_at: datetime, duration_ms: float) -> Timing:
    return {"started_at": rfc3339(started_at), "ended_at": rfc3339(ended_at), "duration_ms": duration_ms}


def control_event(source: str, kind: str, data: Mapping[str, Any], *, event_id: str, at: datetime) -> Observation:
    value = _dumps(_envelope(source, kind, event_id, at, None) | {"data": dict(data)})
    return _observation("control", str(data["server_id"]), None, value, at)


def with_keyed_digests(observation: Observation, key: DigestKey) -> Observation:
    """Return a call whose arguments and result are keyed digests, whatever they were; others stay as they are.

    What no key applies to, a digest of another form or a value that cannot be hashed, is left out.
    """
    if observation.kind != "call":
        return observation
    try:
        # What a forgiving reader makes of an unsound text is not what was observed: it is never hashed.
        event = decode_json(observation.value)
    except InputError:
        event = None
    data = event.get("data") if isinstance(event, dict) else None
    if not isinstance(data, dict):
        return observation  # rejected by whoever reads it
    for name in ("args", "result"):
        digest = data.get(f"{name}_hash")
        if name in data:
            digest = None
            with suppress(InputError):
                digest = str(redacted_digest(data.pop(name), key.redaction))
        keyed = key.keyed(digest) if isinstance(digest, str) else None
        if keyed is not None:
            data[f"{name}_hash"] = keyed
        else:
            data.pop(f"{name}_hash", None)
    return replace(observation, value=_dumps(event))


def observation_headers(traceparent: str | None, *, observer_id: str | None = None) -> Headers:
    headers: Headers = (("content-type", b"application/cloudevents+json"),)
    if observer_id is not None:
        headers = (*headers, (OBSERVER_HEADER, observer_id.encode()))
    return headers if traceparent is None else (*headers, ("traceparent", traceparent.encode()))


def _envelope(source: str, kind: str, event_id: str, at: datetime, traceparent: str | None) -> dict[str, Any]:
    event: dict[str, Any] = {
        "specversion": "1.0",
        "type": kind,
        "source": source,
        "id": event_id,
        "time": rfc3339(at),
        "datacontenttype": "application/json",
    }
    if traceparent is not None:
        event["traceparent"] = traceparent
    return event


def _event(
    vantage: Vantage, kind: str, event_id: str, at: datetime, data: Mapping[str, Any], traceparent: str | None = None
) -> dict[str, Any]:
    known = {name: value for name, value in data.items() if value is not None}
    named = {"server_id": vantage.server_id, "observer_id": vantage.observer_id}
    return _envelope(vantage.source, kind, event_id, at, traceparent) | {"data": named | known}


def _observation(
    kind: ObservationKind, key: str, observer_id: str | None, value: bytes, at: datetime, traceparent: str | None = None
) -> Observation:
    return Observation(
        kind=kind,
        key=key.encode(),
        value=value,
        headers=observation_headers(traceparent, observer_id=observer_id),
        timestamp_ms=timestamp_ms(at),
    )


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson refuses integers beyond 64 bits and lone surrogates. The former are JSON and must survive; the
        # latter are written too, so that the registry and the join can reject them by name.
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnName:
    """The server, if known, and its tool behind a shown name, which stays where no rule applies."""

    tool_name: str
    prefix: str = ""
    server_id: str | None = None


class Prefixes:
    """The rules of one gateway: the server behind each prefix. Raises ``bad_prefix``."""

    def __init__(self, servers: Mapping[str, str]) -> None:
        for prefix, server_id in servers.items():
            # The name of an observer is checked with those of servers.
            Vantage(server_id=server_id, observer_id="-", shown_prefix=prefix)
            if not prefix:
                raise ConfigurationError("bad_prefix", f"the prefix of {server_id!r} is empty: leave it out")
        self._servers = dict(servers)
        self._lengths = sorted({len(prefix) for prefix in servers})

    def own(self, shown: str, *, server_id: str | None = None, among: Collection[str] | None = None) -> OwnName:
        """Resolve a shown name of ``server_id``, or of one ``among`` the servers that the gateway names."""
        candidates = {server_id} if server_id is not None else among
        starts = [shown[:length] for length in self._lengths if length < len(shown)]
        fitting = [(start, self._servers[start]) for start in starts if start in self._servers]
        found = [(prefix, server) for prefix, server in fitting if candidates is None or server in candidates]
        if len(found) != 1:
            return OwnName(tool_name=shown, server_id=server_id)
        [(prefix, server)] = found
        return OwnName(tool_name=shown[len(prefix) :], prefix=prefix, server_id=server)

    def split(
        self, tools: Iterable[Any], *, among: Collection[str] | None = None
    ) -> dict[tuple[str | None, str], list[Any]]:
        """Group the tools of a list by server and prefix, each under its server's own name.

        Tools without a matching rule, and entries without a name, are grouped under no server and no prefix.
        """
        parts: dict[tuple[str | None, str], list[Any]] = {}
        for tool in tools:
            shown = tool.get("name") if isinstance(tool, dict) else None
            own = self.own(shown if isinstance(shown, str) else "", among=among)
            named = {**tool, "name": own.tool_name} if own.prefix else tool
            parts.setdefault((own.server_id, own.prefix), []).append(named)
        return parts


def stated_prefixes(rules: Iterable[str]) -> Prefixes:
    """Parse command-line options, each ``PREFIX=SERVER``; raises ``bad_prefix`` or ``bad_identifier``."""
    servers: dict[str, str] = {}
    for rule in rules:
        prefix, equals, server_id = rule.partition("=")
        if not equals or not prefix or servers.setdefault(prefix, server_id) != server_id:
            raise ConfigurationError(
                "bad_prefix", "write each prefix once, as PREFIX=SERVER, separator included: --prefix github_=github"
            )
    if len(servers) > DEFAULT_LIMITS.prefixes_max:
        raise ConfigurationError("bad_prefix", f"a gateway has at most {DEFAULT_LIMITS.prefixes_max} prefixes")
    return Prefixes(servers)
