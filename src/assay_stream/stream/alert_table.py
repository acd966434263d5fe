"""The alert table made again where its change log was lost: every finding is counted anew.

Without its table the alert stage would go on from what its group committed, and every count would start at one.
The finding topic holds all that the table is made of, so the stage starts over from its beginning. The alerts it
writes again have the same uids and the same bytes.
"""

from __future__ import annotations

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.core.errors import OperatingError
from assay_stream.core.record import Role
from assay_stream.stream.connection import reading_consumer
from assay_stream.stream.topics import alert_changelog_name, topic_names

_log = structlog.get_logger(__name__)


async def start_over_where_lost(settings: Settings, *, partitions: int) -> list[int]:
    """Set the alert stage back to the beginning of each finding partition whose change log is empty.

    A partition of which nothing was counted yet has an empty change log too: reading it again costs little.

    Args:
        settings: the operator's settings.
        partitions: how many partitions the finding topic has.

    Returns:
        The partitions that are read again.

    Raises:
        OperatingError: ``alert_table_lost`` where another worker still runs on the table that was lost, or no
            broker answers.
    """
    reader = reading_consumer(settings, group_id=f"{settings.group_prefix}-alerts")
    findings = [TopicPartition(topic_names(settings)[Role.FINDINGS], number) for number in range(partitions)]
    reader.assign(findings)
    try:
        await reader.start()
        positions = await _positions_where_lost(reader, findings, alert_changelog_name(settings))
        if positions:
            await reader.commit(positions)
    except KafkaError as error:
        raise OperatingError(
            "alert_table_lost",
            f"cannot start over where {alert_changelog_name(settings)} is empty ({type(error).__name__}): stop "
            "every worker that runs the alert stage, then start them again",
        ) from error
    finally:
        await reader.stop()
    lost = sorted(partition.partition for partition in positions)
    if lost:
        _log.warning("alert_table_lost", partitions=lost, mend="its findings are read again from the beginning")
    return lost


async def _positions_where_lost(
    reader: AIOKafkaConsumer, findings: list[TopicPartition], changelog: str
) -> dict[TopicPartition, int]:
    """Return where to start over, of each partition whose group is further than its table can be."""
    tables = {partition: TopicPartition(changelog, partition.partition) for partition in findings}
    table_ends = await reader.end_offsets(list(tables.values()))
    table_beginnings = await reader.beginning_offsets(list(tables.values()))
    beginnings = await reader.beginning_offsets(findings)
    positions = {}
    for partition, table in tables.items():
        committed = await reader.committed(partition)
        empty = table_ends[table] == table_beginnings[table]
        if empty and committed is not None and committed > beginnings[partition]:
            positions[partition] = beginnings[partition]
    return positions
