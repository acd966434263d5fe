"""``assay-stream verify``: evidence held against the logs that it names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.cli.files import STANDARD_INPUT, archive_lines
from assay_stream.cli.output import RowFormat, cell, json_line, print_line, print_summary
from assay_stream.cli.processes import Tell, in_processes
from assay_stream.cli.shared import (
    NOTHING_FOUND,
    Bootstrap,
    RedactionDisable,
    RedactionEnable,
    RedactionNames,
    collecting_seldom,
    quiet_client_logs,
    say,
)
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.files.archive_manifest import ArchivedOffsets, archived_offsets, check_whole
from assay_stream.model.cloudevents import time_us_of
from assay_stream.replay.history import history_of
from assay_stream.verify.evidence import EvidenceSelection, Recorded, of_lines
from assay_stream.verify.judging import WHOLE, Coverage, Expect, Read, Share, Summary, judgements
from assay_stream.verify.verification import Judgement, Status, Verifier, late_only

Inputs = Annotated[
    list[Path] | None, typer.Option("--input", help="Recorded observations (NDJSON). May be given several times.")
]
EvidenceFiles = Annotated[
    list[Path] | None, typer.Option("--evidence", help="Evidence (NDJSON). May be given several times.")
]
FromKafka = Annotated[bool, typer.Option("--from-kafka", help="Read everything from Kafka.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only calls of this time (RFC 3339) or later.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only calls of this time or earlier.")]
Format = Annotated[RowFormat, typer.Option("--format", help="What to print.")]


def verify(
    evidence: EvidenceFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    since: Since = None,
    until: Until = None,
    server_id: Annotated[str | None, typer.Option(help="Only calls on this server.")] = None,
    evidence_id: Annotated[str | None, typer.Option(help="Only the records with this id.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition of the calls.")] = None,
    from_offset: Annotated[int | None, typer.Option(min=0, help="Only calls at this offset or later.")] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="Only calls before this offset.")] = None,
    producer: Annotated[
        list[str] | None, typer.Option(help="VERSION or VERSION@GIT that may have written evidence. Default: any.")
    ] = None,
    expect: Annotated[
        Expect,
        typer.Option(
            help="Which calls must have evidence: those that the join has committed, or that stand before another "
            "with evidence; all; or none, where the evidence is an extract."
        ),
    ] = Expect.JOINED,
    strict: Annotated[bool, typer.Option("--strict", help="Records joined without what came late are wrong.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show the records that hold, too.")] = False,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many processes share the calls, each with all lists and decisions in its memory. "
            "Rows of several come in no order.",
        ),
    ] = 1,
    target: Format = RowFormat.TABLE,
    redaction_enable: RedactionEnable = None,
    redaction_disable: RedactionDisable = None,
    redaction_names: RedactionNames = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Recompute evidence from the calls, snapshots and decisions it refers to, and find calls without evidence.

    Exit code 0: all of it holds. 1: some is wrong or missing. 3: some relies on records that are gone. 5: none
    matches. A summary goes to standard error. A record that holds says nothing about the tool.
    """
    selection = EvidenceSelection(
        since_us=None if since is None else operator_time_us(since),
        until_us=None if until is None else operator_time_us(until),
        server_id=server_id,
        evidence_id=evidence_id,
        partition=partition,
        from_offset=from_offset,
        to_offset=to_offset,
    )
    if from_kafka == bool(evidence or inputs) or bool(evidence) != bool(inputs):
        raise InputError("bad_option", "give --from-kafka, or files: --evidence FILE --input FILE")
    settings = command_settings(
        redaction_enable=redaction_enable,
        redaction_disable=redaction_disable,
        redaction_names=redaction_names,
        bootstrap_servers=bootstrap_servers,
    )
    if processes > 1 and any(path == STANDARD_INPUT for path in evidence or []):
        raise InputError("bad_option", "processes cannot share standard input: give a file, or omit --processes")
    if from_kafka:
        quiet_client_logs()

    read = partial(read_files, inputs or [])

    def check(share: Share, tell: Tell) -> Summary:
        rows = _Rows(target, tell, strict=strict, every=every)
        coverage = Coverage(expect, joined)
        if verifier is None:
            _from_kafka(settings, selection, producer or (), share, coverage, rows)
        else:
            given, before = _evidence(evidence or []), Counter(verifier.written_by)
            for judgement in judgements(verifier, given, read, selection=selection, share=share, coverage=coverage):
                rows.show(judgement)
            # One process may take several shares, and its verifier goes on counting.
            rows.summary.note_producers(Counter(verifier.written_by) - before)
        rows.summary.pending = coverage.pending
        return rows.summary

    with collecting_seldom():
        # Before any evidence is read: what the join commits later need not be in it.
        archived = archived_offsets(inputs or [])
        joined = archived.joined
        if from_kafka and expect is Expect.JOINED:
            from assay_stream.kafka import lookup

            joined = asyncio.run(lookup.joined_offsets(settings))
        # Made before the processes part, so that snapshots and decisions are read once.
        verifier = None if from_kafka else _verifier(read, settings, producer or (), archived)
        summary = Summary()
        for one in in_processes(check, processes, print_line) if processes > 1 else [check(WHOLE, print_line)]:
            summary.add(one)
    _end(summary, target)


