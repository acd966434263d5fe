"""Faults of brokers: killed, all of them down, paused, slow."""

import asyncio
from collections.abc import Awaitable, Callable

from deploy.local.kafka import Broker
from tests.chaos.world import World

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


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    "kill -9: a broker": kill_broker,
    "kill -9: the active controller": kill_controller,
    "kill -9: every broker": kill_cluster,
    "a broker hangs": pause_broker,
    "a slow broker": slow_broker,
    "network cut": cut_network,
}
