"""Which records a deployment has set aside: replays and checks refuse them too."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.transport import read_to_end
from assay_stream.model.record import SET_ASIDE, Origin, Record, Role


async def read_set_aside(settings: Settings) -> frozenset[Origin]:
    """Return the places of the records that are set aside, as the rejected topic names them."""
    topic = topic_names(settings)[Role.REJECTED]
    admin = await start_admin(settings)
    try:
        if topic not in await admin.list_topics():
            return frozenset()
        (described,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    places = set()
    for part in described["partitions"]:
        async for record in read_to_end(settings, Role.REJECTED, TopicPartition(topic, part["partition"])):
            if (place := set_aside_place(record)) is not None:
                places.add(place)
    return frozenset(places)


def set_aside_place(rejected: Record) -> Origin | None:
    """Return the place of the original of a rejected record that was set aside; ``None`` of another."""
    # Ours stand behind the record's own, which may have the same names.
    headers = {name: value or b"" for name, value in rejected.headers}
    if headers.get("error.code") != SET_ASIDE.encode():
        return None
    try:
        return Origin(headers["error.topic"].decode(), int(headers["error.partition"]), int(headers["error.offset"]))
    except (KeyError, ValueError):
        return None


def marked(records: Iterable[Record], places: frozenset[Origin]) -> list[Record]:
    """Return records as they are to be read again."""
    if not places:
        return list(records)
    return [record._replace(set_aside=True) if record.origin in places else record for record in records]
