"""Rulings: what a proxy is to do with a call, from the verdicts of the stream and the definition it saw itself.

Pure. The stream's verdict speaks for the whole fleet and comes a moment after a change; the definition that the
proxy itself handed to its client is held against the same pins at once, and counts first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from assay_stream.errors import InputError, IntegrityError
from assay_stream.registry.pin_life import PinsInForce
from assay_stream.registry.pins import PinResult, PinStatus, check_pins
from assay_stream.schemes.fingerprint import SCHEMES, Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy, Enforcement, UnknownPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stream's verdict on one tool, or on the tools of a server that have none of their own.

    Args:
        action: what the policy makes of the tool as the fleet sees it.
        result: how the definition that stands worst stands to its pins.
        pins: the decisions that the verdict rests on.
        policy: the digest policy in force, ``None`` where nobody set one.
    """

    action: Action
    result: PinResult
    pins: PinsInForce
    policy: DigestPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What to do with a call.

    Args:
        action: ``allow``, ``warn`` or ``block``.
        reason_code: why, stable: ``definition_match``, ``definition_mismatch``, ...
        result: how the definition stands to its pins, ``None`` where there is no verdict.
    """

    action: Action
    reason_code: str
    result: PinResult | None = None


UNREADABLE = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "unreadable"), fields={})
"""Stands for a definition that a client was given and that has no value under any scheme."""

WITHDRAWN = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "withdrawn"), fields={})
"""Stands for a definition that a client was given before the server changed its list to one without it."""

NO_VERDICT = Ruling(action=Action.ALLOW, reason_code="no_verdict")


class VerdictTable:
    """The verdict topic as it stands, by server and tool."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str | None], Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record of the verdict topic.

        Args:
            key: JSON array of server and tool.
            value: the verdict, ``None`` to forget it.

        Raises:
            IntegrityError: ``foreign_verdict`` where somebody else has written to the topic.
        """
        try:
            place = orjson.loads(key or b"")
            if not isinstance(place, list):
                raise TypeError
            server_id, tool_name = place
            if not isinstance(server_id, str) or not (tool_name is None or isinstance(tool_name, str)):
                raise TypeError
            if value is None:
                self._verdicts.pop((server_id, tool_name), None)
            else:
                self._verdicts[server_id, tool_name] = _read(orjson.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError, InputError):
            raise IntegrityError(
                "foreign_verdict", "the verdict topic holds a record that is not ours: find who writes to it"
            ) from None

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None) -> Ruling:
        """Return what to do with a call.

        The definition that the client was given counts before what the fleet sees. One that has no value under
        the scheme of a pin is taken for a mismatch: what was approved had one.

        Args:
            server_id: the server.
            tool_name: the tool, by its very characters.
            definition: fingerprint of the definition that this proxy's client was given, ``None`` if not known.
        """
        own = self._verdicts.get((server_id, tool_name))
        verdict = own or self._verdicts.get((server_id, None))
        if verdict is None:
            return NO_VERDICT
        if definition is None and own is not None:
            return _ruling(verdict.action, verdict.result)
        result = check_pins(verdict.pins, definition, policy=verdict.policy)
        action = result.action or Action.ALLOW
        if result.status is PinStatus.MISMATCH and definition is WITHDRAWN:
            unobserved = replace(result, status=PinStatus.UNOBSERVED)
            return _ruling(action, unobserved)
        if result.status is PinStatus.MISMATCH and result.observed is None:
            return Ruling(action=action, reason_code="definition_not_digestible", result=result)
        return _ruling(action, result)


def gravity(action: Action) -> int:
    """Return how much an action holds back, to choose the gravest of several.

    Args:
        action: the action.
    """
    return _ORDER.index(action)


_ORDER = (Action.ALLOW, Action.WARN, Action.BLOCK)


def _ruling(action: Action, result: PinResult) -> Ruling:
    return Ruling(action=action, reason_code=f"definition_{result.status.value}", result=result)


def _read(content: Mapping[str, Any]) -> Verdict:
    policy = content.get("policy")
    return Verdict(
        action=Action(content["action"]),
        result=PinResult(
            status=PinStatus(content["status"]),
            scheme=content.get("scheme"),
            expected=content.get("expected"),
            observed=content.get("observed"),
            enforcement=content.get("enforcement"),
            action=Action(content["action"]),
        ),
        pins=PinsInForce(
            approved=dict(content.get("pins", {})),
            rejected={scheme: tuple(values) for scheme, values in content.get("rejected", {}).items()},
        ),
        policy=None
        if policy is None
        else DigestPolicy(
            enforcement=Enforcement(policy["enforcement"]), unknown=UnknownPolicy.parse(policy["unknown"])
        ),
    )
