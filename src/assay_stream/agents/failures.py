"""What is said of an agent that raises, or returns what it may not: its name and the place, never a payload."""

from __future__ import annotations

import traceback
from typing import Any

import orjson

from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import Limits

RAISED = (Exception, SystemExit, GeneratorExit)
"""What user code may raise. ``SystemExit`` would end a worker in silence, with an exit code of the agent's choice."""
_JSON = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def raised(agent: str, error: BaseException) -> ConfigurationError:
    """Return the error for an agent that raised: class and line, without the text, which may quote a record."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
    return ConfigurationError("agent_raised", about(agent, f"it raised {type(error).__name__}{where}"))


def about(agent: str, why: str) -> str:
    """Return a message that names an agent."""
    return f"agent {agent[:64]!r}: {why}"


def to_json(value: Any) -> bytes:
    """Return a value as JSON; an origin, as any named tuple, is a list.

    Raises:
        TypeError: where it is none.
    """
    try:
        return orjson.dumps(value, default=_listed, option=_JSON)
    except RecursionError:
        raise TypeError("too deep") from None


def label_json(agent: str, label: Any, limits: Limits) -> bytes:
    """Return what is remembered of a definition as JSON.

    Raises:
        ConfigurationError: ``agent_bad_label``.
    """
    try:
        value = to_json(label)
    except TypeError:
        raise ConfigurationError(
            "agent_bad_label", about(agent, "what it remembers of a definition must be JSON")
        ) from None
    if len(value) > limits.agent_state_bytes_max:
        raise ConfigurationError(
            "agent_bad_label", about(agent, f"it may remember {limits.agent_state_bytes_max} bytes of a definition")
        )
    return value


def _listed(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return list(value)
    raise TypeError
