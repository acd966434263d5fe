"""Faults of local state: damaged, exchanged, of another deployment, old, or newer than the topic, between two kills."""

from __future__ import annotations

import functools
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import orjson

from assay_stream.files.state_store import StateStore
from assay_stream.model.record import Role
from tests.chaos.crew import Post
from tests.chaos.world import NotPossibleHereError, World
from tests.support.fleet import START, a_listing

_MISSED_LISTS = 1_500
"""What old state has not seen of: each takes two offsets of the binding topic at least."""
_BESIDE = 77
"""A server that nobody calls: its lists come in no order with calls."""
_CACHE_KIB = 1_024
_FLIPPED_MAX = 64
_BEYOND = 10**9


def _stores(folder: Path) -> list[Path]:
    return sorted(folder.glob("join/bindings-*.sqlite"))


def _files(folder: Path) -> list[Path]:
    """The files of all stores, the logs that belong to them included."""
    return sorted(path for path in folder.glob("join/bindings-*") if not path.name.endswith("-shm"))


def flip(folder: Path, choose: random.Random) -> None:
    """Some bytes of each file are others."""
    for path in _files(folder):
        content = bytearray(path.read_bytes())
        for _ in range(choose.randrange(1, _FLIPPED_MAX) if content else 0):
            content[choose.randrange(len(content))] ^= choose.randrange(1, 256)
        path.write_bytes(content)


def truncate(folder: Path, choose: random.Random) -> None:
    """Each file ends somewhere in its middle."""
    for path in _files(folder):
        path.write_bytes(path.read_bytes()[: choose.randrange(path.stat().st_size + 1)])


def exchange(folder: Path, _: random.Random) -> None:
    """Each file has the name of another partition's."""
    for path in _files(folder):
        path.rename(path.with_name(f"moved-{path.name}"))
    for path in sorted(folder.glob("join/moved-*")):
        number = 1 - int(path.name.removeprefix("moved-bindings-")[0])
        path.rename(path.with_name(f"bindings-{number}{path.name.removeprefix('moved-bindings-')[1:]}"))


def of_another(folder: Path, _: random.Random) -> None:
    """The state is complete, and of another cluster."""
    _written_again(folder, cluster="another")


def newer(folder: Path, _: random.Random) -> None:
    """The state stands beyond the end of the topic."""
    _written_again(folder, beyond=_BEYOND)


def _written_again(folder: Path, *, beyond: int = 0, **identity: str) -> None:
    for path in _stores(folder):
        with sqlite3.connect(path) as connection:
            head = orjson.loads(connection.execute("SELECT text FROM head").fetchone()[0])
        connection.close()
        named = {name: head[name] for name in ("cluster", "topic", "partition")}
        store = StateStore(path, named, cache_kib=_CACHE_KIB)
        store._identity |= identity
        store.commit(store.stand._replace(offset=store.stand.offset + beyond))
        store.close()


def _one_with_state(world: World) -> tuple[Post, Path]:
    posts = [*world.crew.of_role("join"), *world.crew.of_role(None)]
    found = [(post, post.state) for post in posts if post.state is not None and _stores(post.state)]
    if not found:
        raise NotPossibleHereError("no worker keeps local state")
    return world.choose.choice(found)


async def damage(world: World, *, how: Callable[[Path, random.Random], None]) -> None:
    """A join worker is killed, its state is changed, and it is started again."""
    await world.pause(1, 3)
    post, folder = _one_with_state(world)
    async with world.crew.vacant(post):
        how(folder, world.choose)


async def restore_old(world: World) -> None:
    """A join worker finds the state that it had thousands of offsets before."""
    post, folder = _one_with_state(world)
    saved = folder.with_name(f"{folder.name}-saved")
    async with world.crew.vacant(post):
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(folder, saved)
    lists = [
        a_listing(_BESIDE, number % 2, 0, 10**6 + number, START + timedelta(seconds=number))
        for number in range(_MISSED_LISTS)
    ]
    await world.deployment.send(Role.SNAPSHOTS, [(key, value) for _, key, value in lists])
    await world.pause(4, 8)
    async with world.crew.vacant(post):
        shutil.rmtree(folder)
        saved.rename(folder)


_Damage = Callable[[Path, random.Random], None]
_DAMAGES: dict[str, _Damage] = {
    "bytes flipped": flip,
    "truncated": truncate,
    "exchanged": exchange,
    "of another deployment": of_another,
    "newer than the topic": newer,
}
FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    **{f"local state: {name}": functools.partial(damage, how=how) for name, how in _DAMAGES.items()},
    "local state: old": restore_old,
}
