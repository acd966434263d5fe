"""What users write: an ``Agent``, its handlers, what these get and return, and how a module of agents is loaded."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_type_hints

from assay_stream.canonical.digest import jcs_digest
from assay_stream.drift.severity import Level
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert import Alert
from assay_stream.model.evidence import DecisionPayload, Evidence
from assay_stream.model.fields import AGENT_NAME, compile_glob
from assay_stream.model.finding import Finding
from assay_stream.model.record import Origin, Role

Severity = Literal["informational", "low", "medium", "high", "critical"]
Value = TypeVar("Value")
Json = Any
"""JSON values: strings, numbers, booleans, ``None``, lists, and objects with string keys."""


class Event(NamedTuple, Generic[Value]):
    """One record of an input, for a handler to read. It cannot be changed.

    Args:
        value: the record: ``Evidence`` and ``Alert`` are dictionaries, ``Finding`` is a dataclass.
        time_us: its event time, microseconds since the epoch.
        origin: the observed record that it follows from; for evidence, the call.
        server_id: the server that it is about.
    """

    value: Value
    time_us: int
    origin: Origin
    server_id: str


def actor_of(event: Event[Evidence]) -> tuple[str, str]:
    """Return the caller as a key: the agent, or the observer where the proxy named no agent."""
    data = event.value["data"]
    actor = data.get("actor")
    agent_id = None if actor is None else actor.get("agent_id")
    return ("observer", data["observer_id"]) if agent_id is None else ("agent", agent_id)


def trace_of(event: Event[Evidence]) -> str | None:
    """Return the trace that a call belongs to, as a key: its trace id, or that of its W3C trace context."""
    trace_id = event.value["data"].get("trace_id")
    if trace_id is not None:
        return trace_id
    _, _, rest = event.value.get("traceparent", "").partition("-")
    return rest.partition("-")[0] or None


CAPABILITIES = ("sends", "untrusted", "private")


class Labels:
    """Capabilities of tools.

    Args:
        rows: capabilities by pattern; the first pattern that matches counts.
    """

    def __init__(self, rows: Mapping[str, tuple[str, ...]]) -> None:
        self.rows = dict(rows)
        self._patterns = [(compile_glob(pattern), labels) for pattern, labels in rows.items()]
        self.of = lru_cache(maxsize=8_192)(self._of)
        """Return the capabilities of a tool, by its server's id and its name; ``None`` where no pattern matches."""

    def _of(self, server_id: str, tool_name: str) -> tuple[str, ...] | None:
        name = f"{server_id}/{tool_name}"
        return next((labels for pattern, labels in self._patterns if pattern.fullmatch(name)), None)


NO_LABELS = Labels({})


def read_labels(content: object) -> Labels:
    """Return the labels that a file holds: an object of lists, by pattern.

    Raises:
        InputError: ``bad_labels`` with the path of the bad field, or ``bad_pattern``.
    """
    if not isinstance(content, dict) or not content:
        raise InputError("bad_labels", 'write one line per pattern: "mail/*" = ["private"]', path="$")
    rows = {}
    for pattern, labels in content.items():
        path = f'$["{pattern}"]'
        if "/" not in str(pattern):
            raise InputError("bad_labels", "a pattern is SERVER/TOOL; * stands for any text", path=path)
        if not isinstance(labels, list):
            raise InputError("bad_labels", "the capabilities of a tool are a list; [] means harmless", path=path)
        if strange := [label for label in labels if label not in CAPABILITIES]:
            known = ", ".join(CAPABILITIES)
            raise InputError("bad_labels", f"{str(strange[0])[:64]!r} is no capability; there are {known}", path=path)
        rows[str(pattern)] = tuple(labels)
    return Labels(rows)


