"""Where a local broker stands among the nodes of its cluster, and the configuration that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
# 16 MiB: lists of tools are large.
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
# Few partitions: a quick start.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync_min}
min.insync.replicas={in_sync_min}
# Tests kill, and wait for what follows.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms={session_ms}
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=16777216
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a broker stands among the nodes of its cluster.

    Args:
        node_id: names the node.
        port: where clients reach it.
        voters: controller port of every node of the quorum, itself included, by node id.
        relayed: a further port to listen on, and the port of a relay that its clients are sent to.
    """

    node_id: int = 1
    port: int
    voters: Mapping[int, int] = field(default_factory=dict)
    relayed: tuple[int, int] | None = None

    @property
    def ports(self) -> list[int]:
        """Every port that the node listens on."""
        return [self.port, self.voters[self.node_id], *([self.relayed[0]] if self.relayed else [])]

    def properties(self, logs: Path) -> str:
        """The node's configuration, with its data in `logs`."""
        clients = {"PLAINTEXT": (self.port, self.port)} | ({"RELAYED": self.relayed} if self.relayed else {})
        listeners = [f"{name}://{HOST}:{port}" for name, (port, _) in clients.items()]
        replicas = len(self.voters)
        return _PROPERTIES.format(
            node_id=self.node_id,
            voters=",".join(f"{node}@{HOST}:{port}" for node, port in sorted(self.voters.items())),
            listeners=",".join([*listeners, f"CONTROLLER://{HOST}:{self.voters[self.node_id]}"]),
            advertised=",".join(f"{name}://{HOST}:{port}" for name, (_, port) in clients.items()),
            logs=logs,
            replicas=replicas,
            in_sync_min=replicas // 2 + 1,
            # A busy machine must not take nodes for dead that only wait for their turn.
            session_ms=3_000 if replicas == 1 else 6_000,
        )
