"""The state of one registry partition, and its ledger: what it publishes, applied to that state in the same step.

State changes by ``publish`` and ``retract`` alone: a restart restores what was there.
"""

from __future__ import annotations

from assay_stream.bindings.offers import Offers
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.envelope import Producer
from assay_stream.model.facts import Fact, Progress, encode_key, encode_value
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import FactKey
from assay_stream.registry.verdicts import Verdicts, verdicts_of


class Ledger:
    """The bindings of one registry partition; applies each fact in the step that publishes it."""

    def __init__(self, limits: Limits) -> None:
        self.bindings = Bindings(keep_definitions=True)
        self.limits = limits

    def publish(self, record: Record, fact: Fact) -> Output:
        self.bindings.apply(fact, partition=record.origin.partition)
        return fact_output(fact, partition=record.origin.partition, timestamp_ms=record.timestamp_ms)

    def retract(self, record: Record, *keys: FactKey) -> list[Output]:
        """Retract facts, and return their tombstones."""
        for key in keys:
            self.bindings.forget(key, partition=record.origin.partition)
        return [
            Output(
                role=Role.BINDINGS,
                key=encode_key(key),
                value=None,
                timestamp_ms=record.timestamp_ms,
                partition=record.origin.partition,
                label="fact:retracted",
            )
            for key in keys
        ]


class Registry:
    """The state of one registry partition; it changes only by the facts that are published.

    Args:
        producer: the producer named in the evidence of changes.
        partitions: number of partitions of the snapshot topic, ``None`` if unknown.
    """

    def __init__(self, *, producer: Producer, limits: Limits = DEFAULT_LIMITS, partitions: int | None = None) -> None:
        self.producer = producer
        self.limits = limits
        self.partitions = partitions
        self.ledger = Ledger(limits)
        self.bindings = self.ledger.bindings
        self.offers = Offers(limits)
        self._verdicts: dict[str, Verdicts] = {}
        """Content of the verdict topic for each server evaluated so far; it follows from the bindings."""

    def verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        found = self._verdicts.get(server_id)
        return self.revised_verdicts(server_id, server) if found is None else found

    def forget(self, server_id: str) -> None:
        """Drop a server whose facts have all been retracted."""
        self.bindings.drop(server_id)
        self._verdicts.pop(server_id, None)

    def revised_verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        """Return what the verdict topic must hold for a server now, and remember it as published."""
        found = self._verdicts[server_id] = verdicts_of(server_id, server)
        return found


def fact_output(fact: Fact, *, partition: int, timestamp_ms: int = 0) -> Output:
    key = fact.key()
    return Output(
        role=Role.BINDINGS,
        key=encode_key(key),
        value=encode_value(fact),
        timestamp_ms=timestamp_ms,
        partition=partition,
        label=f"fact:{key[0]}",
    )


def progress(*, topic: str, partition: int, position: int) -> Output:
    """Return the record of the registry's position in one input partition."""
    return fact_output(Progress(topic=topic, partition=partition, position=position), partition=partition)
