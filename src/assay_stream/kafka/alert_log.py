"""The alerts as their topic holds them, read once and to the end, in no consumer group."""

from __future__ import annotations

from collections.abc import AsyncIterator

from assay_stream.config import Settings
from assay_stream.kafka.lookup import read_records
from assay_stream.model.record import Record, Role


async def read_alerts(settings: Settings) -> AsyncIterator[Record]:
    """Yield every alert that the topic holds now, partition by partition.

    Args:
        settings: the operator's settings.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async for record in read_records(settings, Role.ALERTS):
        yield record
