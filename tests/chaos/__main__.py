"""The long form: every fault, many times. ``make chaos``.

``ASSAY_CHAOS_SEED`` repeats a run's choices, ``ASSAY_CHAOS_ROUNDS`` says how often every fault is injected,
``ASSAY_CHAOS_ONLY`` restricts to faults whose name contains one of its parts, comma separated.
"""

import asyncio
import os
import random
import signal
import sys
import time
import traceback

from aiokafka.errors import KafkaError

from assay_stream.errors import AssayStreamError
from tests.chaos.faults import FAULTS
from tests.chaos.rounds import Record, play_round
from tests.chaos.world import standing_ground

FAULTS_PER_ROUND = 6


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = int(os.environ.get("ASSAY_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    times = int(os.environ.get("ASSAY_CHAOS_ROUNDS") or 3)
    only = os.environ.get("ASSAY_CHAOS_ONLY", "").split(",")
    choose = random.Random(seed)
    names = [name for name in FAULTS if any(part in name for part in only)] * times
    choose.shuffle(names)
    rounds = [names[first : first + FAULTS_PER_ROUND] for first in range(0, len(names), FAULTS_PER_ROUND)]
    record = Record(seed=seed)
    broken = []
    started_s = time.monotonic()
    print(f"chaos: ASSAY_CHAOS_SEED={seed} ASSAY_CHAOS_ROUNDS={times}", flush=True)
    with standing_ground() as ground:
        for faults in rounds:
            round_seed = choose.randrange(10**6)
            try:
                asyncio.run(play_round(ground, faults, seed=round_seed, record=record))
            except (AssertionError, AssayStreamError, KafkaError, TimeoutError):
                traceback.print_exc()
                broken.append(f"round with seed {round_seed}: {', '.join(faults)}")
                ground.cluster.start()
    print(record.table())
    print(f"took {time.monotonic() - started_s:.0f} s; {len(broken)} rounds in which a promise did not hold")
    for line in broken:
        print(f"  {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
