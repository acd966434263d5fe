"""Faults of the machine that a worker runs on: its disk is full, its clock jumps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.world import NotPossibleHereError, World

_CLOCK_SOURCE = Path(__file__).resolve().parents[1] / "support" / "clock_jump.c"
_DAY_S = 86_400
_END_LIMIT_S = 240.0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossibleHereError(f"{command[0]}: {done.stderr.strip() or 'failed'}")


async def full_disk(world: World) -> None:
    """A worker starts with no room in its state folder, says so, and comes up once there is some."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        raise NotPossibleHereError("mounting a small disk needs root")
    folder = Path(".run/tests").resolve() / f"{world.deployment.name}-full"
    folder.mkdir(parents=True)
    # Room for the folder itself and one more: Faust makes three.
    _run("mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=2", "tmpfs", str(folder))
    try:
        post = world.crew.hire("full disk", None, ASSAY_STREAM_STATE_DIR=str(folder))
        limit_s = time.monotonic() + _END_LIMIT_S
        while not post.ended:
            assert time.monotonic() < limit_s, "a worker without room for its state neither starts nor ends"
            await asyncio.sleep(0.5)
        assert post.ended[0] == 3
        _run("mount", "-o", "remount,nr_inodes=100", str(folder))
        while (await asyncio.to_thread(post.worker.get, "/readyz"))[0] != 200:
            assert time.monotonic() < limit_s, f"the worker does not come back:\n{post.worker.tail()}"
            await asyncio.sleep(0.5)
        with (folder / "filler").open("wb") as filler, contextlib.suppress(OSError):
            filler.write(b"x" * 1_000_000)
        await world.pause(3, 6)
        world.crew.dismiss("full disk", gently=True)
        await asyncio.to_thread(post.worker.process.wait, _END_LIMIT_S)
    finally:
        _run("umount", "-l", str(folder))


async def clock_jump(world: World) -> None:
    """The wall clock of a worker of all roles jumps a day ahead and back, again and again."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NotPossibleHereError("no C compiler for a clock that jumps")
    folder = Path(".run/tests").resolve() / world.deployment.name
    library, offset = folder / "clock_jump.so", folder / "clock_offset"
    _run(compiler, "-shared", "-fPIC", "-o", str(library), str(_CLOCK_SOURCE), "-ldl")
    offset.write_text("0")
    world.crew.hire("clock", None, LD_PRELOAD=str(library), CLOCK_JUMP_FILE=str(offset))
    for _ in range(6):
        await world.pause(2, 4)
        offset.write_text(str(world.choose.randrange(-_DAY_S, _DAY_S)))
    world.crew.dismiss("clock", gently=True)


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    "state folder full": full_disk,
    "clock jumps": clock_jump,
}
