"""Agents of a user's module, with the digest of the code that declares them."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from types import ModuleType

from assay_stream.agents.declaration import RAISED, Agent, AgentSet, agent_set
from assay_stream.agents.labels import NO_LABELS, Labels
from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import ConfigurationError


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
    except ConfigurationError:
        raise
    except RAISED as error:
        raise ConfigurationError("agents_not_found", f"cannot import {name[:200]!r}: {_why(name, error)}") from error
    agents = list({id(each): each for each in vars(module).values() if isinstance(each, Agent)}.values())
    digest = _digest(module, agents)
    declared = agent_set(agents, digest=digest, labels=labels)
    if not wanted:
        return declared
    if wanted not in declared.agents:
        names = ", ".join(declared.agents)
        raise ConfigurationError("agents_not_found", f"{name} has no agent {wanted[:64]!r}; it has {names}")
    return agent_set([declared.agents[wanted]], digest=digest, labels=labels)


def _why(name: str, error: BaseException) -> str:
    """Return why a module could not be imported: class and line, without the text of the error."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}."):
        return f"{type(error).__name__}; is its folder the current one, or on PYTHONPATH?"
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
    for name in sorted(names):
        try:
            sources[name] = inspect.getsource(sys.modules[name])
        except (OSError, TypeError, KeyError):
            raise ConfigurationError(
                "agents_not_found", f"the source of module {name[:200]!r} is needed for its digest, and is not there"
            ) from None
    return str(jcs_digest(sources))
