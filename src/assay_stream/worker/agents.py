"""The stages. Read this first.

Each stage is a Faust agent that iterates over batches: records of one input partition, in order. ``batch.process``
applies a pure function to each record, ``batch.process_pieces`` to some records at a time, in a thread of its own.
When the agent asks for its next batch, what it wrote, the state that changed and the input offsets are committed in
one Kafka transaction. When it raises, all of that is aborted, the state is restored from its topic, and the batch
comes again; after some failures in a row the worker stops with the agent's name and the cause. So no record is lost
and none counts twice.

``worker.stages`` and ``worker.join`` declare what a stage reads and which state it keeps. What runs the stages:

    kafka.runner       joins the consumer group, keeps a partition task for each partition it is given
    kafka.partition    opens a partition, fetches, gives batches to the agent, commits
    worker.channel     carries a batch to the agent and its outcome back
    worker.host        the process: Faust, signals, health, metrics
"""

from collections.abc import Mapping

from assay_stream.registry import processor
from assay_stream.worker.channel import AgentApp, Batches, TransactionalChannel
from assay_stream.worker.join import join_calls
from assay_stream.worker.stages import CountingTable


def declare(app: AgentApp, channels: Mapping[str, TransactionalChannel]) -> None:

    @app.agent(channels["registry"])
    async def registry(batches: Batches) -> None:
        """Snapshots and control records in; facts, definitions, findings and verdicts out."""
        async for batch in batches:
            await batch.process(processor.process)

    @app.agent(channels["join"])
    async def join(batches: Batches) -> None:
        """Calls in, evidence out, once what was observed before them is known."""
        async for batch in batches:
            await batch.process_pieces(join_calls)

    @app.agent(channels["alerts"])
    async def alerts(batches: Batches) -> None:
        """Findings in, alerts out; the table remembers each alert."""
        async for batch in batches:
            await batch.process(CountingTable.count)
