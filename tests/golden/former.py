"""What the golden commit did in the place of what changed since: ``[[former]]`` in ``changes.toml`` names both."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from assay_stream.alerts.processor import _Step
from assay_stream.alerts.record_counts import NAME_RECORDS
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.finding import Finding
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.timeline import latest_of_equal
from assay_stream.replay.order import _NAME_BYTES
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.text.look_alikes import skeleton


def nothing(*_arguments: Any, **_named: Any) -> tuple[()]:
    """What stands for a search that the golden commit did not make."""
    return ()


def nothing_set(*_arguments: Any) -> frozenset[str]:
    """What stands for names that the golden commit did not look at."""
    return frozenset()


_is_approved = ServerBindings.is_approved


def is_approved_and_known(server: ServerBindings, name: str, full: str, *_: Fingerprint) -> bool:
    """Tell of an approval only where the fleet was shown the definition before."""
    return server.has_definition(full) and _is_approved(server, name, full)


def the_first(findings: list[Any], *_: Any) -> list[Any]:
    """What stands for findings that are given more to say."""
    return findings


def none(*_: Any) -> None:
    """What stands for a question that the golden commit did not ask."""


def no(*_: Any) -> bool:
    """What stands for a rule that the golden commit did not have."""
    return False


def yes(*_: Any) -> bool:
    """A check that held."""
    return True


def named_by_anybody(server: ServerBindings, snapshot_id: str, _observer_id: str) -> list[Any]:
    """What a snapshot id named: every list under it, whoever had published it."""
    return latest_of_equal(seen for timeline in server.observers.values() for seen in timeline.named(snapshot_id))


def anybodys_name(server_id: str, _observer_id: str, snapshot_id: str) -> tuple[bytes, bytes]:
    """What a replay waited for: the first list under an id, whoever had published it."""
    name = sha256(repr((server_id, snapshot_id)).encode()).digest()[:_NAME_BYTES]
    return name, name


def itself(alert: Any) -> Any:
    """What stands for an alert that is given more members."""
    return alert


no_keys: dict[str, str] = {}
"""What stands for names that were not written."""


def key_without_repetition(view: Any) -> str:
    """What stands for the idempotency key."""
    return f"{view.uid}:{view.count}:{view.activity_id}"


def always_plural(count: int, noun: str, plural: str | None = None) -> str:
    """What stands for a count whose noun agrees with it."""
    return f"{count} {plural or f'{noun}s'}"


def skeleton_of(tool_name: str) -> str:
    """What stands for the group of a name."""
    return skeleton(tool_name)


def without_ends_of_names(group: str | None) -> int:
    """What stands for the bound beyond which an end is written; names had none."""
    return DEFAULT_LIMITS.alerts_per_record_max if group is None else 1 << 32


_find = _Step.find


def without_counts_of_names(step: _Step, finding: Finding, *about_name: Any) -> None:
    """Count a finding, and forget how many of the server's names had one: none of them was folded."""
    _find(step, finding, *about_name)
    for key in [key for key in step.states if key.startswith(NAME_RECORDS)]:
        del step.states[key]


shadowed_only = (None, "tool_shadowed")
"""What stands for the kinds whose rules go to every partition."""
