"""``assay-stream compare``: a replay held against what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from assay_stream import __version__
from assay_stream.cli.lines import archive_lines
from assay_stream.cli.options import (
    Bootstrap,
    RedactionDisable,
    RedactionEnable,
    RedactionNames,
    SnapshotPartitions,
    quiet_client_logs,
    say,
)
from assay_stream.cli.sources import Source, joined_source, make_source
from assay_stream.cli.tables import RowFormat, cell, json_line, print_line
from assay_stream.cli.verify import EvidenceFiles, Format, FromKafka, Inputs
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.log_spool import LogSpool
from assay_stream.files.record_line import record_line_parts
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.replay.run import Replay
from assay_stream.replay.selection import Selection
from assay_stream.verify.compare import Comparison, Difference
from assay_stream.verify.evidence import Recorded, of_lines

AlertFiles = Annotated[
    list[Path] | None, typer.Option("--alerts", help="Alerts (NDJSON). Without them alerts are not compared.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFiles:
    """What a replay is held against.

    Args:
        evidence: files of recorded evidence.
        alerts: files of recorded alerts, ``None`` where these are not to be compared.
        passes_over: tells of which calls the evidence is not compared: those that came after the replay began.
    """

    evidence: Sequence[Path]
    alerts: Sequence[Path] | None = None
    passes_over: Callable[[Origin], bool] | None = None


def compare(
    evidence: EvidenceFiles = None,
    alerts: AlertFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    snapshot_partitions: SnapshotPartitions = None,
    target: Format = RowFormat.TABLE,
    redaction_enable: RedactionEnable = None,
    redaction_disable: RedactionDisable = None,
    redaction_names: RedactionNames = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Replay what was observed and hold the result against the evidence and alerts that were recorded.

    Each difference is told with its cause. Exit code 0: all is identical. 1: there are differences.
    """
    if from_kafka == bool(evidence or inputs or alerts) or bool(evidence) != bool(inputs):
        raise InputError("bad_option", "give --from-kafka, or files: --evidence FILE --input FILE [--alerts FILE]")
    quiet_client_logs()
    settings = command_settings(
        redaction_enable=redaction_enable,
        redaction_disable=redaction_disable,
        redaction_names=redaction_names,
        bootstrap_servers=bootstrap_servers,
    )
    if from_kafka:
        source = joined_source(settings)
    else:
        source = make_source(inputs, False, Selection(), settings, snapshot_partitions=snapshot_partitions)
    with LogSpool() as spool:
        source.read(spool.add)
        spool.finish()
        made = Replay(
            spool,
            producer=Producer(version=__version__, git=settings.git_commit),
            limits=settings.limits(),
            snapshot_partitions=source.partitions,
            redaction=settings.redaction(),
            call_profile=settings.call_profile,
            alert_rules=settings.alert_rules(__version__),
        )
        replayed = chain.from_iterable(made.steps())
        if from_kafka:
            hold_against_topics(source, spool, made, replayed, target)
        else:
            recorded = RecordedFiles(evidence=evidence or [], alerts=alerts)
            hold_against(settings, spool, made, replayed, recorded, target)


def hold_against_topics(
    source: Source, spool: LogSpool, made: Replay, replayed: Iterable[Output], target: RowFormat
) -> None:
    """Hold a replay of the topics against the evidence and alert topics, and print the differences.

    Args:
        source: the topics, and how far they were read.
        spool: what was replayed.
        made: the replay.
        replayed: what it writes.
        target: what to print.

    Raises:
        typer.Exit: with 1 where there are differences.
    """
    from assay_stream.kafka.dump import dump_topics
    from assay_stream.kafka.input_ranges import note_ends
    from assay_stream.kafka.topics import topic_names

    settings = source.settings
    with TemporaryDirectory(prefix="assay-stream-compare-") as folder:
        recorded, alerted = Path(folder) / "evidence.ndjson", Path(folder) / "alerts.ndjson"
        asyncio.run(dump_topics(settings, [(recorded, (Role.EVIDENCE,)), (alerted, (Role.ALERTS,))]))
        ends_now = asyncio.run(note_ends(settings, (Role.CALLS,)))[Role.CALLS]
        topic, ends = topic_names(settings)[Role.CALLS], (source.ends or {}).get(Role.CALLS, {})

        def passes_over(call: Origin) -> bool:
            number = call.partition
            return call.topic == topic and number in ends and ends[number] <= call.offset < ends_now[number]

        files = RecordedFiles(evidence=[recorded], alerts=[alerted], passes_over=passes_over)
        hold_against(settings, spool, made, replayed, files, target)


def hold_against(
    settings: Settings,
    spool: LogSpool,
    made: Replay,
    replayed: Iterable[Output],
    recorded: RecordedFiles,
    target: RowFormat = RowFormat.TABLE,
) -> None:
    """Hold a replay against what was recorded, and print the differences.

    Args:
        settings: the operator's settings.
        spool: what was replayed.
        made: the replay.
        replayed: what it writes; all of it is taken before time passes on.
        recorded: what was recorded.
        target: what to print.

    Raises:
        typer.Exit: with 1 where there are differences.
    """
    comparison = Comparison(
        partial(_records, spool), redaction=settings.redaction(), call_profile=settings.call_profile
    )
    count = 0
    for difference in comparison.differences(
        replayed,
        _recorded(recorded),
        None if recorded.alerts is None else _alerts(recorded.alerts),
        lambda until_us: chain.from_iterable(made.advance_time(until_us)),
    ):
        count += difference.counts
        row = difference.as_json()
        print_line(json_line(row) if target is RowFormat.JSON else _line(difference, row))
    summary: dict[str, Any] = {
        "identical": dict(comparison.identical),
        "differences": count,
        "causes": dict(sorted(comparison.causes.items())),
    }
    typer.echo(json_line({"summary": summary}).encode(), err=True)
    if recorded.alerts is None:
        say("alerts were not compared: give them with --alerts")
    if count:
        raise typer.Exit(1)


def written_in(folder: Path) -> Iterator[Output]:
    """Yield the evidence and alerts that a replay wrote to a folder.

    Args:
        folder: where ``assay-stream replay`` wrote to.
    """
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


def _records(spool: LogSpool) -> Iterator[Record]:
    return (record for log in spool.logs() for record in spool.read(log))


def _recorded(recorded: RecordedFiles) -> Iterator[Recorded]:
    passes_over = recorded.passes_over
    for path in recorded.evidence:
        for given in of_lines((line for _, line in archive_lines(path)), name=path.name):
            if passes_over is None or given.call is None or not passes_over(given.call):
                yield given


def _alerts(paths: Sequence[Path]) -> Iterator[bytes | None]:
    for path in paths:
        for number, line in archive_lines(path):
            record = record_line_parts(line, Origin(topic=path.name, partition=0, offset=number - 1))
            yield line if record is None else record.value
