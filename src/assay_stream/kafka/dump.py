"""Topics copied to files, one record a line with its place in the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay_stream.config import Settings
from assay_stream.files.record_line import record_line
from assay_stream.kafka.ranges import LogRanges
from assay_stream.model.record import Role


async def dump_topics(settings: Settings, files: Sequence[tuple[Path, Sequence[Role]]]) -> None:
    """Write what some topics hold now to files, partition by partition.

    Args:
        settings: the operator's settings.
        files: each file, and the topics that go into it.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async with LogRanges(settings, [role for _, roles in files for role in roles]) as logs:
        for path, roles in files:
            with path.open("wb") as file:
                for role in roles:
                    async for batch in logs.read_all(role):
                        file.writelines(record_line(record) + b"\n" for record in batch)
