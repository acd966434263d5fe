"""The join as a straightforward Faust agent: at least once, since Faust's exactly once loses and doubles."""

from __future__ import annotations

import sys
from typing import Any

import faust

from bench.peers.environment import Environment
from bench.peers.evidence import HEADERS, evidence_of
from bench.peers.loading import load_bindings

ENVIRONMENT = Environment.read()

app = faust.App(
    ENVIRONMENT.group,
    broker=f"kafka://{ENVIRONMENT.bootstrap}",
    datadir=ENVIRONMENT.state_dir,
    consumer_auto_offset_reset="earliest",
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
    # As large batches as ours; the default is a few records.
    producer_max_batch_size=512 * 1_024,
)
calls = app.topic(ENVIRONMENT.calls_topic, value_type=bytes, value_serializer="raw", key_serializer="raw")
evidence = app.topic(ENVIRONMENT.evidence_topic, value_serializer="raw", key_serializer="raw")
bindings = load_bindings(ENVIRONMENT.bootstrap, ENVIRONMENT.bindings_topic)


@app.agent(calls)  # type: ignore[untyped-decorator]
async def join(stream: Any) -> None:
    """Write the evidence of every call."""
    async for event in stream.events():
        message = event.message
        found = evidence_of(
            event.value,
            bindings,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            version=ENVIRONMENT.version,
        )
        await evidence.send(
            key=found.key,
            value=found.value,
            partition=message.partition,
            timestamp=found.timestamp_ms / 1_000,
            headers=dict(HEADERS),
        )


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--loglevel", "warn", "--without-web"]
    app.main()
