"""Both steps in memory, for tests and for replays: outputs of the stages in, findings of agents out."""

from __future__ import annotations

from collections.abc import Iterable

from assay_stream.agents.declaration import AgentSet
from assay_stream.agents.rekey import Rekeying
from assay_stream.agents.step import AgentState
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.record import Origin, Output, Record

_TOPIC = "memory"


class Runner:
    """Agents over records in memory.

    Args:
        agents: the agents.
        limits: bounds on what is remembered.
    """

    def __init__(self, agents: AgentSet, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._roles = agents.roles
        self._rekeying = Rekeying(agents, partitions=1, limits=limits)
        self._state = AgentState(agents, 0, input_topic=_TOPIC, limits=limits)
        self._offset = 0

    def take(self, written: Iterable[Output]) -> list[Output]:
        """Return what agents find in records of the stages, one after the other. What they do not read is skipped."""
        found: list[Output] = []
        for output in written:
            if output.role in self._roles:
                for rekeyed in self._rekeying.process(self._record(output)):
                    found += self._state.process(self._record(rekeyed))
        return found

    def _record(self, output: Output) -> Record:
        self._offset += 1
        place = Origin(_TOPIC, 0, self._offset - 1)
        return Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms)
