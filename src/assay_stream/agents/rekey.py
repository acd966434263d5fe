"""The first step: each record goes to the key that an agent wants it under, in the internal topic.

What it writes for a record is in the transaction that commits the record's offset.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import orjson

from assay_stream.agents.declaration import Agent, AgentSet, Event
from assay_stream.agents.failures import RAISED, about, label_json, raised
from assay_stream.agents.inputs import read_input, set_aside
from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.agent_topic import INPUT_HEADER
from assay_stream.model.record import Output, Record, Role


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

    def process(self, record: Record) -> list[Output]:
        """Return a record of an input under the keys that agents want it under.

        Raises:
            ConfigurationError: ``agent_raised``, ``agent_bad_key`` or ``agent_bad_label``, with the agent's name.
            IntegrityError: for a record that this version did not write.
        """
        if record.set_aside:
            return set_aside(record)
        headers = ((INPUT_HEADER, record.role.value.encode()),)
        if record.role is Role.DEFINITIONS:
            return [
                Output(Role.AGENT_INPUTS, key, label, headers, record.timestamp_ms, partition)
                for key, label in self._labels(record)
                # A call that names it may be in any partition.
                for partition in range(self._partitions)
            ]
        event = read_input(record.role, record)
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
        except RAISED as error:
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
            except RAISED as error:
                raise raised(agent.name, error) from None
            if label is not None:
                value = label_json(agent.name, label, self._limits)
                labels.append((orjson.dumps([agent.name, record.key.decode()]), value))
        return labels


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
