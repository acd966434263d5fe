"""What stands in the topics between and behind the two steps of the agents.

The input topic holds records of other topics, value for value, under the key of the agent that wants them:
``[agent, part, ...]``. Headers say which topic a record comes from and where it stands in the order. Between them stand
how far each input was read, in every partition, and what agents remember of definitions.
"""

import sys
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from assay_stream.model.alert_state import AlertProgress
from assay_stream.model.fields import Identifier, Micros, Natural
from assay_stream.model.wire import record_model

INPUT_HEADER = "assay-agent-input"
"""Header of the input topic: the role of the topic that a record comes from, or one of the two below."""
ORDER_HEADER = "assay-agent-order"
"""Header of the input topic: event time in microseconds and origin of a record, and what tells it from others there."""
PROGRESS = "progress"
DEFINITION = "definition"
OPEN_END = sys.maxsize
"""Where an input ends that more is known to follow in: no position gets there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """How far one input partition was read, and re-keyed. Key: topic and partition.

    Args:
        position: the next offset to read.
        time_us: the latest event time before it, microseconds since the epoch.
    """

    topic: str
    partition: Natural
    position: Natural
    time_us: Micros


class DefinitionLabel(TypedDict):
    """What an agent remembers of a definition. Key: ``definition/<agent>/<full digest>``."""

    label: Any


class AgentMemory(TypedDict):
    """What an agent remembers under a key. Key: ``state/<array of the agent and the parts of the key>``."""

    last_us: Micros
    state: dict[str, Any]


class AgentReading(TypedDict):
    """How far the input topic was read and handled. Key: ``reading``.

    ``through`` is the next offset to read; of those before it, records after ``mark`` in (time, origin, ...) wait.
    ``sources`` has topic, partition, position and latest time of each input.
    """

    through: Natural
    mark: list[Any] | None
    sources: list[tuple[Identifier, Natural, Natural, Micros]]


AGENT_RECORDS: dict[str, Any] = {
    "assay.agent.input.progress": record_model(SourceProgress),
    "assay.agent.state": AgentMemory,
    "assay.agent.state.definition": DefinitionLabel,
    "assay.agent.state.progress": AlertProgress,
    "assay.agent.state.reading": AgentReading,
}
"""What the values of both topics are, by the name of their schema, beside records of other topics."""