class Memory:
    """What an agent remembers under the key of the current record.

    Args:
        state: the handler's state; it may be changed in place and must stay JSON.
        time_us: event time of the current record, microseconds since the epoch.
        origin: the observed record that the current one follows from.
        definition: looks up what was remembered of a definition.
        labels: capabilities of tools, as labelled by the operator.
    """

    __slots__ = ("_definition", "_labels", "_origin", "_time_us", "state")

    def __init__(
        self,
        state: dict[str, Any],
        time_us: int,
        origin: Origin,
        definition: Callable[[str], Any],
        labels: Labels = NO_LABELS,
    ) -> None:
        self.state = state
        self._time_us = time_us
        self._origin = origin
        self._definition = definition
        self._labels = labels

    def definition(self, full_digest: str | None) -> Any:
        """Return what ``Agent.definitions`` made of the definition with this full digest, ``None`` if nothing."""
        return None if full_digest is None else self._definition(full_digest)

    def labels(self, server_id: str, tool_name: str) -> tuple[str, ...] | None:
        """Return a tool's capabilities as labelled by the operator (``--labels``), ``None`` if there are none."""
        return self._labels.of(server_id, tool_name)

    def window(self, name: str, *, seconds: float) -> Window:
        """Return the window that ends with the current record.

        Args:
            name: its name in the state, where it is kept.
            seconds: its length. A record exactly as old is no longer in it.
        """
        return Window(self.state, name, self._time_us, self._origin, int(seconds * 1_000_000))


class Window:
    """Items with event times in (end - length, end], where the end is the current record.

    Records of several servers may arrive out of order of their event times. So if later items are already present,
    the window ends with the item that puts the most into it, among those that include the current record: whichever of
    some records comes last sees all of them.

    Args:
        state: holds the items as rows of time, topic, partition, offset and value; it is changed.
        name: its name in the state.
        end_us: event time of the current record, microseconds since the epoch.
        origin: the current record.
        length_us: the length in microseconds.
    """

    def __init__(self, state: dict[str, Any], name: str, end_us: int, origin: Origin, length_us: int) -> None:
        self._state = state
        self._name = name
        self._rows: list[list[Any]] = state.get(name, [])
        self._end_us = end_us
        self._origin = origin
        self._length_us = length_us

    def add(self, value: Any = None) -> None:
        """Add the current record, with an optional value.

        Items older than twice the length are dropped, and the oldest beyond ``agent_window_items_max``.
        """
        forgotten_us = self._end_us - 2 * self._length_us
        rows = [*(row for row in self._rows if row[0] > forgotten_us), [self._end_us, *self._origin, value]]
        rows.sort(key=lambda row: row[:4])
        self._rows = self._state[self._name] = rows[-DEFAULT_LIMITS.agent_window_items_max :]

    def clear(self) -> None:
        """Drop the items in it, so that the next detection needs new ones."""
        inside = self._inside()
        self._rows = [row for row in self._rows if row not in inside]
        self._state[self._name] = self._rows
        if not self._rows:
            del self._state[self._name]

    @property
    def values(self) -> list[Any]:
        """The values added, in order of (event time, origin)."""
        return [row[4] for row in self._inside()]

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The latest records in it, as many as a detection may refer to."""
        rows = self._inside()[-DEFAULT_LIMITS.agent_references_max :]
        return tuple(Origin(topic, partition, offset) for _, topic, partition, offset, _ in rows)

    def __len__(self) -> int:
        return len(self._inside())

    def _inside(self) -> list[list[Any]]:
        times = [row[0] for row in self._rows]
        first, last = bisect_right(times, self._end_us), bisect_right(times, self._end_us + self._length_us - 1)
        windows = [
            (bisect_right(times, end_us - self._length_us), bisect_right(times, end_us))
            for end_us in (self._end_us, *times[first:last])
        ]
        begin, end = max(windows, key=lambda window: window[1] - window[0])
        return self._rows[begin:end]


class Fields:
    """A key function of evidence: the values of some fields of ``data``, or no key where one is missing.

    Args:
        names: fields with string values: ``Fields("server_id", "tool")``.

    Raises:
        ConfigurationError: ``agent_bad_declaration`` for a field that evidence does not have.
    """

    def __init__(self, *names: str) -> None:
        known = set(get_type_hints(DecisionPayload)) - {"origin"}
        strange = [name for name in names if name not in known]
        if strange or not names:
            why = f"evidence has no field {strange[0]!r}" if strange else "a key needs a field"
            raise ConfigurationError("agent_bad_declaration", f"Fields: {why}; there are {', '.join(sorted(known))}")
        self.names = names

    def __call__(self, event: Event[Any]) -> tuple[Any, ...] | None:
        data = event.value["data"]
        key = tuple(data.get(name) for name in self.names)
        return None if None in key else key


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The result of a handler: it becomes a finding, and the finding an alert.

    Two detections are one alert if agent, key, server and tool are the same.

    Args:
        about: the subject, instead of the key, where one key stands for several things.
        server_id: the server it is about, ``None`` for that of the event; ``*`` for none in particular.
        tool_name: the tool, ``None`` where it is about none.
        severity: ``None`` for the agent's own.
        references: origins of the records that support it, besides the event's.
    """

    server_id: str | None = None
    tool_name: str | None = None
    severity: Severity | None = None
    references: tuple[Origin, ...] = ()
    about: tuple[str, ...] | None = None


