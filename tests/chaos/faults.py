"""The faults, by name. Each breaks something at random moments, and returns when nothing is broken any more.

What it killed may still be on its way back then: how long that takes is what the runner measures.
"""

import asyncio
import functools
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Role
from deploy.local.kafka import Broker
from tests.chaos.crew import Post
from tests.chaos.world import SESSION_TIMEOUT_S, NotPossibleHereError, World

Fault = Callable[[World], Awaitable[None]]

# Workers: killed, stopped, frozen, added and taken away

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


def _for_each_role(name: str, fault: Callable[..., Awaitable[None]]) -> dict[str, Fault]:
    return {f"{name} {role or 'all roles'}": functools.partial(fault, role=role) for role in ROLES}


# Brokers: killed, all of them down, paused, slow

_SILENCE_S = (7.0, 12.0)
"""Longer than the six seconds after which the controller takes a broker for dead."""


async def _start_again(brokers: list[Broker]) -> None:
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        await asyncio.to_thread(broker.await_ready)


async def _down_and_up(world: World, brokers: list[Broker]) -> None:
    for broker in brokers:
        broker.kill()
    await world.pause(*_SILENCE_S)
    await _start_again(brokers)


async def _controller(world: World) -> int:
    while True:
        leader = await asyncio.to_thread(world.cluster.controller)
        if leader is not None:
            return leader
        await asyncio.sleep(0.2)


async def kill_broker(world: World) -> None:
    leader = await _controller(world)
    others = [broker for node, broker in world.cluster.brokers.items() if node != leader]
    await _down_and_up(world, [world.choose.choice(others)])


async def kill_controller(world: World) -> None:
    await _down_and_up(world, [world.cluster.brokers[await _controller(world)]])


async def kill_cluster(world: World) -> None:
    brokers = list(world.cluster.brokers.values())
    world.choose.shuffle(brokers)
    await _down_and_up(world, brokers)


async def pause_broker(world: World) -> None:
    """A broker hangs for longer than its session, with its connections open, and goes on."""
    broker = world.choose.choice(list(world.cluster.brokers.values()))
    broker.pause()
    await world.pause(*_SILENCE_S)
    broker.resume()


async def slow_broker(world: World) -> None:
    broker = world.choose.choice(list(world.cluster.brokers.values()))
    for _ in range(12):
        broker.pause()
        await world.pause(0.2, 1.0)
        broker.resume()
        await world.pause(0.2, 1.0)


async def cut_network(world: World) -> None:
    """A worker of all roles loses every packet to and from the brokers for longer than its session."""
    world.crew.hire("remote", None, ASSAY_STREAM_BOOTSTRAP_SERVERS=world.ground.relayed)
    await world.pause(6, 10)
    for relay in world.ground.relays:
        relay.cut()
    await world.pause(4, 12)
    for relay in world.ground.relays:
        relay.mend()
    await world.pause(4, 8)
    world.crew.dismiss("remote", gently=True)


# What is kept: alert states lost, facts compacted away unread

_GONE_LIMIT_S = 60.0
_COMPACTION_S = (12.0, 16.0)
"""Some segments of the binding topic and some rounds of its cleaner."""


async def lose_alert_states(world: World) -> None:
    """The topic of the alert states is deleted and created anew while no worker runs the alert stage."""
    posts = [*world.crew.of_role("alerts"), *world.crew.of_role(None)]
    for post in posts:
        world.crew.dismiss(post.name, gently=True)
    for post in posts:
        await asyncio.to_thread(post.worker.process.wait, _GONE_LIMIT_S)
    world.alerts_repeated = True
    topic = world.deployment.topics[Role.ALERT_STATES]
    async with open_admin(world.deployment.settings) as admin:
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0.2)
    # As an operator would, and again where the brokers have not forgotten the old one yet.
    while topic not in await _created(world):
        await asyncio.sleep(1.0)
    for post in posts:
        world.crew.hire(post.name, post.role)


async def _created(world: World) -> list[str]:
    await world.deployment.apply_topics()
    async with open_admin(world.deployment.settings) as admin:
        return list(await admin.list_topics())


async def compact_under(world: World, *, role: str) -> None:
    """The binding topic is compacted under workers that stand still; one of them wakes, one restores itself."""
    posts: list[Post] = [*world.crew.of_role(role), *world.crew.of_role(None)]
    for post in posts:
        world.crew.freeze(post)
    await world.pause(*_COMPACTION_S)
    world.choose.shuffle(posts)
    world.crew.kill(posts[0])
    posts[0].frozen = False
    await world.pause(0, SESSION_TIMEOUT_S)
    for post in posts[1:]:
        world.crew.thaw(post)


# The machine that a worker runs on: its clock jumps

_CLOCK_SOURCE = Path(__file__).resolve().parents[1] / "support" / "clock_jump.c"
_DAY_S = 86_400


async def clock_jump(world: World) -> None:
    """The wall clock of a worker of all roles jumps a day ahead and back, again and again."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NotPossibleHereError("no C compiler for a clock that jumps")
    folder = Path(".run/tests").resolve() / world.deployment.name
    library, offset = folder / "clock_jump.so", folder / "clock_offset"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(_CLOCK_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossibleHereError(f"{compiler}: {done.stderr.strip() or 'failed'}")
    offset.write_text("0")
    world.crew.hire("clock", None, LD_PRELOAD=str(library), CLOCK_JUMP_FILE=str(offset))
    for _ in range(6):
        await world.pause(2, 4)
        offset.write_text(str(world.choose.randrange(-_DAY_S, _DAY_S)))
    world.crew.dismiss("clock", gently=True)


# The load


async def move_hot_server(world: World) -> None:
    """Another server becomes hot, its calls are spread otherwise, and a worker that joins them is killed."""
    for _ in range(3):
        world.placing.move()
        await world.pause(1, 3)
    world.crew.kill(world.choose.choice([*world.crew.of_role("join"), *world.crew.of_role(None)]))


FAULTS: dict[str, Fault] = {
    **_for_each_role("kill -9:", kill),
    "kill -9: every worker": kill_all,
    **_for_each_role("kill -9 while starting:", kill_while_starting),
    **_for_each_role("SIGTERM:", terminate),
    **_for_each_role("frozen past the session:", freeze),
    "frozen past the session: both joins": freeze_two,
    "rebalances: workers come and go": rebalance,
    "frozen past the transaction": outlast_transaction,
    "kill -9: a broker": kill_broker,
    "kill -9: the active controller": kill_controller,
    "kill -9: every broker": kill_cluster,
    "a broker hangs": pause_broker,
    "a slow broker": slow_broker,
    "network cut": cut_network,
    "alert states lost": lose_alert_states,
    "bindings compacted under the join": lambda world: compact_under(world, role="join"),
    "bindings compacted under the registry": lambda world: compact_under(world, role="registry"),
    "clock jumps": clock_jump,
    "the hot server moves": move_hot_server,
}
"""Every fault, by name."""
