"""The join with Quix Streams, exactly once."""

from __future__ import annotations

from typing import Any

from quixstreams import Application, message_context
from quixstreams.models import Serializer

from bench.peers.environment import Environment
from bench.peers.evidence import HEADERS, Evidence, evidence_of
from bench.peers.loading import load_bindings

_BATCH_RECORDS = 10_000


class _ValueOnly(Serializer):  # type: ignore[misc]
    def __call__(self, value: Evidence, ctx: object) -> bytes:
        return value.value


def main() -> None:
    """Run until killed."""
    environment = Environment.read()
    bindings = load_bindings(environment.bootstrap, environment.bindings_topic)
    app = Application(
        broker_address=environment.bootstrap,
        consumer_group=environment.group,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        auto_create_topics=False,
        state_dir=environment.state_dir,
        # A transaction as large as ours at most; the default is one every five seconds.
        commit_every=_BATCH_RECORDS,
        loglevel="WARNING",
    )
    calls = app.topic(environment.calls_topic, key_deserializer="bytes", value_deserializer="bytes")
    written = app.topic(environment.evidence_topic, key_serializer="bytes", value_serializer=_ValueOnly())

    def join(raw: bytes) -> Evidence:
        place = message_context()
        return evidence_of(
            raw,
            bindings,
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
            version=environment.version,
        )

    def headers_of(*_of_the_call: Any) -> list[tuple[str, bytes]]:
        return HEADERS

    frame = app.dataframe(calls).apply(join)
    frame = frame.set_timestamp(lambda found, *_: found.timestamp_ms).set_headers(headers_of)
    frame.to_topic(written, key=lambda found: found.key)
    app.run()


if __name__ == "__main__":
    main()
