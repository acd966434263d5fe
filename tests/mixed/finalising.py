"""The end of a rollout: a later release takes over, its level is finalised, and the one before must stand back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from assay_stream.kafka.connection import TopicPartition, reading_consumer
from assay_stream.kafka.topics import topic_table
from assay_stream.model.record import Role
from tests.chaos.catching_up import caught_up
from tests.chaos.crew import Post
from tests.mixed import UNKNOWN
from tests.mixed.pairs import Pairs, refusal
from tests.mixed.rolling import FUTURE, NEWER, RECOVERY_LIMIT_S, Rollout

_TOO_NEW = "format_too_new"
_STILL_S = 3.0
_INPUTS = {Role.CALLS, Role.SNAPSHOTS, Role.CONTROL}


async def finalise_newer(run: Rollout) -> None:
    """Finalise what this release brings, while all workers are of it."""
    done = await asyncio.to_thread(run.releases[NEWER].run, "topics", "finalize", "--yes")
    assert done.returncode == 0, done.stderr
    run.say(f"newer: {done.stdout.splitlines()[-1]}")


async def finalise_future(run: Rollout, pairs: Pairs) -> None:
    """Let two workers of the future work beside two of ours, finalise, and see ours wait and change nothing."""
    future, ours = run.releases[FUTURE], list(run.crew.posts.values())
    run.choose.shuffle(ours)
    theirs = [ours.pop(), ours.pop()]
    for post in theirs:
        post.deployment = future
        await _restart(run, post)
    await caught_up(run.crew, limit_s=RECOVERY_LIMIT_S)
    run.say("two workers of the future work beside two newer ones")
    finalize = ("topics", "finalize", "--yes")
    assert refusal(await asyncio.to_thread(future.run, *finalize)) == "refused: `members_behind`"
    forced = await asyncio.to_thread(future.run, *finalize, "--force")
    assert forced.returncode == 0, forced.stderr
    for post in theirs:  # They write a level from their next start on.
        await _restart(run, post)
    await _wait_refused(ours)
    run.say("the level of the future is finalised: the newer workers wait")
    for post in theirs:
        run.crew.dismiss(post.name, gently=True)
        await asyncio.to_thread(post.worker.process.wait, 60)
    await _restart(run, ours[0])
    await _wait_refused(ours)
    before, calls = await _ends(run), run.load.calls
    await asyncio.sleep(_STILL_S)
    assert await _ends(run) == before, "a worker of the release before has written"
    assert run.load.calls > calls
    assert not any(post.worker.process.poll() for post in ours), run.crew.tails()
    pairs.note("`worker` beside `worker`", FUTURE, f"waits: `{_TOO_NEW}`")
    for post in ours:
        run.crew.dismiss(post.name, gently=True)
    for post in theirs:
        run.crew.hire(post.name, deployment=future)
    took_s = await caught_up(run.crew, limit_s=RECOVERY_LIMIT_S)
    for role in (Role.BINDINGS, Role.ALERT_STATES):
        written = await run.crew.deployment.read(role, settled=True)
        assert any(UNKNOWN.encode() in (each.key or b"") for each in written), f"the future wrote nothing into {role}"
    run.say(f"the workers of the future are back: caught up after {took_s:.1f} s, {run.load.calls} calls")


async def _restart(run: Rollout, post: Post) -> None:
    """Have a worker restarted, and wait for the next one."""
    process = post.worker.process
    run.crew.terminate(post)
    while post.worker.process is process:
        await asyncio.sleep(0.1)
    await run.pause(0, 1)


async def _wait_refused(posts: Sequence[Post]) -> None:
    """Wait until workers say that they wait for a release that reads what is there."""
    limit_s = time.monotonic() + RECOVERY_LIMIT_S
    for post in posts:
        while True:
            status, body = await asyncio.to_thread(post.worker.get, "/readyz")
            if status == 503 and _TOO_NEW in body:
                break
            assert time.monotonic() < limit_s, f"{post.name} answers {status}: {body}\n{post.worker.tail()}"
            await asyncio.sleep(0.2)


async def _ends(run: Rollout) -> dict[TopicPartition, int]:
    """Where everything ends that workers write."""
    deployment = run.crew.deployment
    consumer = reading_consumer(deployment.settings, isolation_level="read_uncommitted")
    await consumer.start()
    try:
        places = [
            TopicPartition(spec.name, number)
            for spec in topic_table(deployment.settings)
            if spec.role not in _INPUTS
            for number in range(spec.partitions)
        ]
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        return ends
    finally:
        await consumer.stop()
