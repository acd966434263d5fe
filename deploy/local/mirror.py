"""MirrorMaker 2 of Kafka's own distribution between two local brokers, as `docs/failover.md` sets it up.

with MirrorMaker(primary.bootstrap, backup.bootstrap, topics=["mcp.tools.call"]) as mirror:
    ...
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from deploy.local.kafka import QUICK_START, free_ports, fresh_folder, spawn_java
from deploy.local.kafka_jars import fetch, java
from deploy.local.kafka_place import HOST

_PROPERTIES = """\
clusters = primary, backup
primary.bootstrap.servers = {primary}
backup.bootstrap.servers = {backup}
primary->backup.enabled = true
primary->backup.topics = {topics}
primary->backup.sync.topic.acls.enabled = false
primary->backup.offset-syncs.topic.location = target
primary.consumer.isolation.level = read_committed
backup.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://{host}:{port}
backup.producer.max.request.size = 16777216
primary.consumer.max.partition.fetch.bytes = 16777216
# For one broker, and a mirror that lives for minutes.
replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.partitions = 1
backup.offset.flush.interval.ms = 1000
# Several between the same clusters must not take each other for one.
backup.group.id = {name}
config.storage.topic = {name}.configs
offset.storage.topic = {name}.offsets
status.storage.topic = {name}.status
"""


class MirrorMaker:
    """A process that mirrors topics of one broker to another, while its `with` block runs or until it is killed."""

    def __init__(
        self, primary: str, backup: str, *, topics: Sequence[str], name: str = "mirror", heap_mib: int = 256
    ) -> None:
        """Mirror the named `topics` of the broker at `primary` to the one at `backup`, under `primary.`.

        Each one between the same brokers has a `name` of its own.
        """
        self._folder = fresh_folder()
        self.log = self._folder / "mirror.log"
        [port] = free_ports(1)
        named = ",".join(re.escape(name) for name in topics).replace("\\", "\\\\")
        self._properties = _PROPERTIES.format(
            primary=primary, backup=backup, topics=named, name=name, host=HOST, port=port
        )
        self._options = [f"-Xmx{heap_mib}m", *QUICK_START]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return at once: what is mirrored shows in the topics."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "mm2.properties"
        file.write_text(self._properties, encoding="utf-8")
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        self._process = spawn_java(java(), self._options, fetch(profile="mirror"), main, str(file), log=self.log)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it at once, as a crash would (`kill -9`)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
