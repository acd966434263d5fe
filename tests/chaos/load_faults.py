"""Faults of the load."""

from collections.abc import Awaitable, Callable

from tests.chaos.world import World


async def move_hot_server(world: World) -> None:
    """Another server becomes hot, its calls are spread otherwise, and a worker that joins them is killed."""
    for _ in range(3):
        world.placing.move()
        await world.pause(1, 3)
    world.crew.kill(world.choose.choice([*world.crew.of_role("join"), *world.crew.of_role(None)]))


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {"the hot server moves": move_hot_server}
