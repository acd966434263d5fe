"""One feed for gateways that build their plug-ins many times, such as one for each tool."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from assay_stream.canonical.digest import DigestKey
from assay_stream.observe.feeds.feed import Feed
from assay_stream.observe.publisher import ObservationPublisher


class SharedFeed:
    """The feed and publisher shared by all hooks with one configuration; closed with the last of them."""

    _all: ClassVar[dict[str, SharedFeed]] = {}

    def __init__(self, key: str, config: Mapping[str, Any]) -> None:
        connection = {"server_id": "", "observer_id": "", **config}
        names = str(connection.pop("server_id")), str(connection.pop("observer_id"))
        further = {name: connection.pop(name) for name in ("topics", "digest_key") if name in connection}
        if "digest_key" in further:
            further["digest_key"] = DigestKey(further["digest_key"])
        self._publisher = ObservationPublisher(connection, **further)
        self.feed = Feed(*names, self._publisher)
        self._key = key
        self._users: set[object] = set()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SharedFeed:
        """Return the shared instance for a configuration, one per process: a forked child gets its own."""
        key = json.dumps([os.getpid(), config], sort_keys=True, default=repr)
        if key not in cls._all:
            cls._all[key] = cls(key, config)
        return cls._all[key]

    def enter(self, user: object) -> None:
        self._users.add(user)
        self._publisher.start()

    async def leave(self, user: object) -> None:
        self._users.discard(user)
        if not self._users and self._all.get(self._key) is self:
            del self._all[self._key]  # at once: who comes while it closes begins another
            self.feed.close()
            await self._publisher.aclose()
