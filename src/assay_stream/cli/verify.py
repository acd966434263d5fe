"""``assay-stream verify`` and ``compare``: evidence recomputed, and a replay beside what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from assay_stream.alerts.view import read_alert, view_of
from assay_stream.canonical.decode import decode_json
from assay_stream.cli.evidence import act_row, print_act
from assay_stream.cli.options import (
    EvidenceFiles,
    Format,
    FromKafka,
    Inputs,
    SettingsOptions,
    SnapshotPartitions,
    archive_lines,
    files_option,
    time_option,
)
from assay_stream.cli.output import RowFormat, cell, json_line, print_line, print_summary
from assay_stream.cli.shared import NOTHING_FOUND, Refusals, brokers_of, flag, name_refused, on_kafka, option, say
from assay_stream.cli.sources import Source, joined_source, make_source, noted
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.files.archive import archived_offsets, check_whole, read_files
from assay_stream.files.lines import record_line_parts
from assay_stream.files.local import path_text
from assay_stream.files.spool import LogSpool
from assay_stream.kafka.ranges import KafkaLogs, joined_offsets, note_ends
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.replay.log_cut import History, history_of
from assay_stream.replay.order import Selection
from assay_stream.replay.run import Replay
from assay_stream.verify.compare import ReplayComparison
from assay_stream.verify.evidence import Difference, EvidenceSelection, Pairing, Recorded, of_lines, of_record
from assay_stream.verify.verification import (
    Coverage,
    Expect,
    Judgement,
    RecordStatus,
    Summary,
    Verifier,
    judged,
    judgements,
    late_only,
    origin_of,
)

AlertFiles = Annotated[
    list[Path] | None, files_option("Alerts (NDJSON). Default: compare evidence only.", "--alerts", kind="alerts")
]


def evidence_in(paths: Iterable[Path]) -> Iterator[Recorded]:
    return (
        record
        for path in paths
        for record in of_lines((line for _, line in archive_lines(path)), name=path_text(path.name))
    )


def compare(
    given: SettingsOptions,
    evidence: EvidenceFiles = None,
    alerts: AlertFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    snapshot_partitions: SnapshotPartitions = None,
    target: Format = "table",
) -> int:
    """Replay what was observed and compare the result with the recorded evidence and alerts.

    Reports each difference with its cause. Exit code 0: everything is identical. 1: there are differences. 3: lines of
    the input cannot be read. 5: there is nothing to compare.
    """
    if from_kafka == bool(evidence or inputs or alerts) or bool(evidence) != bool(inputs):
        raise InputError("bad_option", "give --from-kafka, or files: --evidence FILE --input FILE [--alerts FILE]")
    settings = given.settings()
    if from_kafka:
        source = joined_source(settings)
    else:
        source = make_source(inputs, False, Selection(), settings, snapshot_partitions=snapshot_partitions)
    refused = Refusals()
    with source.spool() as spool:
        made = source.replay(spool)
        replayed = noted(chain.from_iterable(made.steps()), refused)
        code = hold_against(source, spool, made, replayed, evidence, alerts, target)
    if not from_kafka:
        name_refused(refused)
    return code


@contextmanager
def _recorded(
    source: Source, evidence: list[Path] | None, alerts: list[Path] | None
) -> Iterator[tuple[Iterable[Recorded], Iterable[bytes | None] | None]]:
    """Yield the evidence and alerts that a replay is compared with, of topics or files; ``None`` for no alerts."""
    if source.ends is None:
        yield evidence_in(evidence or ()), None if alerts is None else _alerts_in(alerts)
        return
    settings, names = source.settings, topic_names(source.settings)
    with (
        asyncio.Runner() as runner,
        KafkaLogs(settings, [Role.EVIDENCE], runner) as evidence_logs,
        KafkaLogs(settings, [Role.ALERTS], runner) as alert_logs,
    ):
        ends_now = runner.run(note_ends(settings, (Role.CALLS,)))[Role.CALLS]
        topic, ends = names[Role.CALLS], source.ends.get(Role.CALLS, {})
        inputs = {names[role]: numbers for role, numbers in source.ends.items()}

        def is_compared(given: Recorded) -> bool:
            """Return True unless the evidence is of a call that came after the replay began."""
            if given.call is None or given.call.topic != topic or given.call.partition not in ends:
                return True
            number, offset = given.call[1:]
            return not ends[number] <= offset < ends_now[number]

        written = (record.value for record in alert_logs.all() if not comes_after(record.value, inputs))
        yield filter(is_compared, map(of_record, evidence_logs.all())), written


def _alerts_in(paths: Iterable[Path]) -> Iterator[bytes | None]:
    for path in paths:
        for number, line in archive_lines(path):
            record = record_line_parts(line, Origin(topic=path_text(path.name), partition=0, offset=number - 1))
            yield line if record is None else record.value


def comes_after(alert: bytes | None, ends: Mapping[str, Mapping[int, int]]) -> bool:
    """Return True if an alert record counts a finding about a record that came after the replay began.

    Args:
        ends: topic and partition to the first offset that the replay does not read.
    """
    with suppress(InputError, ValueError):
        view = view_of(read_alert(alert))
        end = ends.get(view.fact("mcp_origin_topic"), {}).get(int(view.fact("mcp_origin_partition")))
        return end is not None and int(view.fact("mcp_origin_offset")) >= end
    return False


def hold_against(
    source: Source,
    spool: LogSpool,
    made: Replay,
    replayed: Iterable[Output],
    evidence: list[Path] | None,
    alerts: list[Path] | None,
    target: RowFormat = "table",
) -> int:
    """Print each difference from what was recorded and a summary; return the exit code."""
    comparison = ReplayComparison(
        lambda: (record for log in spool.logs() for record in spool.read(log)),
        redaction=source.settings.redaction(),
        call_profile=source.settings.call_profile,
        snapshot_partitions=made.snapshot_partitions,
    )
    count = 0
    with _recorded(source, evidence, alerts) as (recorded, recorded_alerts):
        for difference in comparison.differences(
            replayed, recorded, recorded_alerts, lambda until_us: chain.from_iterable(made.advance_time(until_us))
        ):
            count += difference.counts
            row = difference.as_json()
            print_line(json_line(row) if target == "json" else _difference_line(difference, row))
    causes = dict(sorted(comparison.causes.items()))
    print_summary({"identical": dict(comparison.identical), "differences": count, "causes": causes}, target)
    if recorded_alerts is None:
        say("alerts were not compared: pass them with --alerts")
    if not causes and not any(comparison.identical.values()):
        say("there is nothing to compare: neither the replay nor what was recorded has evidence or alerts")
        return NOTHING_FOUND
    return int(count > 0)


def written_in(folder: Path) -> Iterator[Output]:
    for role, name in ((Role.ALERTS, "alerts.ndjson"), (Role.EVIDENCE, "evidence.ndjson")):
        for _, line in archive_lines(folder / name):
            yield Output(role=role, key=None, value=line)


def _difference_line(difference: Difference, row: dict[str, Any]) -> str:
    parts = [
        f"{difference.what:<8}",
        f"{','.join(difference.causes):<18}",
        f"{cell(row.get('call', difference.record_id)):<32}",
        f"{cell(difference.server_id)} {cell(difference.tool_name)}",
        *([] if difference.kind is None else [cell(difference.kind)]),
        *(cell(path) for path in difference.paths),
        *(cell(record) for record in difference.records),
        *(f"joined without {cell(origin.as_json())}" for origin in difference.left_out),
    ]
    return "  ".join(parts).rstrip()


_APPLIED = (Role.CONTROL, Role.SNAPSHOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """Which evidence to verify."""

    since_us: int | None = time_option("Only calls of this time or later.", "--since")
    until_us: int | None = time_option("Only calls of this time or earlier.", "--until")
    server_id: str | None = option("Only calls on this server.")
    evidence_id: str | None = option("Only the records with this id.")
    partition: int | None = option("Only this partition of the calls.", min=0)
    from_offset: int | None = option("Only calls at this offset or later.", min=0)
    to_offset: int | None = option("Only calls before this offset.", min=0)


def verify(
    selecting: SelectionOptions,
    given: SettingsOptions,
    evidence: EvidenceFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    snapshot_partitions: SnapshotPartitions = None,
    producer: list[str] | None = option("Accepted writers: VERSION or VERSION@GIT."),
    expect: Expect = option(
        "Which calls must have evidence. joined: those that the join has committed, and those before another "
        "with evidence; all; none: the evidence is an extract.",
        default=Expect.JOINED,
    ),
    strict: bool = flag("Late input makes a record wrong."),
    every: bool = flag("Also show the records that hold.", "--all"),
    target: Format = "table",
) -> int:
    """Recompute evidence from the calls, snapshots and decisions it refers to, and find calls without evidence.

    Exit code 0: all of it holds. 1: some is wrong or missing. 3: some relies on records that are gone. 5: none
    matches. A summary goes to standard error. A record that holds says nothing about the tool.
    """
    if from_kafka == bool(evidence or inputs) or bool(evidence) != bool(inputs):
        raise InputError("bad_option", "give --from-kafka, or files: --evidence FILE --input FILE")
    settings, selection = given.settings(), EvidenceSelection(**asdict(selecting))
    read, summary = partial(read_files, inputs or []), Summary()
    # Before any evidence is read: what the join commits later need not be in it.
    archived = archived_offsets(inputs or [])
    joined = archived.joined
    if from_kafka and expect is Expect.JOINED:
        joined = on_kafka(settings, joined_offsets)
    coverage = Coverage(expect, joined)
    judging: AbstractContextManager[tuple[Verifier, Iterator[Judgement]]]
    if from_kafka:
        judging = judging_topics(settings, selection, coverage, producers=producer or ())
    else:
        history = history_of(read, snapshot_partitions=snapshot_partitions)
        check_whole(archived, history.ranges)
        over_files = _verifier(history, settings, producer or ())
        recorded = evidence_in(evidence or ())
        found = judgements(over_files, recorded, read, selection=selection, coverage=coverage)
        judging = nullcontext((over_files, found))
    with judging as (verifier, found):
        # Printed as they arrive, so that a year of evidence needs no memory.
        for each in found:
            judgement = late_only(each) if strict else each
            summary.note(judgement)
            if every or judgement.status is not RecordStatus.HOLDS:
                row = judgement.as_json()
                print_line(json_line(row) if target == "json" else _evidence_line(row))
        summary.note_producers(verifier.written_by)
        for act in summary.erasures(verifier.account.erasures):
            print_act(act_row(act), as_json=target == "json")
    summary.pending = coverage.pending
    counts = summary.as_json()
    print_summary(counts, target)
    if not counts["records"] and not summary.exit_code:
        say("no evidence matches: check the times, offsets and servers")
        return NOTHING_FOUND
    if inputs and summary.exit_code:
        name_refused(_unread(read()))
    if inputs and counts[RecordStatus.GONE.value]:
        say("calls are found by the name of their file and their line: was a file renamed, cut or left out?")
    return summary.exit_code


def _unread(records: Iterable[Record]) -> Refusals:
    """Return the lines of files that are not JSON: what they held cannot be found."""
    refused = Refusals()
    for record in records:
        try:
            if record.key is None and record.value is not None:
                decode_json(record.value)
        except InputError as error:
            refused.append(f"{record.origin}: {error}")
    return refused


def _verifier(history: History, settings: Settings, producers: Collection[str], **options: Any) -> Verifier:
    redaction, call_profile = settings.redaction(), settings.call_profile
    return Verifier(history, redaction=redaction, call_profile=call_profile, producers=producers, **options)


def _evidence_line(row: dict[str, Any]) -> str:
    parts = [
        f"{row['status']:<6}",
        f"{cell(row.get('call') or row.get('where')):<32}",
        f"{cell(row.get('server_id'))} {cell(row.get('tool'))}",
        " ".join(row.get("codes", [])),
        *(cell(path) for path in row.get("paths", [])),
    ]
    parts += [f"by {cell(row['erasure'])}"] if "erasure" in row else []
    parts += [f"missing {cell(origin)}" for origin in row.get("missing", [])]
    parts += [f"joined without {cell(origin)}" for origin in row.get("left_out", [])]
    return "  ".join(part for part in parts if part).rstrip()


@contextmanager
def judging_topics(
    settings: Settings, selection: EvidenceSelection, coverage: Coverage, *, producers: Collection[str] = ()
) -> Iterator[tuple[Verifier, Iterator[Judgement]]]:
    """Give a verifier, and its judgements on the selected records of the evidence topic and calls without evidence.

    Args:
        producers: accepted writer versions; empty for any.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``brokers_failing``.
    """
    roles = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS, Role.EVIDENCE)
    with brokers_of(settings) as runner, KafkaLogs(settings, roles, runner) as logs:

        def applied(servers: set[str]) -> Iterator[Record]:
            keys = {name.encode() for name in servers}
            return (record for record in logs.all(*_APPLIED) if record.key in keys)

        def judge() -> Iterator[Judgement]:
            for number in logs.ranges.partitions(Role.EVIDENCE):
                if selection.partition not in (None, number):
                    continue
                part = _Partition(settings, logs, number, selection, coverage)
                yield from judged(
                    verifier,
                    part.evidence(),
                    part.calls(),
                    applied,
                    selection=selection,
                    coverage=coverage,
                    pairing=part.pairing,
                    gone_before=part.gone_before,
                )
            if verifier.servers_in_doubt():
                yield from verifier.settle(applied(verifier.servers_in_doubt()))

        history = History(snapshot_partitions=len(logs.ranges.partitions(Role.SNAPSHOTS)))
        for record in logs.all(*_APPLIED):
            history.take(record)
        verifier = _verifier(history, settings, producers, starts=logs.ranges.starts())
        yield verifier, judge()


class _Partition:
    """The evidence in one partition, and the calls in the partition of the same number, which all of it refers to."""

    def __init__(
        self, settings: Settings, logs: KafkaLogs, number: int, selection: EvidenceSelection, coverage: Coverage
    ) -> None:
        self._logs, self._number, self._selection, self._coverage = logs, number, selection, coverage
        place = (topic_names(settings)[Role.CALLS], number)
        self.pairing = Pairing(origin_of, places={place} & logs.ranges.bounds.keys())
        self._gone_before = 0

    def gone_before(self) -> int:
        return self._gone_before

    def evidence(self) -> Iterator[Recorded]:
        first, since_us = 0, self._selection.since_us
        if since_us is not None:
            first = self._logs.run(self._logs.ranges.offset_at(Role.EVIDENCE, self._number, since_us // 1_000))
        for batch in self._logs.batches(Role.EVIDENCE, self._number, first=first):
            given = [of_record(record) for record in batch]
            if not self._gone_before and given[0].call is not None:
                # Of a log that lost its beginning: calls before its first record's lost their evidence.
                begin, _ = self._logs.ranges.bounds[batch[0].origin[:2]]
                self._gone_before = given[0].call.offset if begin > 0 and first <= begin else 0
            for evidence in given:
                is_here, is_wanted = self.pairing.takes(evidence), self._selection.wants(evidence)
                # What is not selected does not cover a call that is: it may have been altered to escape the selection.
                self._coverage.note(evidence.call if is_here else None, selected=is_wanted)
                if is_wanted:
                    yield evidence

    def calls(self) -> Iterator[Record]:
        """Yield the calls that may be selected. Evidence is not in their order: a later record may refer to an earlier
        call.
        """
        selection = self._selection
        first = selection.from_offset or 0
        if selection.since_us is not None:
            # A call's event time may lie after its record's own by as much, and no more.
            since_ms = max(0, selection.since_us // 1_000 - DEFAULT_LIMITS.future_max_ms)
            first = max(first, self._logs.run(self._logs.ranges.offset_at(Role.CALLS, self._number, since_ms)))
        for batch in self._logs.batches(Role.CALLS, self._number, first=first, end=selection.to_offset):
            yield from batch
