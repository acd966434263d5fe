"""What a proxy does with a call, by the verdicts on a server's tools and the definition that its client was given.

The stream's verdict covers the whole fleet and arrives a moment after a change. The definition that the proxy itself
passed to its client is checked against the same pins at once, and takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from assay_stream.bindings.pins import PinsInForce, check_pins
from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.evidence import PinResult, PinStatus
from assay_stream.schemes.fingerprint import SCHEMES, Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy, MismatchAction, UnknownPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stream's verdict on one tool, or on the tools of a server that have none of their own.

    Args:
        action: the policy's action for the tool as the fleet sees it.
        result: the worst pin result among the tool's definitions.
    """

    action: Action
    result: PinResult
    pins: PinsInForce
    policy: DigestPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    action: Action
    reason_code: str
    result: PinResult | None = None


UNREADABLE = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "unreadable"), fields={})
"""A definition given to a client that has no value under any scheme."""

WITHDRAWN = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "withdrawn"), fields={})
"""A definition given to a client before the server changed its list to one without it."""

NO_VERDICT = Ruling(action=Action.ALLOW, reason_code="no_verdict")


class VerdictTable:
    """The current state of the verdict topic, by server and tool."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str | None], Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the verdict topic.

        Raises:
            IntegrityError: ``foreign_verdict`` if another writer has written to the topic.
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
                "foreign_verdict", "the verdict topic holds a record that is not ours: find out who writes to it"
            ) from None

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None) -> Ruling:
        """Return what to do with a call.

        The definition that the client was given takes precedence over what the fleet sees. If it has no value under
        a pin's scheme it counts as a mismatch, because the approved definition had one.
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
            return _ruling(action, replace(result, status=PinStatus.UNOBSERVED))
        if result.status is PinStatus.MISMATCH and result.observed is None:
            return Ruling(action=action, reason_code="definition_not_digestible", result=result)
        return _ruling(action, result)


def _ruling(action: Action, result: PinResult) -> Ruling:
    return Ruling(action=action, reason_code=f"definition_{result.status.value}", result=result)


def _read(content: Mapping[str, Any]) -> Verdict:
    action, policy = Action(content["action"]), content.get("policy")
    if policy is not None:
        enforcement, unknown = MismatchAction(policy["enforcement"]), UnknownPolicy.parse(policy["unknown"])
        policy = DigestPolicy(enforcement=enforcement, unknown=unknown)
    optional = {name: content.get(name) for name in ("scheme", "expected", "observed", "enforcement")}
    rejected = {scheme: tuple(values) for scheme, values in content.get("rejected", {}).items()}
    return Verdict(
        action=action,
        result=PinResult(status=PinStatus(content["status"]), action=action, **optional),
        pins=PinsInForce(approved=dict(content.get("pins", {})), rejected=rejected),
        policy=policy,
    )
