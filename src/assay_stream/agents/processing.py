"""Agents over records, in two steps that a worker puts a topic between, and the alerts raised by their detections.

1. ``Rekeying`` copies each record of an input to every key of an agent that reads it.
2. ``AgentState`` passes the copies to the agents one by one, in the order of the internal topic, and keeps their state.

The outputs of either step are in the transaction that commits the record's offset. ``Runner`` has both in
memory, for tests and replays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple
from zlib import crc32

import orjson

from assay_stream.agents.declaration import Agent, AgentSet, Detection, Event, Memory, about, raised
from assay_stream.alerts.processor import apply_entry
from assay_stream.alerts.remembered import Alerts
from assay_stream.alerts.rules import AlertRules
from assay_stream.canonical.digest import jcs_digest
from assay_stream.drift.severity import Level
from assay_stream.errors import ConfigurationError, InputError, IntegrityError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.alert_state import INPUT_HEADER, AgentMemory
from assay_stream.model.finding import AlertAct, Detected, Entry, Finding, Suppression, Tick, decode_entry
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, Role, rejected, set_aside_error
from assay_stream.model.rejected import refusal
from assay_stream.model.state_table import Table
from assay_stream.model.wire import members_of
from assay_stream.text.times import time_us_of

OF_AGENTS = frozenset({Kind.DETECTION, Kind.AGENT_LIMITED})
"""Findings that agents produce but do not read."""

_STATE, _DEFINITION = "state/", "definition/"
_ROLES = {role.value.encode(): role for role in (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.DEFINITIONS)}
_JSON = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_MEMORY_TOPIC = "memory"
_OFFSET_MAX = 2**63 - 1
"""Kafka's own bound."""