Key = str | tuple[str, ...] | None
"""The key that a record is kept under. ``None``: the agent skips the record."""
Handler = Callable[[Event[Value], Memory], Iterable[Detection] | None]
_Wrap = Callable[[Handler[Value]], Handler[Value]]


class Input(NamedTuple):
    """One input of an agent: how its records are keyed, and its handler."""

    key: Callable[[Event[Any]], Key]
    handle: Handler[Any]


class Agent:
    """A detection. Declare it at the top level of a module, and its handlers below it.

    A handler gets records one by one, those of one key in the order in which they were read. It may use the event and
    the memory of its key, and nothing else: no clock, no randomness, no files, no network, no global variables that
    change. Otherwise a replay would give different results.

    Args:
        name: unique among the agents that run together; lower-case letters, digits and underscores.
        title: of its alerts; one line.
        severity: of its alerts, unless a detection sets another.
        forget_after_s: the memory of a key is cleared if the key's next record comes later than this after its
            latest, in seconds of event time.

    Raises:
        ConfigurationError: ``agent_bad_declaration``.
    """

    def __init__(self, name: str, *, title: str, severity: Severity = "medium", forget_after_s: int = 3_600) -> None:
        if not re.fullmatch(AGENT_NAME, name):
            raise _bad_declaration(name, "a name has lower-case letters, digits and underscores, 64 at most")
        if not title.strip() or len(title) > DEFAULT_LIMITS.identifier_chars_max or not title.isprintable():
            raise _bad_declaration(name, "a title is one line of text")
        if severity not in {str(level) for level in Level}:
            raise _bad_declaration(name, "the severity must be informational, low, medium, high or critical")
        if forget_after_s <= 0:
            raise _bad_declaration(name, "forget_after_s must be positive")
        self.name = name
        self.title = title
        self.severity: Severity = severity
        self.forget_after_us = int(forget_after_s * 1_000_000)
        self.inputs: dict[Role, Input] = {}
        self.label: Callable[[dict[str, Any]], Json] | None = None

    def evidence(self, *, key: Callable[[Event[Evidence]], Key]) -> _Wrap[Evidence]:
        """Declare the handler of evidence: one record per call, whatever was decided about the call."""
        return self._input(Role.EVIDENCE, key)

    def findings(self, *, key: Callable[[Event[Finding]], Key]) -> _Wrap[Finding]:
        """Declare the handler of findings. Agents' findings are excluded: no detection feeds on itself."""
        return self._input(Role.FINDINGS, key)

    def alerts(self, *, key: Callable[[Event[Alert]], Key]) -> _Wrap[Alert]:
        """Declare the handler of alerts: each time one is created, updated or closed. Agents' alerts are excluded."""
        return self._input(Role.ALERTS, key)

    def definitions(self, label: Callable[[dict[str, Any]], Json]) -> Callable[[dict[str, Any]], Json]:
        """Declare what to remember of a tool, prompt or resource template as its server defined it.

        ``Memory.definition`` returns it under the definition's full digest, whatever the key. ``None`` remembers
        nothing.
        """
        if self.label is not None:
            raise _bad_declaration(self.name, "it has two functions for definitions")
        self.label = label
        return label

    def _input(self, role: Role, key: Callable[[Event[Any]], Key]) -> _Wrap[Any]:
        def declare(handle: Handler[Any]) -> Handler[Any]:
            if role in self.inputs:
                raise _bad_declaration(self.name, f"it has two handlers of {role.value}")
            self.inputs[role] = Input(key, handle)
            return handle

        return declare


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSet:
    """The agents that run together.

    Args:
        agents: by name.
        digest: of the code that declares them, and of the labels.
        labels: capabilities of tools, as labelled by the operator.
    """

    agents: dict[str, Agent]
    digest: str
    labels: Labels = NO_LABELS

    @property
    def roles(self) -> tuple[Role, ...]:
        """The topics that they read, every partition of each."""
        read = {role for agent in self.agents.values() for role in agent.inputs}
        if any(agent.label is not None for agent in self.agents.values()):
            read.add(Role.DEFINITIONS)
        return tuple(sorted(read))


