"""Rounds of faults: a new deployment each, some faults under load, then every promise is checked."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.chaos.catching_up import caught_up
from tests.chaos.faults import FAULTS
from tests.chaos.invariants import check_promises
from tests.chaos.world import Ground, NotPossibleHereError, living_world

_WIDTH = 52


@dataclass
class Record:
    """What rounds have shown."""

    seed: int
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    skipped: dict[str, str] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def table(self) -> str:
        lines = [f"seed {self.seed}", f"{'fault':{_WIDTH}}{'injected':>9}{'recovery: median':>18}{'longest':>9}"]
        for name, times in self.recovery_s.items():
            lines.append(f"{name:{_WIDTH}}{len(times):>9}{median(times):>16.1f} s{max(times):>7.1f} s")
        lines.extend(f"{name:{_WIDTH}}  skipped: {why}" for name, why in self.skipped.items())
        checked = ", ".join(f"{count} {what}" for what, count in self.checked.items())
        return "\n".join([*lines, f"checked: {checked}"])


async def play_round(ground: Ground, names: Sequence[str], *, seed: int, record: Record) -> None:
    """Inject faults one after the other under load, then check every promise.

    Args:
        ground: the cluster.
        names: which faults, in order.
        seed: of the load and of every choice.
        record: what is added to.
    """
    print(f"chaos: round with seed {seed}", flush=True)
    async with living_world(ground, random.Random(seed)) as (world, load):
        took_s = await caught_up(world.crew)
        print(f"chaos:   ready after {took_s:.1f} s", flush=True)
        for name in names:
            print(f"chaos:   {name}", flush=True)
            try:
                await FAULTS[name](world)
            except NotPossibleHereError as why:
                print(f"chaos:     skipped: {why}", flush=True)
                record.skipped[name] = str(why)
                continue
            took_s = await caught_up(world.crew)
            print(f"chaos:     recovered after {took_s:.1f} s, {load.calls} calls", flush=True)
            record.recovery_s[name].append(took_s)
        await asyncio.sleep(1)
        await load.stop()
        checked = await check_promises(world.crew, calls_published=load.calls, alerts_repeated=world.alerts_repeated)
        for what, count in checked.items():
            record.checked[what] += count
        print(f"chaos:   holds: {checked}", flush=True)
