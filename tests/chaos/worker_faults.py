"""Faults of workers: killed, stopped, frozen, added and taken away."""

import functools
from collections.abc import Awaitable, Callable

from tests.chaos.crew import Post
from tests.chaos.world import SESSION_TIMEOUT_S, World

ROLES = ("registry", "join", "alerts", None)


def _one(world: World, role: str | None) -> Post:
    return world.choose.choice(world.crew.of_role(role))


async def kill(world: World, *, role: str | None) -> None:
    await world.pause(0, 1)
    world.crew.kill(_one(world, role))


async def kill_all(world: World) -> None:
    await world.pause(0, 1)
    for post in list(world.crew.posts.values()):
        world.crew.kill(post)


async def kill_while_starting(world: World, *, role: str | None) -> None:
    """``kill -9``, and twice more while the new worker takes over and restores itself."""
    post = _one(world, role)
    world.crew.kill(post)
    for _ in range(2):
        await world.pause(1, 6)
        if post.worker.process.poll() is None:
            world.crew.kill(post)


async def terminate(world: World, *, role: str | None) -> None:
    await world.pause(0, 1)
    world.crew.terminate(_one(world, role))


async def freeze(world: World, *, role: str | None) -> None:
    """SIGSTOP for longer than the session time-out, then SIGCONT: it wakes as a zombie, its partitions gone."""
    await world.pause(0, 1)
    post = _one(world, role)
    world.crew.freeze(post)
    await world.pause(2 * SESSION_TIMEOUT_S, 5 * SESSION_TIMEOUT_S)
    world.crew.thaw(post)


async def freeze_two(world: World) -> None:
    """Freeze all that do the join, so that none takes over, and let them wake one after the other."""
    posts = [_one(world, "join"), _one(world, None)]
    for post in posts:
        world.crew.freeze(post)
    await world.pause(2 * SESSION_TIMEOUT_S, 4 * SESSION_TIMEOUT_S)
    for post in posts:
        world.crew.thaw(post)
        await world.pause(0, 2)


async def rebalance(world: World) -> None:
    """Workers come and go: two are added, and leave again, one gently and one not."""
    names = []
    for number in range(2):
        role = world.choose.choice(ROLES)
        names.append(f"extra-{number}")
        world.crew.hire(names[-1], role)
        await world.pause(1, 6)
    world.choose.shuffle(names)
    for gently, name in enumerate(names):
        world.crew.dismiss(name, gently=bool(gently))
        await world.pause(0, 4)


async def outlast_transaction(world: World) -> None:
    """A worker stops for longer than its transaction may last, yet not so long that it loses its partitions."""
    patient = {"ASSAY_STREAM_SESSION_TIMEOUT_MS": "60000", "ASSAY_STREAM_TRANSACTION_TIMEOUT_MS": "1000"}
    post = world.crew.hire("patient", None, **patient)
    await world.pause(6, 10)
    for _ in range(3):
        world.crew.freeze(post)
        await world.pause(3, 5)
        world.crew.thaw(post)
        await world.pause(1, 3)
    world.crew.dismiss("patient", gently=True)


def _for_each_role(name: str, fault: Callable[..., Awaitable[None]]) -> dict[str, Callable[[World], Awaitable[None]]]:
    return {f"{name} {role or 'all roles'}": functools.partial(fault, role=role) for role in ROLES}


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    **_for_each_role("kill -9:", kill),
    "kill -9: every worker": kill_all,
    **_for_each_role("kill -9 while starting:", kill_while_starting),
    **_for_each_role("SIGTERM:", terminate),
    **_for_each_role("frozen past the session:", freeze),
    "frozen past the session: both joins": freeze_two,
    "rebalances: workers come and go": rebalance,
    "frozen past the transaction": outlast_transaction,
}
