"""The end of a rollout: a later release takes over, its level is finalised, and the one before must stand back."""

import asyncio

from assay_stream.model.record import Role
from tests.chaos.catching_up import caught_up
from tests.mixed.pairs import Pairs, refusal
from tests.mixed.rolling import FUTURE, NEWER, RECOVERY_LIMIT_S, Rollout
from tests.support.deployment import waits_for
from tests.support.future_release import NEW_FACT, NEW_STATE

_TOO_NEW = "format_too_new"
_STILL_S = 3.0
_WRITTEN = (Role.BINDINGS, Role.ALERT_STATES, Role.ALERTS, Role.EVIDENCE)
_FINALIZE = ("topics", "finalize", "--yes")


async def finalise_newer(run: Rollout) -> None:
    """Finalise what this release brings, while all workers are of it."""
    done = await asyncio.to_thread(run.releases[NEWER].run, *_FINALIZE)
    assert done.returncode == 0, done.stderr
    run.say(f"newer: {done.stdout.splitlines()[-1]}")


async def finalise_future(run: Rollout, pairs: Pairs) -> None:
    """Let two workers of the future work beside two of ours, finalise, and see ours wait and change nothing."""
    crew, newer, future = run.crew, run.releases[NEWER], run.releases[FUTURE]
    names = run.choose.sample(list(crew.posts), 4)
    theirs, ours = names[:2], names[2:]
    for name in theirs:
        crew.posts[name].deployment = future
        crew.terminate(crew.posts[name])
        await run.pause(1, 2)
    await caught_up(crew, limit_s=RECOVERY_LIMIT_S)
    run.say("two workers of the future beside two newer ones: caught up")
    assert refusal(await asyncio.to_thread(future.run_own, *_FINALIZE)) == "refused: `members_behind`"
    forced = await asyncio.to_thread(future.run_own, *_FINALIZE, "--ignore-members")
    assert forced.returncode == 0, forced.stderr
    for name in names:
        await _end(run, name)
    for name in ours:
        crew.hire(name, None, newer)
    await asyncio.gather(*(waits_for(crew.posts[name].worker, _TOO_NEW) for name in ours))
    run.say("the level of the future is finalised, and the newer workers wait")
    before = [len(await crew.deployment.read(role, settled=True)) for role in _WRITTEN]
    await asyncio.sleep(_STILL_S)
    assert [len(await crew.deployment.read(role, settled=True)) for role in _WRITTEN] == before, "ours have written"
    pairs.note("`worker` beside `worker`", FUTURE, f"waits: `{_TOO_NEW}`")
    for name in theirs:
        crew.hire(name, None, future)
    for name in ours:
        await _end(run, name)
    took_s = await caught_up(crew, limit_s=RECOVERY_LIMIT_S)
    run.say(f"the workers of the future are back: caught up after {took_s:.1f} s, {run.load.calls} calls")
    for role, key in ((Role.BINDINGS, NEW_FACT), (Role.ALERT_STATES, NEW_STATE)):
        assert key in {each.key for each in await crew.deployment.read(role, settled=True)}


async def _end(run: Rollout, name: str) -> None:
    process = run.crew.posts[name].worker.process
    run.crew.dismiss(name, gently=True)
    assert await asyncio.to_thread(process.wait, RECOVERY_LIMIT_S) == 0, name
