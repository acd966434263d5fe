"""The second step: re-keyed records wait until every input was read as far as their time, then agents handle them.

1. Whoever reads the internal topic says after each batch where the inputs end (``note_ends``). What was taken in before
   is ready when every input was read to there. It is ready sooner when every *ordered* input that was not read to there
   has come ``agent_disorder_ms`` of event time further than the record. Evidence is such an input: its partitions are
   those of the calls, and what follows from the same calls and lists is in the internal topic before it
   (``worker.agent_stages``). In findings and alerts, several writers meet at a pace of their own: a late event time
   there does not mean that earlier ones have been read.
2. Ready records are handled in the order of (event time, origin), together with whatever waits and comes before them.
3. A record that comes before one already handled is late. It is handled at once: windows look at event times, so it
   counts where it belongs.
4. The state names the last record in that order (the *mark*) and how far the topic was read (*through*). After a crash
   reading goes on from the earliest record that waited; what stands before ``through`` and not after the mark has been
   handled. Nothing is released before all that waited is read again: the inputs were read further than that.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from assay_stream.agents.declaration import AgentSet, Event
from assay_stream.agents.failures import to_json
from assay_stream.agents.handling import Case, Kept, handle
from assay_stream.agents.inputs import read_again, set_aside
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.agent_topic import (
    INPUT_HEADER,
    OPEN_END,
    ORDER_HEADER,
    PROGRESS,
    AgentMemory,
    AgentReading,
    SourceProgress,
)
from assay_stream.model.record import Origin, Output, Record, Role, made_of
from assay_stream.model.state_table import Table
from assay_stream.model.wire import read_record

SourcePartition = tuple[str, int]
"""An input partition: topic and number."""
_Order = tuple[int, str, int, int, str, str]
"""Event time and origin; what tells records of that place apart, and the key."""
_STATE, _DEFINITION, _READING = "state/", "definition/", "reading"
_ROLES = {role.value.encode(): role for role in (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS)}
"""What records of other topics say in the header of the input topic."""


class _Waiting(NamedTuple):
    time_us: int  # Comes first, and nearly always decides: a number is compared faster than a tuple.
    order: _Order
    offset: int
    role: Role
    record: Record


class AgentState(Table[Any]):
    """The second step of one partition of the internal topic, and the state of its agents.

    Args:
        agents: the agents.
        partition: its number, in the internal topic and in the state topic.
        input_topic: name of the internal topic.
        ordered: names of the inputs in which event times go back by ``agent_disorder_ms`` at most.
        limits: bounds.
    """

    def __init__(
        self,
        agents: AgentSet,
        partition: int,
        *,
        input_topic: str,
        ordered: Container[str],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(Role.AGENT_STATES, partition, input_topic)
        self._input_topic_name = input_topic
        self._agents = agents
        self._ordered = ordered
        self._limits = limits
        self.late = 0
        """Records that came after one that stands behind them in the order."""
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._latest: _Order | None = None
        """The last in order of what was taken in since all ends were known."""
        self._cuts: deque[tuple[_Order, Mapping[SourcePartition, int]]] = deque()
        """Up to where records are ready once all of some ends are reached; earlier ends first."""
        self._covered: tuple[_Order, Mapping[SourcePartition, int]] | None = None
        """The last in order of what the newest ends are for, and these."""
        self._sources: dict[SourcePartition, tuple[int, int]] = {}
        self._through = 0
        self._reread_to = 0
        """Up to where what waited at a crash is read again; 0 once it is."""
        self._mark: _Order | None = None
        self._definitions = 0

    @property
    def buffered(self) -> int:
        """How many records wait."""
        return len(self._waiting)

    @property
    def needs_ends(self) -> bool:
        """Whether records wait whose ends are not all known."""
        return self._latest is not None

    def process(self, record: Record) -> list[Output]:
        """Take in one record of the internal topic, and return what agents found.

        Raises:
            ConfigurationError: for an agent that raised or returned junk, with its name.
            IntegrityError: for a record that this version did not write.
        """
        offset = record.origin.offset
        is_new = offset >= self._through
        self._through = max(self._through, offset + 1)
        self._note_reread(offset + 1)
        if record.set_aside:
            return set_aside(record) if is_new else []
        headers = dict(record.headers)
        came_from = headers[INPUT_HEADER]
        role = _ROLES.get(came_from)
        if role is not None:
            order: _Order = (*orjson.loads(headers[ORDER_HEADER]), (record.key or b"").decode())
            return self._take_in(made_of(_Waiting, (order[0], order, offset, role, record)), is_new=is_new)
        if came_from == PROGRESS.encode():
            told = read_record(SourceProgress, orjson.loads(record.value or b""))
            position, time_us = self._sources.get((told.topic, told.partition), (0, 0))
            at = max(position, told.position), max(time_us, told.time_us)
            self._sources[told.topic, told.partition] = at
            return self._release()
        agent, digest = orjson.loads(record.key or b"")
        self._remember_definition(agent, digest, record.value)
        return []

    def _take_in(self, waiting: _Waiting, *, is_new: bool) -> list[Output]:
        order = waiting.order
        if self._mark is not None and order <= self._mark:
            if not is_new:
                return []
            self.late += 1
            return self._handle(waiting)
        heapq.heappush(self._waiting, waiting)
        self._waiting_bytes += len(waiting.record.value or b"")
        if self._latest is None or order > self._latest:
            self._latest = order
        outputs = []
        while (
            len(self._waiting) > self._limits.agent_buffered_max
            or self._waiting_bytes > self._limits.agent_buffered_bytes_max
        ):
            outputs += self._handle_first(reason="order_dropped")
        return outputs

    def note_ends(self, ends: Mapping[SourcePartition, int]) -> list[Output]:
        """Note how far every input must be read for what was taken in to be ready, and return what is found by then.

        Args:
            ends: the next offset of every partition of every input, ``OPEN_END`` where more is known to follow. They
                must be looked up after the records were read, and after the stages before have written what follows
                from the input of that moment.
        """
        if self._latest is not None:
            bound = self._latest if self._covered is None else max(self._latest, self._covered[0])
            self._covered = bound, ends
            if OPEN_END not in ends.values():
                self._cuts.append((self._latest, ends))
                self._latest = None
        return self._release()

    def restored(self) -> Mapping[str, int | None]:
        """Return where reading goes on."""
        positions = super().restored()
        reading: AgentReading | None = self.get(_READING)
        if reading is not None:
            self._through = self._reread_to = reading["through"]
            self._mark = None if reading["mark"] is None else tuple(reading["mark"])
            self._sources = {(topic, number): (at, time_us) for topic, number, at, time_us in reading["sources"]}
        self._definitions = sum(key.startswith(_DEFINITION) for key in self)
        return positions

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return what changed, and where reading goes on: at the first record that waits."""
        position = positions[self._input_topic_name]
        self._through = max(self._through, position)
        # No record stands in front of what only a transaction's marker fills.
        self._note_reread(position)
        outputs = self._release()
        reading: AgentReading = {
            "through": self._through,
            "mark": None if self._mark is None else list(self._mark),
            "sources": [(*source, *at) for source, at in sorted(self._sources.items())],
        }
        self[_READING] = reading
        # Not ``through``: what waited at a crash may still stand between the two.
        first = min((waiting.offset for waiting in self._waiting), default=position)
        return [*outputs, *super().flush({self._input_topic_name: first})]

    def _note_reread(self, position: int) -> None:
        if position >= self._reread_to:
            self._reread_to = 0

    def decode(self, key: str, fields: dict[str, Any]) -> Any:
        """Return a value as it is kept in memory: a state as bytes, so that no handler can change it."""
        return Kept(fields["last_us"], to_json(fields["state"])) if key.startswith(_STATE) else fields

    def encode(self, value: Any) -> Mapping[str, Any]:
        """Return a value as it stands in the topic."""
        if isinstance(value, Kept):
            memory: AgentMemory = {"last_us": value.last_us, "state": orjson.Fragment(value.state)}  # type: ignore[typeddict-item]
            return memory
        return value  # type: ignore[no-any-return]

    def _release(self) -> list[Output]:
        outputs: list[Output] = []
        if self._reread_to:
            return outputs
        while self._cuts and not self._behind(self._cuts[0][1]):
            bound, _ = self._cuts.popleft()
            while self._waiting and self._waiting[0].order <= bound:
                outputs += self._handle_first()
        if self._covered is not None:
            bound, ends = self._covered
            times = [
                self._sources.get(source, (0, 0))[1] for source in self._behind(ends) if source[0] in self._ordered
            ]
            until_us = min(times, default=0) - self._limits.agent_disorder_ms * 1_000
            while self._waiting and self._waiting[0].time_us < until_us and self._waiting[0].order <= bound:
                outputs += self._handle_first()
        # Inputs far from their ends would leave a cut for every batch.
        while self._cuts and self._mark is not None and self._cuts[0][0] <= self._mark:
            self._cuts.popleft()
        return outputs

    def _behind(self, ends: Mapping[SourcePartition, int]) -> list[SourcePartition]:
        """Return the inputs that were not read to these ends."""
        return [source for source, end in ends.items() if self._sources.get(source, (0, 0))[0] < end]

    def _handle_first(self, reason: str | None = None) -> list[Output]:
        first = heapq.heappop(self._waiting)
        self._waiting_bytes -= len(first.record.value or b"")
        self._mark = first.order
        return self._handle(first, reason)

    def _handle(self, waiting: _Waiting, reason: str | None = None) -> list[Output]:
        role, record = waiting.role, waiting.record
        name, parts = _parts_of(record.key or b"")
        agent = self._agents.agents.get(name)
        event = read_again(role, record, waiting.time_us, made_of(Origin, waiting.order[1:4]))
        if agent is None or role not in agent.inputs or event is None:
            return []  # Another version of the module wanted it.
        case = made_of(Case, (agent, role, parts, event, self._agents.digest, self._agents.labels))
        key = _STATE + waiting.order[5]
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
        for why in (reason, "definitions_dropped" if missed else None, dropped):
            if why is not None:
                findings.append(case.limited(why))
        return [finding.output() for finding in findings] if findings else []

    def _drop_resting(self, event: Event[Any]) -> str | None:
        """Drop the states that rested longest where there are too many; return why that is a loss, if it is."""
        if len(self) - self._definitions - (_READING in self) <= self._limits.agent_keys_max:
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
                return  # Whoever asks for it finds out: see ``_handle``.
            self._definitions += 1
        self[key] = {"label": orjson.loads(value or b"null")}


@lru_cache(maxsize=8_192)
def _parts_of(key: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the agent and the parts of a record's key; few keys have many records."""
    agent, *parts = orjson.loads(key)
    return agent, tuple(parts)
