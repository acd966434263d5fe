"""The faults, by name. Each breaks something at random moments, and returns when nothing is broken any more.

What it killed may still be on its way back then: how long that takes is what the runner measures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.chaos import broker_faults, machine_faults, mode_faults, storage_faults, worker_faults
from tests.chaos.modes import KEYED, MIGRATING, SIMPLE, Mode
from tests.chaos.world import World

Fault = Callable[[World], Awaitable[None]]

_OF_ANY_MODE = worker_faults.FAULTS | broker_faults.FAULTS | storage_faults.FAULTS | machine_faults.FAULTS
FAULTS: dict[str, Fault] = _OF_ANY_MODE | mode_faults.FAULTS | mode_faults.MIGRATION
"""Every fault, by name."""
FAULTS_OF: dict[Mode, list[str]] = {
    SIMPLE: list(_OF_ANY_MODE),
    KEYED: [*_OF_ANY_MODE, *mode_faults.FAULTS],
    MIGRATING: list(mode_faults.MIGRATION),
}
"""What is injected in each mode."""
