"""``assay-stream compare``: a replay compared with what was recorded."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from assay_stream.alerts.formats.view import read_alert, view_of
from assay_stream.cli.files import archive_lines, files_option
from assay_stream.cli.options import (
    EvidenceFiles,
    Format,
    FromKafka,
    Inputs,
    SettingsOptions,
    SnapshotPartitions,
    grouped,
)
from assay_stream.cli.output import RowFormat, cell, json_line, print_line, print_summary
from assay_stream.cli.shared import say
from assay_stream.cli.sources import Source, joined_source, make_source
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.files.log_spool import LogSpool
from assay_stream.files.record_line import record_line_parts
from assay_stream.kafka.ranges import KafkaLogs, note_ends
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Origin, Output, Role
from assay_stream.replay.run import Replay
from assay_stream.replay.selection import Selection
from assay_stream.verify.compare import Difference, ReplayComparison
from assay_stream.verify.evidence import Recorded, of_lines, of_record

AlertFiles = Annotated[
    list[Path] | None, files_option("--alerts", help="Alerts (NDJSON). Default: compare evidence only.", kind="alerts")
]


class RecordedRun(NamedTuple):
    """The evidence and alerts that a replay is compared with; ``None`` to leave alerts out."""

    evidence: Iterable[Recorded]
    alerts: Iterable[bytes | None] | None


def recorded_in(evidence: Sequence[Path] | None, alerts: Sequence[Path] | None) -> RecordedRun:
    return RecordedRun(evidence_in(evidence or ()), None if alerts is None else _alerts(alerts))


def evidence_in(paths: Iterable[Path]) -> Iterator[Recorded]:
    return (record for path in paths for record in of_lines((line for _, line in archive_lines(path)), name=path.name))


@grouped
def compare(
    given: SettingsOptions,
    evidence: EvidenceFiles = None,
    alerts: AlertFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    snapshot_partitions: SnapshotPartitions = None,
    target: Format = RowFormat.TABLE,
) -> None:
    """Replay what was observed and compare the result with the recorded evidence and alerts.

    Reports each difference with its cause. Exit code 0: everything is identical. 1: there are differences.
    """
    if from_kafka == bool(evidence or inputs or alerts) or bool(evidence) != bool(inputs):
        raise InputError("bad_option", "give --from-kafka, or files: --evidence FILE --input FILE [--alerts FILE]")
    settings = given.settings()
    if from_kafka:
        source = joined_source(settings)
    else:
        source = make_source(inputs, False, Selection(), settings, snapshot_partitions=snapshot_partitions)
    with source.spool() as spool:
        made = source.replay(spool)
        replayed = chain.from_iterable(made.steps())
        if from_kafka:
            hold_against_topics(source, spool, made, replayed, target)
        else:
            hold_against(settings, spool, made, replayed, recorded_in(evidence, alerts), target)


def hold_against_topics(
    source: Source, spool: LogSpool, made: Replay, replayed: Iterable[Output], target: RowFormat = RowFormat.TABLE
) -> None:
    """Compare a replay of the topics with the evidence and alert topics, and print the differences.

    Raises:
        typer.Exit: with 1 if there are differences.
    """
    settings = source.settings
    with (
        asyncio.Runner() as runner,
        KafkaLogs(settings, Role.EVIDENCE, runner) as evidence,
        KafkaLogs(settings, Role.ALERTS, runner) as alerts,
    ):
        ends_now = runner.run(note_ends(settings, (Role.CALLS,)))[Role.CALLS]
        topic, ends = topic_names(settings)[Role.CALLS], (source.ends or {}).get(Role.CALLS, {})
        inputs = {topic_names(settings)[role]: numbers for role, numbers in (source.ends or {}).items()}

        def is_compared(given: Recorded) -> bool:
            """Return True unless the evidence is of a call that came after the replay began."""
            if given.call is None or given.call.topic != topic or given.call.partition not in ends:
                return True
            number, offset = given.call[1:]
            return not ends[number] <= offset < ends_now[number]

        recorded = RecordedRun(
            filter(is_compared, map(of_record, evidence)),
            (record.value for record in alerts if not comes_after(record.value, inputs)),
        )
        hold_against(settings, spool, made, replayed, recorded, target)


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
    settings: Settings,
    spool: LogSpool,
    made: Replay,
    replayed: Iterable[Output],
    recorded: RecordedRun,
    target: RowFormat = RowFormat.TABLE,
) -> None:
    """Compare a replay with what was recorded, and print the differences.

    Raises:
        typer.Exit: with 1 if there are differences.
    """
    comparison = ReplayComparison(
        lambda: (record for log in spool.logs() for record in spool.read(log)),
        redaction=settings.redaction(),
        call_profile=settings.call_profile,
        snapshot_partitions=made.snapshot_partitions,
    )
    count = 0
    for difference in comparison.differences(
        replayed, recorded.evidence, recorded.alerts, lambda until_us: chain.from_iterable(made.advance_time(until_us))
    ):
        count += difference.counts
        row = difference.as_json()
        print_line(json_line(row) if target is RowFormat.JSON else _line(difference, row))
    causes = dict(sorted(comparison.causes.items()))
    print_summary({"identical": dict(comparison.identical), "differences": count, "causes": causes}, target)
    if recorded.alerts is None:
        say("alerts were not compared: pass them with --alerts")
    if count:
        raise typer.Exit(1)


def written_in(folder: Path) -> Iterator[Output]:
    """Yield the evidence and alerts that a replay wrote to a folder."""
    for role, name in ((Role.ALERTS, "alerts.ndjson"), (Role.EVIDENCE, "evidence.ndjson")):
        for _, line in archive_lines(folder / name):
            yield Output(role=role, key=None, value=line)


def _line(difference: Difference, row: dict[str, Any]) -> str:
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


def _alerts(paths: Sequence[Path]) -> Iterator[bytes | None]:
    for path in paths:
        for number, line in archive_lines(path):
            record = record_line_parts(line, Origin(topic=path.name, partition=0, offset=number - 1))
            yield line if record is None else record.value
