"""Rationing: what the analysis of one server's lists may cost over time, so that its neighbours need not wait.

1. A server has an allowance of work, refilled by the log's timestamps: a replay decides as the live stage did.
2. What a list cost is taken from the allowance of its server, unless the same change was analysed before: a fleet
   that is shown one upgrade by every observer pays for it once.
   Only what is kept is free: what would be worked out again is paid for again.
3. A list that finds the allowance used up is applied and bound, and analysed for what little is left.
4. The allowance is a fact, published with the other facts of the list and only where something was taken from it.
"""

from __future__ import annotations

from dataclasses import replace

from assay_stream.limits import Limits
from assay_stream.model.facts import Allowance


def refilled(known: Allowance | None, server_id: str, time_ms: int, limits: Limits) -> Allowance:
    """Return the allowance of a server at the time of a record.

    Args:
        known: the allowance so far, ``None`` for a server that was never charged.
    """
    if known is None:
        return Allowance(server_id=server_id, time_ms=max(time_ms, 0), units=limits.allowance_burst_units)
    if time_ms < known.time_ms - limits.late_limit_ms:
        return replace(known, time_ms=max(time_ms, 0))
    passed_ms = max(0, time_ms - known.time_ms)
    units = known.units + passed_ms * limits.allowance_units_per_s // 1_000
    return replace(known, time_ms=known.time_ms + passed_ms, units=min(units, limits.allowance_burst_units))


def charged(allowance: Allowance, units: int, change: tuple[str, int] | None, limits: Limits) -> Allowance:
    """Return an allowance from which the cost of a list was taken, down to a debt of what one second refills.

    Without the debt a flood would get each refill whole, and not what is left after the cost of its facts.
    """
    analysed = list(allowance.analysed)
    if change is not None:
        analysed.append(change)
    pairs = sum(size for _, size in analysed)
    while len(analysed) > limits.analysed_changes_max or pairs > limits.analysed_pairs_max:
        pairs -= analysed.pop(0)[1]
    return replace(
        allowance, units=max(-limits.allowance_units_per_s, allowance.units - units), analysed=tuple(analysed)
    )
