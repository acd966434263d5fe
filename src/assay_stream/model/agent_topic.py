"""What stands in the topics between and behind the two steps of the agents.

The input topic holds records of other topics, value for value, under the key of the agent that wants them:
``[agent, part, ...]``, and in every partition what agents remember of definitions. A header says which topic a record
comes from.
"""

from typing import Any

from typing_extensions import TypedDict

from assay_stream.model.alert_state import AlertProgress
from assay_stream.model.fields import Micros

INPUT_HEADER = "assay-agent-input"
"""Header of the input topic: the role of the topic that a record comes from."""


class DefinitionLabel(TypedDict):
    """What an agent remembers of a definition. Key: ``definition/<agent>/<full digest>``."""

    label: Any


class AgentMemory(TypedDict):
    """What an agent remembers under a key. Key: ``state/<array of the agent and the parts of the key>``."""

    last_us: Micros
    state: dict[str, Any]


AGENT_RECORDS: dict[str, Any] = {
    "assay.agent.state": AgentMemory,
    "assay.agent.state.definition": DefinitionLabel,
    "assay.agent.state.progress": AlertProgress,
}
"""What the values of the state topic are, by the name of their schema."""
