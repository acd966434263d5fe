"""Workers of two releases in one deployment: each is replaced by one of the other release, in any order, under load."""

import asyncio
import random
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.kafka import Broker
from tests.chaos.catching_up import caught_up
from tests.chaos.crew import Crew, Post
from tests.chaos.load import SERVERS, Load
from tests.chaos.placing import Placing
from tests.chaos.world import compact_often
from tests.support.deployment import Deployment

OLDER, NEWER, FUTURE = "older", "newer", "future"
RECOVERY_LIMIT_S = 90.0
_WORKERS_EACH = 2
_PRODUCER = re.compile(rb'("assaygit":"|"assayproducerversion":"|"vendor_name":"assay-stream","version":")[^"]*(?=")')


@dataclass
class Rollout:
    """Workers of some releases, and the load on them.

    Args:
        releases: the deployment with each release's program, by the release's name.
        choose: makes every choice.
    """

    broker: Broker
    crew: Crew
    load: Load
    releases: Mapping[str, Deployment]
    choose: random.Random
    started_s: float = field(default_factory=time.monotonic)

    async def pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.choose.uniform(least_s, most_s))

    def say(self, what: str) -> None:
        print(f"mixed: {time.monotonic() - self.started_s:4.0f} s  {what}", flush=True)


@asynccontextmanager
async def rollout(broker: Broker, programs: Mapping[str, Deployment], choose: random.Random) -> AsyncIterator[Rollout]:
    """Create a deployment with the older release, and start two workers of each under load.

    Args:
        programs: what runs each release.
    """
    older = programs[OLDER]
    for release in (OLDER, NEWER):  # What a release adds has to be there before its workers.
        made = await asyncio.to_thread(programs[release].run, "topics", "apply")
        assert made.returncode == 0, made.stderr
    await compact_often(older)
    folder = Path(".run/tests").resolve() / older.name / "workers"
    crew = Crew(older, folder)
    for number in range(_WORKERS_EACH):
        for release in (OLDER, NEWER):
            crew.hire(f"{release}-{number + 1}", None, programs[release])
    seed = choose.randrange(10**6)
    placing = Placing(servers=SERVERS, seed=seed)
    try:
        async with crew, Load(older, seed=seed, placing=placing, calls_per_s=25) as load:
            yield Rollout(broker, crew, load, programs, choose)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def roll(run: Rollout, release: str, *faults: str) -> None:
    """Replace every worker that is not of a release by one that is, with faults meanwhile, and wait for the rest."""
    target = run.releases[release]
    posts = [post for post in run.crew.posts.values() if post.deployment is not target]
    run.choose.shuffle(posts)
    dealt = [*faults, *[""] * (len(posts) - len(faults))]
    run.choose.shuffle(dealt)
    for post, fault in zip(posts, dealt, strict=True):
        run.say(f"{post.name} becomes {release}" + f", {fault}" * bool(fault))
        post.deployment = target
        run.crew.terminate(post)
        await run.pause(0.5, 2.5)
        if fault:
            await FAULTS[fault](run)
            await run.pause(0.5, 2.5)
    took_s = await caught_up(run.crew, limit_s=RECOVERY_LIMIT_S)
    run.say(f"all {len(run.crew.posts)} are {release}: caught up after {took_s:.1f} s, {run.load.calls} calls")


def _any(run: Rollout) -> Post:
    return run.choose.choice(list(run.crew.posts.values()))


async def _kill(run: Rollout) -> None:
    run.crew.kill(_any(run))


async def _terminate(run: Rollout) -> None:
    run.crew.terminate(_any(run))


async def _restart_broker(run: Rollout) -> None:
    await asyncio.to_thread(run.choose.choice([run.broker.kill, run.broker.stop]))
    await run.pause(0, 3)
    run.broker.launch()
    await asyncio.to_thread(run.broker.await_ready)


FAULTS: Mapping[str, Callable[[Rollout], Awaitable[None]]] = {
    "kill -9": _kill,
    "SIGTERM": _terminate,
    "the broker restarts": _restart_broker,
}


def without_producer(record: bytes) -> bytes:
    """Return a record of evidence or an alert without the release that wrote it."""
    return _PRODUCER.sub(rb"\1", record)
