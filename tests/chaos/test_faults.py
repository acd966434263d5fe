"""The promises under faults, in a short form. The long form is ``make chaos``."""

import os

import pytest

from tests.chaos.rounds import Record, play_round
from tests.chaos.world import Ground

# Under a minute each alone; a busy machine may take many times as long.
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1_500)]

SEED = int(os.environ.get("ASSAY_CHAOS_SEED") or 11)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(["kill -9: all roles", "frozen past the session: all roles", "SIGTERM: join"], id="workers"),
        pytest.param(["kill -9: join", "kill -9: the active controller", "a broker hangs"], id="brokers"),
    ],
)
async def test_promises_hold_under_faults(ground: Ground, faults: list[str]) -> None:
    """After faults under load: one record per call, an undisturbed run's bytes, no lag, no hand needed."""
    record = Record(seed=SEED)
    await play_round(ground, faults, seed=SEED, record=record)
    assert record.checked["evidence"] > 0
    assert record.checked["alerts"] > 0
