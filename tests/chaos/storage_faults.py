"""Faults of what is kept: alert states lost, facts compacted away unread."""

import asyncio
from collections.abc import Awaitable, Callable

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Role
from tests.chaos.crew import Post
from tests.chaos.world import SESSION_TIMEOUT_S, World

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


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    "alert states lost": lose_alert_states,
    "bindings compacted under the join": lambda world: compact_under(world, role="join"),
    "bindings compacted under the registry": lambda world: compact_under(world, role="registry"),
}
