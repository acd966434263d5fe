"""``assay-stream verify``: evidence recomputed from the logs it refers to."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any

import typer

from assay_stream.cli.compare import evidence_in
from assay_stream.cli.options import EvidenceFiles, Format, FromKafka, Inputs, SettingsOptions, grouped, time_option
from assay_stream.cli.output import RowFormat, cell, json_line, print_line, print_summary
from assay_stream.cli.shared import NOTHING_FOUND, collecting_seldom, say
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.files.archive_manifest import ArchivedOffsets, archived_offsets, check_whole
from assay_stream.kafka import lookup
from assay_stream.kafka.verification import verified
from assay_stream.replay.history import history_of
from assay_stream.verify.evidence import EvidenceSelection
from assay_stream.verify.judging import Coverage, Expect, Read, Summary, judgements
from assay_stream.verify.verification import Judgement, RecordStatus, Verifier, late_only


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """Which evidence to verify."""

    since_us: Annotated[int | None, time_option("Only calls of this time or later.", "--since")] = None
    until_us: Annotated[int | None, time_option("Only calls of this time or earlier.", "--until")] = None
    server_id: Annotated[str | None, typer.Option(help="Only calls on this server.")] = None
    evidence_id: Annotated[str | None, typer.Option(help="Only the records with this id.")] = None
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition of the calls.")] = None
    from_offset: Annotated[int | None, typer.Option(min=0, help="Only calls at this offset or later.")] = None
    to_offset: Annotated[int | None, typer.Option(min=0, help="Only calls before this offset.")] = None


@grouped
def verify(
    selecting: SelectionOptions,
    given: SettingsOptions,
    evidence: EvidenceFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    producer: Annotated[list[str] | None, typer.Option(help="Accepted writers: VERSION or VERSION@GIT.")] = None,
    expect: Annotated[
        Expect,
        typer.Option(
            help="Which calls must have evidence. joined: those that the join has committed, and those before another "
            "with evidence; all; none: the evidence is an extract."
        ),
    ] = Expect.JOINED,
    strict: Annotated[bool, typer.Option("--strict", help="Late input makes a record wrong.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also show the records that hold.")] = False,
    target: Format = RowFormat.TABLE,
) -> None:
    """Recompute evidence from the calls, snapshots and decisions it refers to, and find calls without evidence.

    Exit code 0: all of it holds. 1: some is wrong or missing. 3: some relies on records that are gone. 5: none
    matches. A summary goes to standard error. A record that holds says nothing about the tool.
    """
    if from_kafka == bool(evidence or inputs) or bool(evidence) != bool(inputs):
        raise InputError("bad_option", "give --from-kafka, or files: --evidence FILE --input FILE")
    settings, selection = given.settings(), EvidenceSelection(**asdict(selecting))
    read = partial(read_files, inputs or [])
    rows = _Rows(target, strict=strict, every=every)

    with collecting_seldom():
        # Before any evidence is read: what the join commits later need not be in it.
        archived = archived_offsets(inputs or [])
        joined = archived.joined
        if from_kafka and expect is Expect.JOINED:
            joined = asyncio.run(lookup.joined_offsets(settings))
        coverage = Coverage(expect, joined)
        if from_kafka:
            _from_kafka(settings, selection, producer or (), coverage, rows)
        else:
            verifier = _verifier(read, settings, producer or (), archived)
            for judgement in judgements(
                verifier, evidence_in(evidence or ()), read, selection=selection, coverage=coverage
            ):
                rows.show(judgement)
            rows.summary.note_producers(verifier.written_by)
    rows.summary.pending = coverage.pending
    _end(rows.summary, target)


def _verifier(read: Read, settings: Settings, producers: Collection[str], archived: ArchivedOffsets) -> Verifier:
    history = history_of(read, home_partitions=settings.home_partitions())
    check_whole(archived, history.ranges)
    return Verifier(history, redaction=settings.redaction(), call_profile=settings.call_profile, producers=producers)


@dataclass(slots=True)
class _Rows:
    """Prints judgements as they come, so that a year of evidence needs no memory, and counts them."""

    target: RowFormat
    strict: bool
    every: bool
    summary: Summary = field(default_factory=Summary)

    def show(self, judgement: Judgement) -> None:
        judgement = late_only(judgement) if self.strict else judgement
        self.summary.note(judgement)
        if judgement.status is RecordStatus.HOLDS and not self.every:
            return
        row = judgement.as_json()
        print_line(json_line(row) if self.target is RowFormat.JSON else _line(row))


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
    settings: Settings, selection: EvidenceSelection, producers: Collection[str], coverage: Coverage, rows: _Rows
) -> None:
    written_by: Mapping[str, int] = {}
    found = verified(settings, selection, producers=producers, coverage=coverage)
    for verifier, judgement in found:
        written_by = verifier.written_by
        rows.show(judgement)
    rows.summary.note_producers(written_by)
