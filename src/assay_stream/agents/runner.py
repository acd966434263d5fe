"""Both steps in memory, for tests and for replays: outputs of the stages in, findings of agents out."""

from __future__ import annotations

from collections.abc import Iterable

from assay_stream.agents.declaration import AgentSet
from assay_stream.agents.rekey import Rekeying
from assay_stream.agents.step import AgentState
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.agent_topic import INPUT_HEADER, OPEN_END, PROGRESS
from assay_stream.model.record import Origin, Output, Record, Role

_SOURCE = ("memory", 0)
_ADVANCE_US = 1_000_000
"""How far time goes on between two looks at what is ready."""


class Runner:
    """Agents over records in memory.

    Args:
        agents: the agents.
        limits: bounds on what waits and is remembered.
    """

    def __init__(self, agents: AgentSet, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._roles = agents.roles
        self._rekeying = Rekeying(agents, partitions=1, limits=limits)
        self._state = AgentState(agents, 0, input_topic=_SOURCE[0], ordered=_SOURCE[:1], limits=limits)
        self._offset = 0
        self._time_us = 0

    def take(self, written: Iterable[Output]) -> list[Output]:
        """Take in what stages wrote, and return what is found by then. What agents do not read is skipped."""
        found: list[Output] = []
        for output in written:
            if output.role in self._roles:
                for rekeyed in self._rekeying.process(self._record(output)):
                    found += self._state.process(self._record(rekeyed))
        return found

    def advance(self, time_us: int) -> list[Output]:
        """Handle what lies ``agent_disorder_ms`` and more before a time in microseconds: nothing earlier comes."""
        if time_us < self._time_us + _ADVANCE_US:
            return []
        self._time_us = time_us
        found = self._state.note_ends({_SOURCE: OPEN_END})
        told = b'{"topic":"%b","partition":0,"position":0,"time_us":%d}' % (_SOURCE[0].encode(), time_us)
        headers = ((INPUT_HEADER, PROGRESS.encode()),)
        return found + self._state.process(self._record(Output(Role.AGENT_INPUTS, None, told, headers)))

    def end(self) -> list[Output]:
        """Handle everything that waits: nothing more comes."""
        return self._state.note_ends({})

    def _record(self, output: Output) -> Record:
        self._offset += 1
        place = Origin(_SOURCE[0], 0, self._offset - 1)
        return Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms)
