"""Output of ``assay-stream seal verify``: a table for people, one JSON object for programs."""

from typing import Any

import typer

from assay_stream.files.seal_files import FileLogs
from assay_stream.seal.check import Fault, Report
from assay_stream.text.visible import shown
from assay_stream.verify.seals import SealOutcome

_ROW = "{:<40} {:>10} {:>8} {:>9} {:>9} {:>12} {:>10} {:>7}"
_RESTORE = "find the later copy of evidence and checkpoints, and who put this one in its place"
_FIXES = {
    "partition_missing": "the whole partition was sealed, and its checkpoints are gone: " + _RESTORE,
    "partitions_missing": "the topic has lost partitions: " + _RESTORE,
    "tail_cut": "the end of what was sealed is gone: " + _RESTORE,
    "sealed_offset_ahead": "the end of what was sealed is gone: " + _RESTORE,
    "sibling_head_differs": "the partition has another past than when its siblings were sealed: " + _RESTORE,
    "expected_head_differs": "the partition has another past than the one that is expected: " + _RESTORE,
}
"""What to do about a head that is wrong."""
_SUMMARY = {
    SealOutcome.HOLDS: "holds: what is sealed and still there is as it was sealed; unsealed records are not covered",
    SealOutcome.BROKEN: "broken",
    SealOutcome.PARTLY_SEALED: "partly sealed: what is sealed holds, and there are partitions with evidence of which "
    "nothing is sealed: seal them (assay-stream seal --once), and find out why if they were sealed before",
    SealOutcome.NOTHING_VERIFIED: "nothing verified: nothing is sealed, or retention deleted all that was",
}


def as_json(outcome: SealOutcome, reports: list[Report], files: list[FileLogs]) -> dict[str, Any]:
    return {
        "result": outcome.value,
        "logs": [
            {
                "topic": report.topic,
                "partition": report.partition,
                "checkpoints": report.checkpoints,
                "sealed_to": report.sealed_to,
                "sealed_size": report.tree_size,
                "root": str(report.roots[report.tree_size]) if report.tree_size else None,
                "verified": report.verified,
                "expired": report.expired,
                "unsealed": report.unsealed,
                "faults_count": report.faults_count,
                "faults": [_fault_as_json(fault) for fault in report.faults],
            }
            for report in reports
        ],
        "bad_lines_count": sum(logs.bad_lines_count for logs in files),
        "bad_lines": [line._asdict() for logs in files for line in logs.bad_lines],
    }


def _fault_as_json(fault: Fault) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": fault.kind, "offset": fault.offset, "code": fault.code}
    if fault.kind == "head":
        row |= {"detail": fault.detail, "fix": _FIXES[fault.code]}
    return row


def print_table(outcome: SealOutcome, reports: list[Report], files: list[FileLogs]) -> None:
    typer.echo(_ROW.format("LOG", "VERIFIED", "SEALED", "EXPIRED", "UNSEALED", "CHECKPOINTS", "SEALED TO", "FAULTS"))
    for report in reports:
        sealed_to = "-" if report.sealed_to is None else report.sealed_to
        counts = (report.verified, report.tree_size, report.expired, report.unsealed, report.checkpoints, sealed_to)
        typer.echo(_ROW.format(_name(report), *counts, report.faults_count))
    for report in reports:
        for fault in report.faults:
            typer.echo(f"{fault.kind:<10} {_name(report)} {_place(fault)}")
        if report.faults_count > len(report.faults):
            typer.echo(f"and {report.faults_count - len(report.faults)} more in {_name(report)}")
    for logs in files:
        for line in logs.bad_lines:
            typer.echo(f"unreadable {shown(line.file)} line {line.line}")
        if logs.bad_lines_count > len(logs.bad_lines):
            typer.echo(f"and {logs.bad_lines_count - len(logs.bad_lines)} more such lines")
    typer.echo(_SUMMARY[outcome])


def _place(fault: Fault) -> str:
    if fault.kind == "head":
        return f"offset {fault.offset}: {fault.code}: {shown(fault.detail)}. {_FIXES[fault.code]}"
    return f"checkpoint record {fault.offset}: {fault.code}" if fault.code else f"offset {fault.offset}"


def _name(report: Report) -> str:
    return f"{shown(report.topic) or '(unknown)'}/{report.partition}"
