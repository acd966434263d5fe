"""What a worker spent on hostile lists, counted from what it wrote: units of work, and bytes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from assay_stream.model.record import Role
from tests.support.deployment import Deployment

BURST_UNITS, UNITS_PER_S = 32_000_000, 1_000_000
"""What a server may save up, and what a second of log time adds. In figures: a limit that is raised must not raise the
bounds of these tests too."""
WRITTEN_PER_BYTE_MAX = 10
"""Bytes that all stages write for a byte of a list. New tools take six, for definitions, facts and findings; and nine
where every list of a flood is analysed in full, as it is where a machine is slow."""
_OUTPUTS = (Role.BINDINGS, Role.DEFINITIONS, Role.VERDICTS, Role.FINDINGS, Role.ALERTS, Role.ALERT_STATES)


class Charge(NamedTuple):
    """Units that a server had before one of its lists, and has after it."""

    before: int
    after: int

    @property
    def units(self) -> int:
        """What the list was charged: at most a burst and one second's refill, since no debt is larger."""
        return self.before - self.after


async def charges(deployment: Deployment, server: str) -> list[Charge]:
    """Return what the lists of a server were charged, in order; a list that cost nothing left no fact."""
    found: list[Charge] = []
    units, at_ms = BURST_UNITS, 0
    for record in await deployment.read(Role.BINDINGS):
        if record.value and json.loads(record.key or b"")[:2] == ["allowance", server]:
            fact = json.loads(record.value)
            refilled = min(BURST_UNITS, units + (fact["time_ms"] - at_ms) * UNITS_PER_S // 1_000)
            units, at_ms = fact["units"], fact["time_ms"]
            found.append(Charge(refilled, units))
    return found


@asynccontextmanager
async def writing_in_proportion(deployment: Deployment) -> AsyncIterator[None]:
    """Fail if what the stages write outgrows the lists that are published in this block."""
    lists, outputs = await _bytes_in(deployment, Role.SNAPSHOTS), await _bytes_in(deployment, *_OUTPUTS)
    yield
    lists = await _bytes_in(deployment, Role.SNAPSHOTS) - lists
    outputs = await _bytes_in(deployment, *_OUTPUTS) - outputs
    print(f"{outputs:,} bytes written for {lists:,} bytes of lists")
    assert outputs <= WRITTEN_PER_BYTE_MAX * lists


async def _bytes_in(deployment: Deployment, *roles: Role) -> int:
    records = [record for role in roles for record in await deployment.read(role)]
    return sum(len(record.key or b"") + len(record.value or b"") for record in records)
