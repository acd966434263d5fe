"""The first step: each record goes to the key that an agent wants it under, in the internal topic.

What it writes for a record is in the transaction that commits the record's offset; so is the progress, in every
partition of the internal topic.
"""

from __future__ import annotations

from functools import lru_cache, partial
from hashlib import sha256
from typing import Any
from zlib import crc32

import orjson

from assay_stream.agents.declaration import Agent, AgentSet, Event
from assay_stream.agents.failures import RAISED, about, label_json, raised
from assay_stream.agents.fields import FieldReader, Fields
from assay_stream.agents.inputs import is_of_agents, read_input, set_aside
from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.agent_topic import DEFINITION, INPUT_HEADER, ORDER_HEADER, PROGRESS, SourceProgress
from assay_stream.model.record import Headers, Origin, Output, Record, Role, made_of
from assay_stream.model.wire import write_record

_AGENT_INPUTS = Role.AGENT_INPUTS
_INPUTS = {role: (INPUT_HEADER, role.value.encode()) for role in (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS)}
_PROGRESS: Headers = ((INPUT_HEADER, PROGRESS.encode()),)
_DEFINITION: Headers = ((INPUT_HEADER, DEFINITION.encode()),)


class Rekeying:
    """The first step, for any partitions of the inputs.

    Args:
        agents: who wants which records.
        partitions: how many partitions the internal topic has.
        limits: bounds on keys.
    """

    def __init__(self, agents: AgentSet, *, partitions: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self._agents = agents
        self._partitions = partitions
        self._limits = limits
        # One for each: hashing the limits takes longer than making a key.
        self._key_bytes = lru_cache(maxsize=8_192)(partial(_key_bytes, limits=limits))
        self._times_us: dict[tuple[str, int], int] = {}
        readers = [agent for agent in agents.agents.values() if Role.EVIDENCE in agent.inputs]
        keys = [agent.inputs[Role.EVIDENCE].key for agent in readers]
        self._names = [agent.name for agent in readers]
        declared = [key for key in keys if isinstance(key, Fields)]
        self._fields = FieldReader(declared) if keys and len(declared) == len(keys) else None

    def process(self, record: Record) -> list[Output]:
        """Return a record of an input under the keys that agents want it under.

        Raises:
            ConfigurationError: ``agent_raised``, ``agent_bad_key`` or ``agent_bad_label``, with the agent's name.
            IntegrityError: for a record that this version did not write.
        """
        if record.set_aside:
            return set_aside(record)
        if record.role is Role.DEFINITIONS:
            return self._definition(record)
        if self._fields is not None and record.role is Role.EVIDENCE:
            known = self._fields.read(record.value)
            if known is not None:
                pairs = zip(self._names, known.keys, strict=True)
                keys = [None if key is None else self._encoded(name, key) for name, key in pairs]
                return self._copies(record, known.time_us, known.origin, keys)
        event = read_input(record.role, record)
        if event is None:
            return []
        if is_of_agents(record.role, event):
            self._note_time(record, event.time_us)
            return []
        keys = [self._key(agent, record.role, event) for agent in self._agents.agents.values()]
        return self._copies(record, event.time_us, event.origin, keys)

    def _copies(self, record: Record, time_us: int, origin: Origin, keys: list[bytes | None]) -> list[Output]:
        self._note_time(record, time_us)
        headers = (_INPUTS[record.role], (ORDER_HEADER, _place(record, time_us, origin)))
        time_ms, count = time_us // 1_000, self._partitions
        return [
            # Nobody else has to find it, and murmur2 takes as long as decoding the record.
            made_of(Output, (_AGENT_INPUTS, key, record.value, headers, time_ms, crc32(key) % count, "agent_input"))
            for key in keys
            if key is not None
        ]

    def _note_time(self, record: Record, time_us: int) -> None:
        place = record.origin[:2]
        if time_us > self._times_us.get(place, 0):
            self._times_us[place] = time_us

    def progress(self, topic: str, partition: int, position: int) -> list[Output]:
        """Return the records that tell every partition how far an input was read.

        Args:
            topic: the input topic.
            partition: its partition.
            position: the next offset to read.
        """
        time_us = self.time_us(topic, partition)
        told = SourceProgress(topic=topic, partition=partition, position=position, time_us=time_us)
        key, value = orjson.dumps([topic, partition]), orjson.dumps(write_record(told))
        return self._everywhere(key, value, _PROGRESS, time_us // 1_000)

    def time_us(self, topic: str, partition: int) -> int:
        """Return the latest event time of an input so far, 0 where it had none."""
        return self._times_us.get((topic, partition), 0)

    def _key(self, agent: Agent, role: Role, event: Event[Any]) -> bytes | None:
        declared = agent.inputs.get(role)
        if declared is None:
            return None
        try:
            key = declared.key(event)
        except RAISED as error:
            raise raised(agent.name, error) from None
        return None if key is None else self._encoded(agent.name, (key,) if isinstance(key, str) else key)

    def _encoded(self, agent: str, key: object) -> bytes:
        try:
            return self._key_bytes(agent, key)
        except TypeError:
            raise ConfigurationError(
                "agent_bad_key",
                about(
                    agent, f"a key must be None, a text, or a tuple of at most {self._limits.agent_key_parts_max} texts"
                ),
            ) from None

    def _definition(self, record: Record) -> list[Output]:
        outputs = []
        for agent in self._agents.agents.values():
            if agent.label is None or record.value is None or record.key is None:
                continue
            try:
                label = agent.label(orjson.loads(record.value)["definition"])
            except RAISED as error:
                raise raised(agent.name, error) from None
            if label is not None:
                value = label_json(agent.name, label, self._limits)
                key = orjson.dumps([agent.name, record.key.decode()])
                outputs += self._everywhere(key, value, _DEFINITION, record.timestamp_ms)
        return outputs

    def _everywhere(self, key: bytes, value: bytes, headers: Headers, timestamp_ms: int) -> list[Output]:
        return [
            Output(Role.AGENT_INPUTS, key, value, headers, timestamp_ms, partition)
            for partition in range(self._partitions)
        ]


def _key_bytes(agent: str, parts: object, limits: Limits) -> bytes:
    """Return the key of an agent's records; few keys have many records.

    Servers choose the names of their tools, so a long one must not be an error: it stands as its digest.

    Raises:
        TypeError: where it is junk.
    """
    if (
        not isinstance(parts, tuple)
        or not 0 < len(parts) <= limits.agent_key_parts_max
        or not all(isinstance(part, str) for part in parts)
    ):
        raise TypeError
    chars_max = limits.identifier_chars_max
    return orjson.dumps([agent, *(part if len(part) <= chars_max else str(jcs_digest(part)) for part in parts)])


def _place(record: Record, time_us: int, origin: Origin) -> bytes:
    # Several findings and alerts follow from one record, but one record of evidence.
    more = "" if record.role is Role.EVIDENCE else record.role.value + sha256(record.value or b"").hexdigest()
    return orjson.dumps([time_us, *origin, more])
