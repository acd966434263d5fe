"""Faults of the machine that a worker runs on: its disk is full, its clock jumps."""

import shutil
import subprocess
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


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {"clock jumps": clock_jump}
