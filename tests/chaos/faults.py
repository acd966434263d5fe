"""The faults, by name. Each breaks something at random moments, and returns when nothing is broken any more.

What it killed may still be on its way back then: how long that takes is what the runner measures.
"""

from collections.abc import Awaitable, Callable

from tests.chaos import broker_faults, load_faults, machine_faults, storage_faults, worker_faults
from tests.chaos.world import World

Fault = Callable[[World], Awaitable[None]]

FAULTS: dict[str, Fault] = (
    worker_faults.FAULTS | broker_faults.FAULTS | storage_faults.FAULTS | machine_faults.FAULTS | load_faults.FAULTS
)
"""Every fault, by name."""
