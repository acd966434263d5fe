"""Three real Apache Kafka brokers on this machine, for tests of what happens when one of them is gone.

    python -m deploy.local.cluster run [--data DIR]               runs until Ctrl-C

    with Cluster() as cluster:                                    from Python
        connect(cluster.bootstrap)
        cluster.kill(cluster.controller())

Every node is broker and controller in one, and a voter of the quorum. Topics are kept threefold, and a write needs
two of the three: create them with replication factor 3. Start a cluster and its nodes from a thread that lives as
long as they should: see `deploy.local.kafka`.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.local.kafka import QUICK_START, Broker, free_ports, fresh_folder
from deploy.local.kafka_jars import BrokerError
from deploy.local.kafka_place import HOST, Place

NODES: Final = 3
HEAP_MIB: Final = 256

_DESCRIBE_QUORUM: Final = 55
_METADATA_LOG: Final = b"__cluster_metadata"


class Cluster:
    """Brokers that run inside a `with` block. A node that is killed and started again keeps its ports and data.

    Args:
        data: folder for the nodes' files; without it a new one, which an orderly exit removes.
        relays: ports of relays, one for each node: clients that connect through them stay behind them.
    """

    def __init__(self, data: Path | None = None, *, relays: Sequence[int] = ()) -> None:
        self._throwaway = data is None
        self.data = (data or fresh_folder()).resolve()
        ports = iter(free_ports(3 * NODES))
        voters = {node: next(ports) for node in range(1, NODES + 1)}
        relayed = {node: (next(ports), relay) for node, relay in zip(voters, relays, strict=False)}
        self.brokers: Mapping[int, Broker] = {
            node: Broker(
                self.data / str(node),
                heap_mib=HEAP_MIB,
                options=QUICK_START,
                place=Place(node_id=node, port=next(ports), voters=voters, relayed=relayed.get(node)),
            )
            for node in voters
        }

    @property
    def bootstrap(self) -> str:
        """What a client connects to: `host:port` of every node, comma separated."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Start every node that does not run, and return when all serve requests."""
        stopped = [broker for broker in self.brokers.values() if not broker.running]
        for broker in stopped:
            broker.launch()
        for broker in stopped:
            broker.await_ready()

    def stop(self) -> None:
        """Stop every node."""
        for broker in self.brokers.values():
            broker.terminate()
        for broker in self.brokers.values():
            broker.stop()

    def controller(self) -> int | None:
        """The id of the node that leads the quorum of controllers; `None` while there is none."""
        for broker in self.brokers.values():
            if broker.running and (leader := _quorum_leader(broker.port)) in self.brokers:
                return leader
        return None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._throwaway and not isinstance(error, Exception):
            shutil.rmtree(self.data, ignore_errors=True)


def _quorum_leader(port: int) -> int | None:
    """Who leads, as one broker knows it (DescribeQuorum, version 0; Kafka protocol guide, KIP-595)."""
    # Header version 2: a string with its length, then no tagged fields. In the body every count is one more.
    header = struct.pack(">hhih5sb", _DESCRIBE_QUORUM, 0, 1, 5, b"assay", 0)
    body = struct.pack(f">bb{len(_METADATA_LOG)}sbibbb", 2, len(_METADATA_LOG) + 1, _METADATA_LOG, 2, 0, 0, 0, 0)
    request = header + body
    # Correlation id, tagged fields, error; then one topic with one partition: its index, error and leader.
    answer_form = f">ibhbb{len(_METADATA_LOG)}sbihi"
    try:
        with socket.create_connection((HOST, port), timeout=2.0) as link, link.makefile("rb") as answer:
            link.sendall(struct.pack(">i", len(request)) + request)
            answer.read(4)
            told = struct.unpack(answer_form, answer.read(struct.calcsize(answer_form)))
    except (OSError, struct.error):  # no listener, a paused node, or an answer without a topic
        return None
    return int(told[-1]) if told[2] == 0 and told[-2] == 0 else None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 after an orderly stop and 1 after an error."""
    parser = argparse.ArgumentParser(description="Three local Apache Kafka brokers.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a cluster until SIGINT or SIGTERM")
    run.add_argument("--data", type=Path, help="folder for its data (default: a new one, removed at the end)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt), Cluster(options.data) as cluster:
            print(cluster.bootstrap, flush=True)
            for broker in cluster.brokers.values():
                broker.wait()
    except BrokerError as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
