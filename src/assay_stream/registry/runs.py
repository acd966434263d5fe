"""Observations as rows: time, offset and snapshot id, beside what they share with others of their observer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from assay_stream.model.facts import Seen
from assay_stream.model.fields import Completeness, Subject
from assay_stream.model.record import Origin
from assay_stream.model.run_facts import SeenRun

Row = tuple[int, int, str]
"""Event time in microseconds, offset, and snapshot id."""


class Shared(NamedTuple):
    """The fields of an observation but time, offset and snapshot id."""

    server_id: str
    observer_id: str
    topic: str
    partition: int
    catalogue: str
    completeness: Completeness
    signatures: str | None
    prompts: str | None
    templates: str | None
    instructions: str | None
    auth_context: str | None
    hidden: tuple[tuple[str, str], ...]
    attributed: bool
    rationed: bool

    def listed(self, subject: Subject) -> str | None:
        """Return the digest of what is stated beside the tools, as ``Seen.listed``."""
        match subject:
            case Subject.PROMPT:
                return self.prompts
            case Subject.TEMPLATE:
                return self.templates
            case _:
                return self.instructions

    def seen(self, row: Row) -> Seen:
        time_us, offset, snapshot_id = row
        return Seen(
            server_id=self.server_id,
            observer_id=self.observer_id,
            origin=Origin(self.topic, self.partition, offset),
            time_us=time_us,
            snapshot_id=snapshot_id,
            catalogue=self.catalogue,
            completeness=self.completeness,
            signatures=self.signatures,
            prompts=self.prompts,
            templates=self.templates,
            instructions=self.instructions,
            auth_context=self.auth_context,
            hidden=self.hidden,
            attributed=self.attributed,
            rationed=self.rationed,
        )


def shared_by(seen: Seen | SeenRun) -> Shared:
    return Shared(
        seen.server_id,
        seen.observer_id,
        seen.origin.topic,
        seen.origin.partition,
        seen.catalogue,
        seen.completeness,
        seen.signatures,
        seen.prompts,
        seen.templates,
        seen.instructions,
        seen.auth_context,
        seen.hidden,
        seen.attributed,
        seen.rationed,
    )


def row_of(seen: Seen) -> Row:
    return seen.time_us, seen.origin.offset, seen.snapshot_id


def rows_of(run: SeenRun) -> list[Row]:
    """Return the rows of a run of the binding topic."""
    time_us, offset = run.time_us, run.origin.offset
    return [(time_us + later_us, offset + further, snapshot_id) for later_us, further, snapshot_id in run.rows]


def run_fact(key: Origin, entries: Sequence[Seen]) -> SeenRun:
    """Return the fact that stands for observations.

    Args:
        key: origin of the first observation that the run ever had.
        entries: in the order of their times and of their offsets, equal in everything else.
    """
    first = entries[0]
    return SeenRun(
        server_id=first.server_id,
        observer_id=first.observer_id,
        origin=key,
        time_us=first.time_us,
        rows=tuple((e.time_us - first.time_us, e.origin.offset - key.offset, e.snapshot_id) for e in entries),
        catalogue=first.catalogue,
        completeness=first.completeness,
        signatures=first.signatures,
        prompts=first.prompts,
        templates=first.templates,
        instructions=first.instructions,
        auth_context=first.auth_context,
        hidden=first.hidden,
        attributed=first.attributed,
        rationed=first.rationed,
    )