class Rekeying:
    """The first step, for any partitions of the inputs.

    Args:
        partitions: number of partitions of the internal topic.
        limits: bounds on keys.
    """

    def __init__(self, agents: AgentSet, *, partitions: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self._agents = agents
        self._partitions = partitions
        self._limits = limits
        # One for each: hashing the limits takes longer than making a key.
        self._key_bytes = lru_cache(maxsize=8_192)(partial(_key_bytes, limits=limits))

    def process(self, record: Record) -> list[Output]:
        """Return copies of an input record under the keys that agents choose.

        Raises:
            ConfigurationError: ``agent_raised``, ``agent_bad_key`` or ``agent_bad_label``, with the agent's name.
            IntegrityError: for a record that this version did not write.
        """
        if record.set_aside:
            return _set_aside(record)
        headers = ((INPUT_HEADER, record.role.value.encode()),)
        if record.role is Role.DEFINITIONS:
            return [
                Output(Role.AGENT_INPUTS, key, label, headers, record.timestamp_ms, partition)
                for key, label in self._labels(record)
                # A call that names it may be in any partition.
                for partition in range(self._partitions)
            ]
        event = _event_in(record.role, record)
        if event is None:
            return []
        keys = [self._key(agent, record.role, event) for agent in self._agents.agents.values()]
        time_ms, count = event.time_us // 1_000, self._partitions
        return [
            # No other program has to find it, and murmur2 takes as long as decoding the record.
            Output(Role.AGENT_INPUTS, key, record.value, headers, time_ms, crc32(key) % count, "agent_input")
            for key in keys
            if key is not None
        ]

    def _key(self, agent: Agent, role: Role, event: Event[Any]) -> bytes | None:
        declared = agent.inputs.get(role)
        if declared is None:
            return None
        try:
            key = declared.key(event)
        except BaseException as error:  # noqa: BLE001 - of a user's code
            raise raised(agent.name, error) from None
        try:
            return None if key is None else self._key_bytes(agent.name, (key,) if isinstance(key, str) else key)
        except TypeError:
            parts_max = self._limits.agent_key_parts_max
            why = f"a key must be None, a text, or a tuple of at most {parts_max} texts"
            raise ConfigurationError("agent_bad_key", about(agent.name, why)) from None

    def _labels(self, record: Record) -> list[tuple[bytes, bytes]]:
        """Return what agents remember of a definition, with the keys."""
        labels = []
        for agent in self._agents.agents.values():
            if agent.label is None or record.value is None or record.key is None:
                continue
            try:
                label = agent.label(orjson.loads(record.value)["definition"])
            except BaseException as error:  # noqa: BLE001 - of a user's code
                raise raised(agent.name, error) from None
            if label is None:
                continue
            bytes_max, why = self._limits.agent_state_bytes_max, "what it remembers of a definition must be JSON"
            try:
                value = _to_json(label)
            except TypeError:
                raise ConfigurationError("agent_bad_label", about(agent.name, why)) from None
            if len(value) > bytes_max:
                why = f"it may remember {bytes_max} bytes of a definition"
                raise ConfigurationError("agent_bad_label", about(agent.name, why))
            labels.append((orjson.dumps([agent.name, record.key.decode()]), value))
        return labels


class _Kept(NamedTuple):
    """The memory of an agent under a key: its state as JSON, and the latest event time of the key's records."""

    last_us: int
    state: bytes


class AgentState(Table[Any]):
    """The second step of one partition of the internal topic, and the state of its agents.

    Args:
        partition: its number, in the internal topic and in the state topic.
        input_topic: name of the internal topic.
    """

    def __init__(self, agents: AgentSet, partition: int, *, input_topic: str, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(Role.AGENT_STATES, partition, input_topic)
        self._agents = agents
        self._limits = limits
        self._definitions = 0

    def process(self, record: Record) -> list[Output]:
        """Return the findings of agents in one record of the internal topic.

        Raises:
            ConfigurationError: for an agent that raised or returned an invalid value, with its name.
            IntegrityError: for a record that this version did not write.
        """
        if record.set_aside:
            return _set_aside(record)
        role = _ROLES.get(dict(record.headers).get(INPUT_HEADER, b""))
        if role is None:
            raise _unknown_input(record)
        if role is Role.DEFINITIONS:
            name, digest = orjson.loads(record.key or b"")
            place = f"{_DEFINITION}{name}/{digest}"
            is_new = place not in self
            # Beyond the bound, a handler that looks it up is told: see ``_handle``.
            if not is_new or self._definitions < self._limits.agent_keys_max:
                self._definitions += is_new
                self[place] = {"label": orjson.loads(record.value or b"null")}
            return []
        name, key = _parts_of(record.key or b"")
        agent = self._agents.agents.get(name)
        event = _event_in(role, record)
        if agent is None or role not in agent.inputs or event is None:
            return []  # Another version of the module wanted it.
        return [finding.output() for finding in self._handle(agent, role, key, event, record.key or b"")]

    def restored(self) -> Mapping[str, int | None]:
        positions = super().restored()
        self._definitions = sum(key.startswith(_DEFINITION) for key in self)
        return positions

    def decode(self, key: str, fields: dict[str, Any]) -> Any:
        """Return a value as kept in memory: a state as bytes, so that no handler can change it."""
        if not key.startswith(_STATE):
            return fields
        return _Kept(members_of(AgentMemory, fields)["last_us"], _to_json(fields["state"]))

    def encode(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, _Kept):
            memory: AgentMemory = {"last_us": value.last_us, "state": orjson.Fragment(value.state)}  # type: ignore[typeddict-item]
            return memory
        return value  # type: ignore[no-any-return]

    def _handle(
        self, agent: Agent, role: Role, key: tuple[str, ...], event: Event[Any], record_key: bytes
    ) -> list[Finding]:
        missed = False

        def definition(digest: str) -> Any:
            nonlocal missed
            label = self.get(f"{_DEFINITION}{agent.name}/{digest}")
            missed = missed or (label is None and self._definitions >= self._limits.agent_keys_max)
            return None if label is None else orjson.loads(orjson.dumps(label["label"]))

        def finding(given: Detection, reason: str | None = None) -> Finding:
            return Finding(
                kind=Kind.DETECTION if reason is None else Kind.AGENT_LIMITED,
                server_id=given.server_id or event.server_id,
                tool_name=given.tool_name,
                time_us=event.time_us,
                origin=event.origin,
                reason=reason,
                detection=Detected(
                    agent=agent.name,
                    title=agent.title,
                    severity_id=int(Level.parse(given.severity or agent.severity)),
                    key=() if reason else key if given.about is None else given.about,
                    digest=self._agents.digest,
                    references=given.references,
                ),
            )

        place, limits = _STATE + record_key.decode(), self._limits
        known: _Kept | None = self.get(place)
        last_us = event.time_us
        before: dict[str, Any] = {}
        if known is not None and event.time_us - known.last_us <= agent.forget_after_us:
            last_us, before = max(event.time_us, known.last_us), orjson.loads(known.state)
        memory = Memory(before, event.time_us, event.origin, definition, self._agents.labels)
        given = _detections(agent, role, event, memory, limits)
        findings = [finding(each) for each in given[: limits.agent_findings_max]]
        left_out = ["findings_dropped"] if len(given) > limits.agent_findings_max else []
        state = _state_json(agent, memory)
        if len(state) > limits.agent_state_bytes_max:
            left_out.append("state_dropped")
            state = b"{}"
        dropped = None
        if state != b"{}":
            if known != (last_us, state):
                self[place] = _Kept(last_us, state)
            if known is None:
                dropped = self._drop_resting(event)
        elif known is not None:
            del self[place]
        left_out += filter(None, ("definitions_dropped" if missed else None, dropped))
        return [*findings, *(finding(Detection(), why) for why in left_out)]

    def _drop_resting(self, event: Event[Any]) -> str | None:
        """Drop the least recently used states where there are too many; return why that is a loss, if it is."""
        if len(self) - self._definitions <= self._limits.agent_keys_max:
            return None
        resting = sorted((entry.last_us, key) for key, entry in self.items() if key.startswith(_STATE))
        is_loss = False
        for last_us, key in resting[: max(1, len(resting) // 16)]:
            agent = self._agents.agents.get(_parts_of(key.removeprefix(_STATE).encode())[0])
            is_loss = is_loss or (agent is not None and event.time_us - last_us <= agent.forget_after_us)
            del self[key]
        return "state_dropped" if is_loss else None


class Runner:
    """Both steps in memory: outputs of the stages in, findings of agents out."""

    def __init__(self, agents: AgentSet, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._roles = agents.roles
        self._rekeying = Rekeying(agents, partitions=1, limits=limits)
        self._state = AgentState(agents, 0, input_topic=_MEMORY_TOPIC, limits=limits)
        self._offset = 0

    def take(self, written: Iterable[Output]) -> list[Output]:
        """Return the findings of agents in records of the stages, in order. Records without a reader are skipped."""
        found: list[Output] = []
        for output in written:
            if output.role in self._roles:
                for rekeyed in self._rekeying.process(self._record(output)):
                    found += self._state.process(self._record(rekeyed))
        return found

    def _record(self, output: Output) -> Record:
        self._offset += 1
        place = Origin(_MEMORY_TOPIC, 0, self._offset - 1)
        return Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms)


def _event_in(role: Role, record: Record) -> Event[Any] | None:
    """Return the event in a record, decoded anew for each handler; ``None`` for agents' findings: they are not read.

    Raises:
        IntegrityError: ``unknown_agent_input`` or ``unknown_finding``, if this version did not write it.
    """
    try:
        if role is Role.FINDINGS:
            entry = decode_entry(record.value)
            if not isinstance(entry, Finding) or entry.kind in OF_AGENTS:
                return None
            return Event(entry, entry.time_us, entry.origin, entry.server_id)
        value = orjson.loads(record.value or b"")
        if role is Role.EVIDENCE:
            data = value["data"]
            return Event(value, time_us_of(value["time"]), Origin(**data["origin"]), data["server_id"])
        flat = value["unmapped"]
        if flat["mcp_finding_kind"] in OF_AGENTS:
            return None
        origin = Origin(flat["mcp_origin_topic"], flat["mcp_origin_partition"], flat["mcp_origin_offset"])
        return Event(value, value["time"] * 1_000, origin, flat["mcp_server_id"])
    except (AttributeError, KeyError, TypeError, ValueError, InputError):
        raise _unknown_input(record) from None


def _set_aside(record: Record) -> list[Output]:
    """Return the outputs for a record that ended its worker too often: its copy, and a finding."""
    error = set_aside_error()
    # Its key names no server.
    return [rejected(record, error), *refusal(record._replace(key=None), error)[1:]]


def _unknown_input(record: Record) -> IntegrityError:
    place = record.origin
    return IntegrityError(
        "unknown_agent_input",
        f"{place.topic} holds a record this version cannot read, at offset {place.offset} of partition "
        f"{place.partition}: run the version that wrote it",
    )


def _detections(agent: Agent, role: Role, event: Event[Any], memory: Memory, limits: Limits) -> list[Detection]:
    """Return what a handler yields, at most one more than allowed."""
    try:
        returned = agent.inputs[role].handle(event, memory)
        if returned is None or returned == ():
            return []
        # What is no iterable is junk, and refused as such below.
        several = returned if isinstance(returned, Iterable) else (returned,)
        given: list[Any] = list(islice(several, limits.agent_findings_max + 1))
    except BaseException as error:  # noqa: BLE001 - of a user's code
        raise raised(agent.name, error) from None
    if not all(isinstance(each, Detection) and _is_valid(each, limits) for each in given[: limits.agent_findings_max]):
        raise ConfigurationError(
            "agent_bad_output",
            about(
                agent.name,
                "a handler yields Detection objects: texts for server, tool and what it is about, a severity by "
                f"name, and references as a tuple of at most {limits.agent_references_max} origins",
            ),
        )
    return given


def _is_valid(given: Detection, limits: Limits) -> bool:
    # Tool names have no bound where records have none: servers choose them.
    parts = () if given.about is None else given.about
    names = [text for text in (given.server_id, given.tool_name) if text is not None]
    try:
        _to_json((names, parts, given.references))
    except TypeError:  # a lone surrogate, for example, or an integer that JSON here does not hold
        return False
    return (
        isinstance(parts, tuple)
        and len(parts) <= limits.agent_key_parts_max
        and all(isinstance(text, str) and len(text) <= limits.identifier_chars_max for text in parts)
        and all(isinstance(text, str) and text for text in names)
        and len(given.server_id or "") <= limits.identifier_chars_max
        and (given.severity is None or given.severity in [str(level) for level in Level])
        and isinstance(given.references, tuple)
        and len(given.references) <= limits.agent_references_max
        and all(_is_place(origin) for origin in given.references)
    )


def _is_place(origin: object) -> bool:
    return (
        isinstance(origin, Origin)
        and isinstance(origin.topic, str)
        and all(type(number) is int and 0 <= number <= _OFFSET_MAX for number in (origin.partition, origin.offset))
    )


def _state_json(agent: Agent, memory: Memory) -> bytes:
    try:
        state = _to_json(memory.state)
    except TypeError:
        state = b""
    if not state.startswith(b"{"):
        raise ConfigurationError(
            "agent_bad_state", about(agent.name, "its state must be a JSON object: no NaN, no objects of yours")
        )
    return state


def _to_json(value: Any) -> bytes:
    """Return a value as JSON; an origin, as any named tuple, is a list.

    Raises:
        TypeError: if it is not JSON.
    """
    try:
        written = orjson.dumps(value, default=_listed, option=_JSON)
    except RecursionError:
        raise TypeError("too deep") from None
    # orjson writes NaN as null, and some objects as text.
    if orjson.loads(written) != value and not _is_json(value):
        raise TypeError
    return written


def _is_json(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return all(map(_is_json, value.values() if isinstance(value, dict) else value))
    return isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return list(value)
    raise TypeError


def _key_bytes(agent: str, parts: object, limits: Limits) -> bytes:
    """Return the key of an agent's records; few keys have many records.

    Servers choose the names of their tools, so a long one must not be an error: it is replaced by its digest.

    Raises:
        TypeError: if it is not a valid key.
    """
    if (
        not isinstance(parts, tuple)
        or not 0 < len(parts) <= limits.agent_key_parts_max
        or not all(isinstance(part, str) for part in parts)
    ):
        raise TypeError
    chars_max = limits.identifier_chars_max
    return orjson.dumps([agent, *(part if len(part) <= chars_max else str(jcs_digest(part)) for part in parts)])


@lru_cache(maxsize=8_192)
def _parts_of(key: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the agent and the parts of a record's key. Cached, since few keys have many records."""
    agent, *parts = orjson.loads(key)
    return agent, tuple(parts)


_PLACE = "replay"


class AgentAlerts:
    """The alerts of agents' findings, kept apart: mixed with the others they could change what agents read.

    Args:
        rules: pacing and severities.
    """

    def __init__(self, rules: AlertRules) -> None:
        self._alerts = Alerts(rules)
        self._offset = 0
        self._ticked_us = 0

    def take(self, written: Iterable[Output]) -> list[Output]:
        """Process records of stages and agents, and return the alerts raised by agents.

        Besides findings of agents, only suppression rules and people's acts on alerts count.
        """
        alerts: list[Output] = []
        for output in written:
            if output.role is Role.FINDINGS:
                entry = decode_entry(output.value)
                if isinstance(entry, Suppression | AlertAct) or (
                    isinstance(entry, Finding) and entry.kind in OF_AGENTS
                ):
                    alerts += self._apply(entry)
        return alerts

    def advance(self, time_us: int, *, step_us: int = 60_000_000) -> list[Output]:
        """Return the alerts due at an event time, at most once per step: both in microseconds."""
        alerts: list[Output] = []
        if time_us < self._ticked_us + step_us:
            return alerts
        self._ticked_us = time_us
        while self._alerts.any_due_by(time_us):
            alerts += self._apply(Tick(time_us=time_us))
        return alerts

    def _apply(self, entry: Entry) -> list[Output]:
        self._offset += 1
        return apply_entry(self._alerts, entry, place=Origin(_PLACE, 0, self._offset))
