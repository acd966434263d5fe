"""Partition assignment in a stage's consumer group: balanced, and each member keeps those it has had longest.

A partition number goes to one member over all topics of the stage, since its state is about all of them. A member
that reads fewer topics than others, as while a stage is restarted to read one more, gets those that it reads. What
aiokafka brings does not fit: its range assignor moves most partitions whenever a member comes or goes, and its sticky
one shares out each topic by itself and keeps its state in the class, for all groups of a process.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from assay_stream.config import Settings
from assay_stream.errors import OperatingError
from assay_stream.kafka.connection import client_id, open_admin

_VERSION = 0


class StickyAssignor:
    """aiokafka partition assignment strategy with separate state for each consumer.

    Args:
        open_partitions: returns the partition numbers that this member has open, oldest first.
    """

    name = "assay-sticky"

    def __init__(self, open_partitions: Callable[[], Sequence[int]]) -> None:
        self._open_partitions = open_partitions

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = orjson.dumps(list(self._open_partitions()))
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), user_data)

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        topics = {topic for member in members.values() for topic in member.subscription}
        numbers = {topic: set(cluster.partitions_for_topic(topic) or ()) for topic in sorted(topics)}
        claims = {name: _claims(member.user_data) for name, member in members.items()}
        shares = share_out(set().union(*numbers.values()), claims)
        return {
            name: ConsumerProtocolMemberAssignment(
                _VERSION, [(topic, sorted(share & numbers[topic])) for topic in sorted(members[name].subscription)], b""
            )
            for name, share in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing: open partitions are queried when needed."""


async def other_release(settings: Settings, group_id: str) -> OperatingError:
    """Return the error for a worker whose group has members of a release with another assignment strategy."""
    async with open_admin(settings) as admin:
        (answer,) = await admin.describe_consumer_groups([group_id])
    _, _, _, _, protocol, members, *_ = answer.groups[0]
    names = sorted({f"{client} at {host.strip('/')}" for _, client, host, *_ in members})
    return OperatingError(
        "other_release",
        f"this is {client_id(settings)}, and group {group_id} has workers of another release "
        f"({', '.join(names) or 'gone by now'}), which share partitions out by {protocol or 'another rule'} and not by "
        f"{StickyAssignor.name}: these cannot work side by side. Stop all workers of one release, then start the other",
    )


def share_out(numbers: Collection[int], claims: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
    """Assign partition numbers to members; their counts differ by one at most.

    Args:
        claims: partitions each member would keep, in order of preference. Of two claimants, the first by name gets it.
    """
    each, larger_shares = divmod(len(numbers), len(claims))
    left, shares = set(numbers), dict[str, set[int]]()
    for name in sorted(claims):
        kept = [number for number in dict.fromkeys(claims[name]) if number in left][: each + (larger_shares > 0)]
        larger_shares -= len(kept) > each
        shares[name] = set(kept)
        left -= shares[name]
    for number in sorted(left):
        min(shares.items(), key=lambda share: (len(share[1]), share[0]))[1].add(number)
    return shares


def _claims(user_data: bytes | None) -> list[int]:
    try:
        return [int(number) for number in orjson.loads(user_data or b"[]")]
    except (ValueError, TypeError):
        # Another member's: what cannot be read claims nothing.
        return []
