"""Faults of the change to calls keyed by server, and of the load in that mode."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable

from tests.chaos.dying_migration import DISK_FREE_BYTES
from tests.chaos.modes import KEYED, KEYED_ENV, MIGRATING
from tests.chaos.world import NotPossibleHereError, World

_LIMIT_S = 120
_STEPS = (1, 2, 1, 2)
"""Before and after the request for the first topic, then the same for the second: what was created stays created."""


async def move_hot_server(world: World) -> None:
    """Another server becomes hot, its calls are spread otherwise, and a worker that joins them is killed."""
    if world.placing is None:
        raise NotPossibleHereError("calls are not placed by server")
    for _ in range(3):
        world.placing.move()
        await world.pause(1, 3)
    world.crew.kill(world.choose.choice([*world.crew.of_role("join"), *world.crew.of_role(None)]))


async def _assay_stream(world: World, *command: str) -> int:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *command],
        env=os.environ | world.deployment.env,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode


async def migrate(world: World) -> None:
    """``topics migrate`` is killed at each step, a worker after each; then all are restarted in the new mode.

    Calls flow all the time, and their hot server moves.
    """
    if world.mode is not MIGRATING or world.placing is None:
        raise NotPossibleHereError("it runs in its last mode already")
    for step in _STEPS:
        ended = await _assay_stream(world, "-m", "tests.chaos.dying_migration", str(step))
        assert ended == -signal.SIGKILL, f"topics migrate did not get to step {step}"
        world.crew.kill(world.choose.choice([*world.crew.of_role("join"), *world.crew.of_role(None)]))
        world.placing.move()
        await world.pause(0, 1)
    migrated = ["-m", "assay_stream", "topics", "migrate", "--disk-free-bytes", DISK_FREE_BYTES]
    assert await _assay_stream(world, *migrated) == 0
    world.deployment.env |= KEYED_ENV
    world.mode = KEYED
    for post in [*world.crew.of_role("join"), *world.crew.of_role(None)]:
        await world.pause(0, 2)
        world.crew.terminate(post)


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {"the hot server moves": move_hot_server}
MIGRATION: dict[str, Callable[[World], Awaitable[None]]] = {"topics migrate killed at each step": migrate}
