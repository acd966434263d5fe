"""One record handled by one agent: its memory before and after, and the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import orjson

from assay_stream.agents.declaration import Agent, Detection, Event
from assay_stream.agents.failures import RAISED, about, raised, to_json
from assay_stream.agents.labels import Labels
from assay_stream.agents.memory import Memory
from assay_stream.drift.severity import Level
from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import Limits
from assay_stream.model.finding import Detected, Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Role


class Kept(NamedTuple):
    """What an agent remembers under a key: its state as JSON, and the latest event time of the key's records."""

    last_us: int
    state: bytes


class Handled(NamedTuple):
    """What came of a record.

    Args:
        findings: in order.
        memory: what is remembered under its key from now on, ``None`` for nothing.
    """

    findings: list[Finding]
    memory: Kept | None


class Case(NamedTuple):
    """A record for an agent.

    Args:
        agent: the agent.
        role: which of its inputs it belongs to.
        key: the key that the agent gave it.
        event: the record.
        digest: of the agent's code.
        labels: what tools can do, as the operator says.
    """

    agent: Agent
    role: Role
    key: tuple[str, ...]
    event: Event[Any]
    digest: str
    labels: Labels

    def limited(self, reason: str) -> Finding:
        """Return the finding that something was left out."""
        return self._finding(Kind.AGENT_LIMITED, Detection(), (), reason)

    def found(self, given: object, limits: Limits) -> Finding:
        """Return the finding of a detection.

        Raises:
            ConfigurationError: ``agent_bad_output``.
        """
        if not isinstance(given, Detection) or not _is_valid(given, limits):
            raise ConfigurationError(
                "agent_bad_output",
                about(
                    self.agent.name,
                    "a handler yields Detection objects: texts for server, tool and what it is about, a severity by "
                    f"name, and at most {limits.agent_references_max} origins",
                ),
            )
        key = self.key if given.about is None else given.about
        return self._finding(Kind.DETECTION, given, key, None)

    def _finding(self, kind: Kind, given: Detection, key: tuple[str, ...], reason: str | None) -> Finding:
        agent, event = self.agent, self.event
        severity = Level.parse(given.severity or agent.severity)
        return Finding(
            kind=kind,
            server_id=given.server_id or event.server_id,
            tool_name=given.tool_name,
            time_us=event.time_us,
            origin=event.origin,
            reason=reason,
            detection=Detected(
                agent=agent.name,
                title=agent.title,
                severity_id=int(severity),
                key=key,
                digest=self.digest,
                references=given.references,
            ),
        )


def handle(case: Case, known: Kept | None, definition: Callable[[str], Any], limits: Limits) -> Handled:
    """Let an agent handle a record.

    Args:
        case: the agent and the record.
        known: what the agent remembers under the key.
        definition: looks up what the agent remembers of a definition.
        limits: bounds on findings and state.

    Raises:
        ConfigurationError: ``agent_raised``, ``agent_bad_output`` or ``agent_bad_state``.
    """
    agent, event = case.agent, case.event
    last_us = time_us = event.time_us
    before: dict[str, Any] = {}
    if known is not None and time_us - known.last_us <= agent.forget_after_us:
        last_us, before = max(time_us, known.last_us), orjson.loads(known.state)
    memory = Memory(before, time_us, event.origin, definition, case.labels)
    try:
        returned = agent.inputs[case.role].handle(event, memory)
        if returned is None or returned == ():
            given: list[Any] = []
        else:
            # What is no iterable is junk, and refused as such below.
            several = returned if isinstance(returned, Iterable) else (returned,)
            given = list(islice(several, limits.agent_findings_max + 1))
    except RAISED as error:
        raise raised(agent.name, error) from None
    findings = [case.found(each, limits) for each in given[: limits.agent_findings_max]] if given else []
    if len(given) > limits.agent_findings_max:
        findings.append(case.limited("findings_dropped"))
    try:
        state = to_json(memory.state)
    except TypeError:
        state = b""
    if not state.startswith(b"{"):
        raise ConfigurationError("agent_bad_state", about(agent.name, "its state must be a JSON object"))
    if len(state) > limits.agent_state_bytes_max:
        findings.append(case.limited("state_dropped"))
        state = b"{}"
    return Handled(findings, None if state == b"{}" else Kept(last_us, state))


def _is_valid(given: Detection, limits: Limits) -> bool:
    # Tool names have no bound where records have none: servers choose them.
    about = given.about or ()
    texts = [text for text in (given.server_id, given.tool_name) if text is not None]
    return (
        isinstance(about, tuple)
        and len(about) <= limits.agent_key_parts_max
        and all(isinstance(text, str) and len(text) <= limits.identifier_chars_max for text in about)
        and all(isinstance(text, str) and text for text in texts)
        and len(given.server_id or "") <= limits.identifier_chars_max
        and (given.severity is None or given.severity in {str(level) for level in Level})
        and isinstance(given.references, tuple)
        and len(given.references) <= limits.agent_references_max
        and all(isinstance(origin, Origin) for origin in given.references)
    )
