"""``assay-stream compare``: a replay held against what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from assay_stream import __version__
from assay_stream.cli.lines import input_lines
from assay_stream.cli.options import (
    Bootstrap,
    RedactionDisable,
    RedactionEnable,
    RedactionNames,
    quiet_client_logs,
    say,
)
from assay_stream.cli.tables import RowFormat, cell, json_line
from assay_stream.cli.verify import EvidenceFiles, Format, FromKafka, Inputs
from assay_stream.config import Settings, load_settings
from assay_stream.core.errors import InputError
from assay_stream.core.evidence import Producer
from assay_stream.core.record import Origin, Output, Record, Role
from assay_stream.forensics.archive import read_file, record_line_parts
from assay_stream.forensics.compare import Comparison, Difference
from assay_stream.forensics.evidence_record import Recorded, of_lines
from assay_stream.forensics.replay import replay

AlertFiles = Annotated[
    list[Path] | None, typer.Option("--alerts", help="Alerts (NDJSON). Without them alerts are not compared.")
]
_INPUTS = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)


def compare(
    evidence: EvidenceFiles = None,
    alerts: AlertFiles = None,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
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
    settings = load_settings(
        redaction_enable=redaction_enable,
        redaction_disable=redaction_disable,
        redaction_names=redaction_names,
        bootstrap_servers=bootstrap_servers,
    )
    if not from_kafka:
        _compare_with_replay(settings, inputs or [], evidence or [], alerts, target)
        return
    from assay_stream.stream.dump import dump_topics

    quiet_client_logs()
    with TemporaryDirectory(prefix="assay-stream-compare-") as folder:
        names = ("observed.ndjson", "evidence.ndjson", "alerts.ndjson")
        observed, recorded, alerted = (Path(folder) / name for name in names)
        files = [(observed, _INPUTS), (recorded, (Role.EVIDENCE,)), (alerted, (Role.ALERTS,))]
        asyncio.run(dump_topics(settings, files))
        _compare_with_replay(settings, [observed], [recorded], [alerted], target)


def compare_folder(
    settings: Settings,
    folder: Path,
    inputs: Sequence[Path],
    evidence: Sequence[Path],
    alerts: Sequence[Path] | None,
) -> None:
    """Hold what a replay has just written to a folder against what was recorded, and print the differences.

    Args:
        settings: the operator's settings.
        folder: where ``assay-stream replay`` wrote to.
        inputs: what was replayed.
        evidence: files of recorded evidence.
        alerts: files of recorded alerts, ``None`` where these are not to be compared.
    """
    replayed = (
        Output(role=role, key=None, value=line)
        for role, name in ((Role.ALERTS, "alerts.ndjson"), (Role.EVIDENCE, "evidence.ndjson"))
        for _, line in input_lines(folder / name)
    )
    _print(_comparison(settings, inputs), replayed, evidence, alerts, RowFormat.TABLE)


def _compare_with_replay(
    settings: Settings,
    inputs: Sequence[Path],
    evidence: Sequence[Path],
    alerts: Sequence[Path] | None,
    target: RowFormat,
) -> None:
    replayed = replay(
        _records(inputs),
        producer=Producer(version=__version__, git=settings.git_commit),
        redaction=settings.redaction(),
        call_profile=settings.call_profile,
    )
    _print(_comparison(settings, inputs), replayed, evidence, alerts, target)


def _comparison(settings: Settings, inputs: Sequence[Path]) -> Comparison:
    return Comparison(
        partial(_records, inputs), redaction=settings.redaction(), call_profile=settings.call_profile
    )


def _print(
    comparison: Comparison,
    replayed: Iterable[Output],
    evidence: Sequence[Path],
    alerts: Sequence[Path] | None,
    target: RowFormat,
) -> None:
    recorded = _recorded(evidence)
    count = 0
    for difference in comparison.differences(replayed, recorded, None if alerts is None else _alerts(alerts)):
        count += 1
        row = difference.as_json()
        typer.echo(json_line(row) if target is RowFormat.JSON else _line(difference, row))
    summary: dict[str, Any] = {
        "identical": dict(comparison.identical),
        "differences": count,
        "causes": dict(sorted(comparison.causes.items())),
    }
    typer.echo(json_line({"summary": summary}), err=True)
    if alerts is None:
        say("alerts were not compared: give them with --alerts")
    if count:
        raise typer.Exit(1)


def _line(difference: Difference, row: dict[str, Any]) -> str:
    parts = [
        f"{difference.what:<8}",
        f"{','.join(difference.causes):<18}",
        f"{cell(row.get('call', difference.record_id)):<32}",
        f"{cell(difference.server_id)} {cell(difference.tool_name)}",
        *(cell(path) for path in difference.paths),
        *(f"joined without {cell(origin.as_json())}" for origin in difference.left_out),
    ]
    return "  ".join(parts).rstrip()


def _records(paths: Sequence[Path]) -> Iterator[Record]:
    return (record for path in paths for record in read_file(path))


def _recorded(paths: Sequence[Path]) -> Iterator[Recorded]:
    return (
        record for path in paths for record in of_lines((line for _, line in input_lines(path)), name=path.name)
    )


def _alerts(paths: Sequence[Path]) -> Iterator[bytes | None]:
    for path in paths:
        for number, line in input_lines(path):
            record = record_line_parts(line, Origin(topic=path.name, partition=0, offset=number - 1))
            yield line if record is None else record.value
