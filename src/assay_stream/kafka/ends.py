"""How far topics go, and how far stages have come in them."""

import asyncio
from collections.abc import Collection

from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.kafka.connection import broker_unreachable, start_admin
from assay_stream.kafka.ranges import Ends, LogRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role

READ = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)
"""What a replay reads, calls first: whatever a call rests on is then in the range of its topic."""

_ATTEMPTS_MAX = 5


async def note_ends(settings: Settings, roles: Collection[Role], *, isolation_level: str = "read_committed") -> Ends:
    """Return where the topics of some roles end now.

    Args:
        isolation_level: whether records of open transactions count (``read_uncommitted``).

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    ordered = sorted(roles, key=lambda role: READ.index(role) if role in READ else len(READ))
    names = topic_names(settings)
    async with LogRanges(settings, ordered, isolation_level=isolation_level) as logs:
        return {role: {n: logs.bounds[names[role], n][1] for n in logs.partitions(role)} for role in ordered}


async def committed_offsets(settings: Settings, stage: str) -> dict[tuple[str, int], int]:
    """Return how far ``registry``, ``join`` or ``alerts`` has come, by topic and partition, where it has committed.

    Raises:
        OperatingError: ``broker_unreachable``.
    """
    for attempt in range(_ATTEMPTS_MAX):
        admin = await start_admin(settings)
        try:
            found = await admin.list_consumer_group_offsets(f"{settings.group_prefix}-{stage}")
            return {tuple(place): committed.offset for place, committed in found.items() if committed.offset >= 0}
        except KafkaError as error:
            # The coordinator is another broker, or moves: a busy one is not ready at the first attempt.
            if attempt == _ATTEMPTS_MAX - 1:
                raise broker_unreachable(settings, error) from None
            await asyncio.sleep(1.0)
        finally:
            await admin.close()
    raise AssertionError("unreachable")
