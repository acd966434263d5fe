"""The state of one registry partition."""

from __future__ import annotations

from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.envelope import Producer
from assay_stream.registry.ledger import Ledger
from assay_stream.registry.offers import Offers
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.verdicts import Verdicts, verdicts_of


class Registry:
    """What one registry partition knows; it changes only by the facts that are published.

    Args:
        producer: who writes the evidence of changes.
        partitions: how many partitions the snapshot topic has, ``None`` if it is not known.
    """

    def __init__(self, *, producer: Producer, limits: Limits = DEFAULT_LIMITS, partitions: int | None = None) -> None:
        self.producer = producer
        self.limits = limits
        self.partitions = partitions
        self.ledger = Ledger(limits)
        self.bindings = self.ledger.bindings
        self.offers = Offers(limits)
        self._verdicts: dict[str, Verdicts] = {}
        """What the verdict topic holds of each server that was asked about; it follows from the bindings."""

    def verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        found = self._verdicts.get(server_id)
        return self.revised_verdicts(server_id, server) if found is None else found

    def revised_verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        """Return what the verdict topic must hold of a server now, and remember that it does."""
        found = self._verdicts[server_id] = verdicts_of(server_id, server)
        return found