def _verifier(read: Read, settings: Settings, producers: Collection[str], archived: ArchivedOffsets) -> Verifier:
    history = history_of(read)
    check_whole(archived, history.ranges)
    return Verifier(history, redaction=settings.redaction(), call_profile=settings.call_profile, producers=producers)


class _Rows:
    """Prints judgements as they come, so that a year of evidence needs no memory, and counts them."""

    def __init__(self, target: RowFormat, tell: Tell, *, strict: bool, every: bool) -> None:
        self._target, self._tell, self._strict, self._every = target, tell, strict, every
        self.summary = Summary()

    def show(self, judgement: Judgement) -> None:
        judgement = late_only(judgement) if self._strict else judgement
        self.summary.note(judgement)
        if judgement.status is Status.HOLDS and not self._every:
            return
        row = judgement.as_json()
        self._tell(json_line(row) if self._target is RowFormat.JSON else _line(row))


def _end(summary: Summary, target: RowFormat) -> None:
    counts = summary.as_json()
    print_summary(counts, target)
    if not counts["records"] and not summary.exit_code:
        say("no evidence matches: check the times, offsets and servers")
        raise typer.Exit(NOTHING_FOUND)
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


def _line(row: dict[str, Any]) -> str:
    """Return a judgement as a line of text: status, call, what is wrong, what is missing or was late."""
    parts = [
        f"{row['status']:<6}",
        f"{cell(row.get('call')):<32}",
        f"{cell(row.get('server_id'))} {cell(row.get('tool'))}",
        " ".join(row.get("codes", [])),
        *(cell(path) for path in row.get("paths", [])),
    ]
    parts += [f"missing {cell(origin)}" for origin in row.get("missing", [])]
    parts += [f"joined without {cell(origin)}" for origin in row.get("left_out", [])]
    return "  ".join(part for part in parts if part).rstrip()


def _from_kafka(
    settings: Settings,
    selection: EvidenceSelection,
    producers: Collection[str],
    share: Share,
    coverage: Coverage,
    rows: _Rows,
) -> None:
    from assay_stream.kafka.verification import verified

    written_by: Mapping[str, int] = {}
    found = verified(settings, selection, producers=producers, share=share, coverage=coverage)
    for verifier, judgement in found:
        written_by = verifier.written_by
        rows.show(judgement)
    rows.summary.note_producers(written_by)


def _evidence(paths: Iterable[Path]) -> Iterator[Recorded]:
    return (record for path in paths for record in of_lines((line for _, line in archive_lines(path)), name=path.name))


def operator_time_us(text: str) -> int:
    """Return the time that an operator means, microseconds since the epoch.

    Raises:
        InputError: ``bad_time``.
    """
    try:
        return time_us_of(text)
    except (InputError, TypeError):
        raise InputError("bad_time", "write the time as RFC 3339 with its offset: 2026-03-01T10:00:00Z") from None
