"""Whether the join is as fast as in the release before, each beside the raw client of its own run.

    python -m bench.ratio_gate [--rounds N] [--calls N] [--keep RELEASE]

Join and pass-through take turns in one process on one broker, and write records of the same length. Processor time per
call counts: the clock depends on what else the machine does. The gate fails where the 95 % interval of the change lies
wholly below ``RATIO_MIN``. ``--keep`` writes the ratios of this run down as those of a release.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from functools import partial
from pathlib import Path

import orjson

from assay_stream.cli.shared import quiet_client_logs
from assay_stream.config import load_settings
from assay_stream.model.plain_call import NATIVE_CALLS
from bench.bench_join import pass_on, run_join, run_raw, run_registry, with_topics
from bench.on_broker import Count
from bench.publishing import publish
from bench.rounds import ROUNDS_MIN, Ratio, change_of
from deploy.local.kafka import Broker
from tests.support.fleet import Fleet

BASELINE = Path(__file__).resolve().parent / "ratio_baseline.json"
RATIO_MIN = 0.9
_EVIDENCE_BYTES = 2_075
"""How long evidence of the calls of ``Fleet`` is."""
_PATH = "with the extension" if NATIVE_CALLS else "without the extension"


def is_slower(change: Ratio) -> bool:
    """Tell whether the whole interval lies below ``RATIO_MIN``."""
    return change.high < RATIO_MIN


async def measure(bootstrap: str, calls: int, rounds: int) -> list[float]:
    """Return the processor time per call of the pass-through / that of the join, of each round."""
    settings = load_settings(bootstrap_servers=bootstrap, call_partitions=4, poll_timeout_ms=200, group_prefix="gate")
    counts = await with_topics(settings)
    await publish(settings, Fleet(servers=100, calls=calls, changes=20, seed=11))
    await run_registry(settings, counts)
    step = partial(pass_on, record_bytes=_EVIDENCE_BYTES)
    ratios = []
    for number in range(rounds + 1):
        raw = await run_raw(settings, f"raw-{number}", counts, Count(), calls, step)
        join = await run_join(settings.model_copy(update={"group_prefix": f"gate-{number}"}), counts, calls)
        if number:  # in the first round broker and caches are cold
            ratios.append(raw.cpu_us / join.cpu_us)
            print(f"round {number}: raw {raw.cpu_us:.1f} us CPU, join {join.cpu_us:.1f}, ratio {ratios[-1]:.3f}")
    return ratios


def main() -> None:
    """Measure, then compare or keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=150_000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keep", metavar="RELEASE", help="write the ratios down as those of this release")
    arguments = parser.parse_args()
    if arguments.rounds < ROUNDS_MIN:
        parser.error(f"an interval takes at least {ROUNDS_MIN} rounds")
    quiet_client_logs()
    gc.set_threshold(50_000, 50, 100)  # as the worker does
    with Broker() as broker:
        ratios = asyncio.run(measure(broker.bootstrap, arguments.calls, arguments.rounds))
    kept = orjson.loads(BASELINE.read_bytes()) if BASELINE.exists() else {}
    if arguments.keep:
        kept[_PATH] = {"release": arguments.keep, "ratios": [round(ratio, 4) for ratio in ratios]}
        BASELINE.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
        print(f"kept as {arguments.keep}, {_PATH}: {BASELINE}")
        return
    if _PATH not in kept:
        sys.exit(
            f"{BASELINE} holds no ratios {_PATH}: check out the release, run this with --keep there, and commit it"
        )
    before = kept[_PATH]
    change = change_of(ratios, before["ratios"])
    print(f"beside the raw client, {_PATH}: {change} of {before['release']}")
    if is_slower(change):
        sys.exit(f"the join is slower than in {before['release']}: all of the interval lies below {RATIO_MIN}")


if __name__ == "__main__":
    main()