def agent_set(agents: Iterable[Agent], *, digest: str, labels: Labels = NO_LABELS) -> AgentSet:
    """Return the agents that run together.

    Args:
        digest: of the code that declares them, ``sha256:...``.
        labels: capabilities of tools, as labelled by the operator; they are part of the set's digest.

    Raises:
        ConfigurationError: ``agent_bad_declaration`` for two agents of one name, for one without a handler, or none.
    """
    found: dict[str, Agent] = {}
    for agent in agents:
        if agent.name in found:
            raise _bad_declaration(agent.name, "two agents have this name")
        if not agent.inputs:
            raise _bad_declaration(agent.name, "it has no handler: decorate a function with @agent.evidence(key=...)")
        found[agent.name] = agent
    if not found:
        why = "the module declares no agent: write NAME = Agent(...) at its top level"
        raise ConfigurationError("agent_bad_declaration", why)
    if labels.rows:
        digest = str(jcs_digest({"code": digest, "labels": [[*row] for row in labels.rows.items()]}))
    return AgentSet(agents=dict(sorted(found.items())), digest=digest, labels=labels)


def raised(agent: str, error: BaseException) -> ConfigurationError | KeyboardInterrupt:
    """Return the error for an agent that raised: class and line, without the text, which may quote a record.

    Whatever it raised: ``SystemExit`` would end a worker silently, with an exit code of the agent's choice. Only an
    interrupt from the keyboard is returned as it is.
    """
    if isinstance(error, KeyboardInterrupt):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
    return ConfigurationError("agent_raised", about(agent, f"it raised {type(error).__name__}{where}"))


def about(agent: str, why: str) -> str:
    return f"agent {agent[:64]!r}: {why}"


def _bad_declaration(name: str, why: str) -> ConfigurationError:
    return ConfigurationError("agent_bad_declaration", about(name, why))


def load_agents(name: str, *, labels: Labels = NO_LABELS) -> AgentSet:
    """Import a module and return the agents at its top level.

    Args:
        name: dotted name of an importable module, searched in the current folder first; optionally a colon and the name
            of one of its agents.
        labels: capabilities of tools, as labelled by the operator.

    Raises:
        ConfigurationError: ``agents_not_found`` if it cannot be imported or has no such agent,
            ``agent_bad_declaration`` if one of its declarations is wrong.
    """
    if "" not in sys.path:
        # As `python -m` does: where users keep the module that they name.
        sys.path.insert(0, "")
    name, _, wanted = name.partition(":")
    try:
        module = importlib.import_module(name)
    except (ConfigurationError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigurationError("agents_not_found", f"cannot import {name[:200]!r}: {_why(name, error)}") from error
    agents = list({id(each): each for each in vars(module).values() if isinstance(each, Agent)}.values())
    digest = _digest(module, agents) if agents else ""
    declared = agent_set(agents, digest=digest, labels=labels)
    if not wanted:
        return declared
    if wanted not in declared.agents:
        names = ", ".join(declared.agents)
        raise ConfigurationError("agents_not_found", f"{name} has no agent {wanted[:64]!r}; it has {names}")
    return agent_set([declared.agents[wanted]], digest=digest, labels=labels)


def _why(name: str, error: BaseException) -> str:
    """Return why a module could not be imported: class and line, without the text of the error."""
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if not all(map(str.isidentifier, name.split("."))) or (absent and f"{name}.".startswith(f"{absent}.")):
        how = "name it as import does (mine for mine.py), in its folder or with that on PYTHONPATH"
        return f"{type(error).__name__}; {how}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno} of {error.filename}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"it raised {type(error).__name__} in line {last.lineno} of {last.filename}"


def _digest(module: ModuleType, agents: list[Agent]) -> str:
    """Return the digest of the source of a module and of those that its agents' functions come from."""
    names = {module.__name__}
    for agent in agents:
        for declared in agent.inputs.values():
            names |= {declared.key.__module__, declared.handle.__module__}
        if agent.label is not None:
            names.add(agent.label.__module__)
    sources: dict[str, str] = {}
    for name in sorted(map(str, names)):  # a method of a built-in object has none
        try:
            sources[name] = inspect.getsource(sys.modules[name])
        except (OSError, TypeError, KeyError):
            raise ConfigurationError(
                "agents_not_found", f"the source of module {name[:200]!r} is needed for its digest, and is not there"
            ) from None
    return str(jcs_digest(sources))
