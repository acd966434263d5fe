"""Decisions as control records: the same whether a command or the console makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from assay_stream.errors import InputError
from assay_stream.model.control import ALERT_TYPE, PIN_REJECT_TYPE, PIN_SET_TYPE

Decision = tuple[str, Mapping[str, Any]]
"""Event type and data of a decision, without author and reason."""

AlertAct = Literal["acknowledge", "assign", "comment", "close", "reopen"]
DefinitionAct = Literal["approve", "reject"]
PIN_TYPES: Mapping[DefinitionAct, str] = {"approve": PIN_SET_TYPE, "reject": PIN_REJECT_TYPE}

DEFAULT_SCHEME = "assay.p60"
"""What a tool is pinned under by default: it covers the output schema and the annotations too."""


def alert_decision(act: AlertAct, *, server_id: str, uid: str, assignee: str | None = None) -> Decision:
    """Build a decision on an alert; ``uid`` is the full uid."""
    given = {} if assignee is None else {"assignee": assignee}
    return ALERT_TYPE + act, {"server_id": server_id, "alert": uid, **given}


def definition_decisions(
    act: DefinitionAct, *, server_id: str, tool_name: str, values: Mapping[str, str]
) -> list[Decision]:
    """Return one decision for each value of a definition.

    Args:
        values: by scheme, from ``values_to_decide``.
    """
    return [
        (PIN_TYPES[act], {"server_id": server_id, "tool_name": tool_name, "scheme": scheme, "value": value})
        for scheme, value in values.items()
    ]


def values_to_decide(
    printed: Mapping[str, str], tool_name: str, *, pinned: Iterable[str], schemes: Iterable[str] = ()
) -> dict[str, str]:
    """Return the values of a definition to decide on, by scheme.

    Args:
        printed: its value under every scheme, as the registry printed it for its server.
        pinned: the schemes under which the tool has an approved value.
        schemes: empty for those under which the tool is already pinned, else the default one, since
            approving a change under one scheme only would leave the others to differ.

    Raises:
        InputError: ``scheme_not_available``.
    """
    values: dict[str, str] = {}
    for scheme in list(schemes) or sorted(pinned) or (DEFAULT_SCHEME,):
        if scheme not in printed:
            raise InputError(
                "scheme_not_available",
                f"the definition has no value under {scheme}: choose another with --scheme",
                path=tool_name,
            )
        values[scheme] = printed[scheme]
    return values
