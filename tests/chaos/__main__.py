"""The long form: every fault, many times. ``make chaos``.

``ASSAY_CHAOS_SEED`` repeats a run's choices, ``ASSAY_CHAOS_ROUNDS`` says how often every fault is injected,
``ASSAY_CHAOS_ONLY`` restricts to faults whose name contains one of its parts, comma separated, ``ASSAY_CHAOS_MODES``
to modes: ``simple``, ``keyed``, ``migrating``.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
import traceback

from aiokafka.errors import KafkaError

from assay_stream.errors import AssayStreamError
from tests.chaos.faults import FAULTS_OF
from tests.chaos.mode_faults import MIGRATION
from tests.chaos.modes import KEYED
from tests.chaos.rounds import Record, play_round
from tests.chaos.world import standing_ground

FAULTS_PER_ROUND = 6
FAULTS_AFTER_MIGRATION = 2


def main() -> int:
    """Run all rounds; the exit code is 1 where a promise did not hold."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = int(os.environ.get("ASSAY_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    times = int(os.environ.get("ASSAY_CHAOS_ROUNDS") or 3)
    only = os.environ.get("ASSAY_CHAOS_ONLY", "").split(",")
    modes = (os.environ.get("ASSAY_CHAOS_MODES") or "simple,keyed,migrating").split(",")
    choose = random.Random(seed)
    rounds = [
        (mode, names)
        for mode, faults in FAULTS_OF.items()
        for names in _rounds([name for name in faults if any(part in name for part in only)] * times, choose)
        if mode.name in modes
    ]
    record = Record(seed=seed)
    broken = []
    started_s = time.monotonic()
    print(f"chaos: ASSAY_CHAOS_SEED={seed} ASSAY_CHAOS_ROUNDS={times}", flush=True)
    with standing_ground() as ground:
        for mode, faults in rounds:
            round_seed = choose.randrange(10**6)
            try:
                asyncio.run(play_round(ground, faults, seed=round_seed, record=record, mode=mode))
            except (AssertionError, AssayStreamError, KafkaError, TimeoutError):
                traceback.print_exc()
                broken.append(f"round with seed {round_seed}, {mode.name} mode: {', '.join(faults)}")
                ground.cluster.start()
    print(record.table())
    print(f"took {time.monotonic() - started_s:.0f} s; {len(broken)} rounds in which a promise did not hold")
    for line in broken:
        print(f"  {line}")
    return 1 if broken else 0


def _rounds(names: list[str], choose: random.Random) -> list[list[str]]:
    """Return the faults of each round."""
    choose.shuffle(names)
    if names == [*MIGRATION] * len(names):
        # A deployment changes over once: other faults follow.
        return [[name, *choose.sample([*FAULTS_OF[KEYED]], k=FAULTS_AFTER_MIGRATION)] for name in names]
    return [names[first : first + FAULTS_PER_ROUND] for first in range(0, len(names), FAULTS_PER_ROUND)]


if __name__ == "__main__":
    sys.exit(main())
