"""Two releases in one deployment, restarted in random order, forwards and back, with faults: ``make mixed``."""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import time
import tomllib
from collections import Counter
from dataclasses import replace

from assay_stream.model.record import Role
from deploy.local.kafka import QUICK_START, Broker
from tests.chaos.catching_up import caught_up
from tests.chaos.invariants import check_promises
from tests.chaos.world import SETTINGS
from tests.mixed.finalising import finalise_future, finalise_newer
from tests.mixed.pairs import OTHER, Pairs, begin_stores, note_commands, note_store_refused, note_stores, note_tap
from tests.mixed.releases import BEFORE, ROOT, NoReleaseError, python_of
from tests.mixed.rolling import FUTURE, NEWER, OLDER, Rollout, roll, rollout, without_producer
from tests.support.deployment import Deployment
from tests.support.toml import toml_of

TABLE = ROOT / "docs" / "data" / "mixed_releases.toml"
"""The table of docs/upgrading.md."""


async def play(broker: Broker, python: str, choose: random.Random, *, rounds: int) -> Pairs:
    """Mix two releases, and check every promise.

    Args:
        broker: runs.
        python: of the older release; ours is the newer one.
        choose: makes every choice.
        rounds: how often all workers go back to the older release, and forwards again.
    """
    # The fleet's calls are of a day long ago, which a store would forget.
    env = {**SETTINGS, "ASSAY_STREAM_REPLICATION_FACTOR": "1", "ASSAY_STREAM_STORE_DAYS": "36500"}
    base = Deployment(broker.bootstrap, name=f"mixed-{os.getpid()}", env=env)
    releases = {
        name: replace(base, python=its, env=base.env | {"ASSAY_STREAM_GIT_COMMIT": name})
        for name, its in ((OLDER, python), (NEWER, sys.executable))
    }
    releases[FUTURE] = replace(
        releases[NEWER],
        env=base.env | {"ASSAY_STREAM_GIT_COMMIT": FUTURE},
        program=("-m", "tests.support.future_release"),
    )
    pairs, folder = Pairs(), base.folder().resolve()
    async with rollout(broker, releases, choose) as run:
        await caught_up(run.crew)
        run.say("two workers of each are ready")
        for release in OTHER:
            pairs.note("`worker` beside `worker`", release, "works")
        for number in range(rounds):
            await roll(run, OLDER, "kill -9", "the broker restarts")
            if not number:
                await note_tap(run, pairs, NEWER, folder)
                await begin_stores(run, folder)
            await roll(run, NEWER, "kill -9", "SIGTERM")
        await note_tap(run, pairs, OLDER, folder)
        await run.load.stop()
        await caught_up(run.crew)
        await note_commands(run, pairs, OTHER)
        await note_stores(run, pairs, folder)
        run.load.start()
        await finalise_newer(run)
        await finalise_future(run, pairs)
        await run.load.stop()
        await check(run, rounds=rounds)
        await note_commands(run, pairs, {FUTURE: NEWER})
        await note_store_refused(run, pairs, folder)
    shutil.rmtree(folder)
    return pairs


async def check(run: Rollout, *, rounds: int) -> None:
    """Check that nothing was lost, doubled or written otherwise than a replay by the newer release writes it."""
    checked = await check_promises(
        run.crew, calls_published=run.load.calls, alerts_repeated=False, plain=without_producer
    )
    # Before 0.1.0, brokers that went away in the very moment of its start ended a worker.
    assert run.crew.restarted <= rounds, f"{run.crew.restarted} workers ended and asked for a restart"
    evidence = await run.crew.deployment.read(Role.EVIDENCE)
    by_release = Counter(json.loads(record.value or b"{}")["assaygit"] for record in evidence)
    assert set(by_release) == set(run.releases), f"evidence by release: {by_release}"
    run.say(f"holds: {checked}; evidence by release: {dict(by_release)}")


def main() -> int:
    before = BEFORE.read_text(encoding="utf-8").strip()
    parser = argparse.ArgumentParser(prog="tests.mixed", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", default=before, help="revision, wheel, or version on PyPI")
    parser.add_argument("--write", action="store_true", help=f"write the table to {TABLE.relative_to(ROOT)}")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"mixed: --seed {options.seed} --rounds {options.rounds} --before {options.before}", flush=True)
    try:
        python = python_of(options.before)
    except NoReleaseError as error:
        print(f"mixed: NOT RUN: {error}", file=sys.stderr)
        return 1
    started_s = time.monotonic()
    with Broker(options=QUICK_START) as broker:
        pairs = asyncio.run(play(broker, python, random.Random(options.seed), rounds=options.rounds))
    print(pairs.table())
    print(f"mixed: seed {options.seed} holds, {time.monotonic() - started_s:.0f} s")
    if options.write:
        TABLE.write_text(toml_of(pairs.found), encoding="utf-8")
    elif options.before == before and tomllib.loads(TABLE.read_text(encoding="utf-8")) != pairs.found:
        print(f"mixed: {TABLE.relative_to(ROOT)} says otherwise: write it anew with --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
