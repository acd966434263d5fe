"""The second step: agents handle re-keyed records one by one, in the order of the internal topic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from assay_stream.agents.declaration import AgentSet, Event
from assay_stream.agents.failures import to_json
from assay_stream.agents.handling import Case, Kept, handle
from assay_stream.agents.inputs import read_input, set_aside, unknown_input
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.agent_topic import INPUT_HEADER, AgentMemory
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.state_table import Table

_STATE, _DEFINITION = "state/", "definition/"
_ROLES = {role.value.encode(): role for role in (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.DEFINITIONS)}


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
        """Return what agents find in one record of the internal topic.

        Raises:
            ConfigurationError: for an agent that raised or returned junk, with its name.
            IntegrityError: for a record that this version did not write.
        """
        if record.set_aside:
            return set_aside(record)
        role = _ROLES.get(dict(record.headers).get(INPUT_HEADER, b""))
        if role is None:
            raise unknown_input(record)
        if role is Role.DEFINITIONS:
            agent, digest = orjson.loads(record.key or b"")
            self._remember_definition(agent, digest, record.value)
            return []
        return self._handle(role, record)

    def restored(self) -> Mapping[str, int | None]:
        """Return where reading goes on."""
        positions = super().restored()
        self._definitions = sum(key.startswith(_DEFINITION) for key in self)
        return positions

    def decode(self, key: str, fields: dict[str, Any]) -> Any:
        """Return a value as it is kept in memory: a state as bytes, so that no handler can change it."""
        return Kept(fields["last_us"], to_json(fields["state"])) if key.startswith(_STATE) else fields

    def encode(self, value: Any) -> Mapping[str, Any]:
        """Return a value as it stands in the topic."""
        if isinstance(value, Kept):
            memory: AgentMemory = {"last_us": value.last_us, "state": orjson.Fragment(value.state)}  # type: ignore[typeddict-item]
            return memory
        return value  # type: ignore[no-any-return]

    def _handle(self, role: Role, record: Record) -> list[Output]:
        record_key = record.key or b""
        name, parts = _parts_of(record_key)
        agent = self._agents.agents.get(name)
        event = read_input(role, record)
        if agent is None or role not in agent.inputs or event is None:
            return []  # Another version of the module wanted it.
        case = Case(agent, role, parts, event, self._agents.digest, self._agents.labels)
        key = _STATE + record_key.decode()
        missed = False

        def definition(digest: str) -> Any:
            nonlocal missed
            known = self.get(f"{_DEFINITION}{name}/{digest}")
            missed = missed or (known is None and self._definitions >= self._limits.agent_keys_max)
            return None if known is None else orjson.loads(orjson.dumps(known["label"]))

        known: Kept | None = self.get(key)
        findings, memory = handle(case, known, definition, self._limits)
        dropped = None
        if memory is not None:
            if memory != known:
                self[key] = memory
            if known is None:
                dropped = self._drop_resting(event)
        elif known is not None:
            del self[key]
        for why in ("definitions_dropped" if missed else None, dropped):
            if why is not None:
                findings.append(case.limited(why))
        return [finding.output() for finding in findings] if findings else []

    def _drop_resting(self, event: Event[Any]) -> str | None:
        """Drop the states that rested longest where there are too many; return why that is a loss, if it is."""
        if len(self) - self._definitions <= self._limits.agent_keys_max:
            return None
        resting = sorted((entry.last_us, key) for key, entry in self.items() if key.startswith(_STATE))
        is_loss = False
        for last_us, key in resting[: max(1, len(resting) // 16)]:
            agent = self._agents.agents.get(_parts_of(key.removeprefix(_STATE).encode())[0])
            is_loss = is_loss or (agent is not None and event.time_us - last_us <= agent.forget_after_us)
            del self[key]
        return "state_dropped" if is_loss else None

    def _remember_definition(self, agent: str, digest: str, value: bytes | None) -> None:
        key = f"{_DEFINITION}{agent}/{digest}"
        if key not in self:
            if self._definitions >= self._limits.agent_keys_max:
                return  # A handler that looks it up is told: see ``_handle``.
            self._definitions += 1
        self[key] = {"label": orjson.loads(value or b"null")}


@lru_cache(maxsize=8_192)
def _parts_of(key: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the agent and the parts of a record's key; few keys have many records."""
    agent, *parts = orjson.loads(key)
    return agent, tuple(parts)
