"""``assay-stream alerts``: exporting from a file, and what forwarding refuses before it starts."""

import json
from functools import partial
from pathlib import Path

import pytest

from assay_stream.files.record_line import record_line
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record
from tests.support.alerts import alert_records, finding_of
from tests.support.command import invoke

FINDINGS = [
    finding_of("a", offset=0),
    finding_of("b", offset=1, server_id="other", kind=Kind.PIN_MISMATCH),
    finding_of("c", offset=2, kind=Kind.TOOL_REMOVED, time_us=1_772_323_300_000_000),
]


run = partial(invoke, "alerts")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "alerts.ndjson"
    path.write_bytes(b"".join((record.value or b"") + b"\n" for record in alert_records(*FINDINGS)))
    return str(path)


def kinds(*arguments: str) -> list[str]:
    done = run("export", "--format", "jsonl", *arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line)["kind"] for line in done.stdout.splitlines()]


def test_an_export_to_ocsf_keeps_the_records(file: str) -> None:
    """One JSON object a line: the members of the record, and more beside them."""
    lines = run("export", "--input", file).stdout.splitlines()
    for line, stored in zip(lines, Path(file).read_text().splitlines(), strict=True):
        record, written = json.loads(stored), json.loads(line)
        assert all(written[name] == record[name] for name in record.keys() - {"finding_info", "unmapped"})
        assert all(written[name].items() >= record[name].items() for name in ("finding_info", "unmapped"))


@pytest.mark.parametrize(
    ("target", "lines"), [("ocsf-1.9", 3), ("ecs", 3), ("hec", 3), ("asim", 3), ("cef", 3), ("jsonl", 3), ("sarif", 1)]
)
def test_every_format_can_be_asked_for(file: str, target: str, lines: int) -> None:
    """A line for each alert; SARIF is one document."""
    done = run("export", "--format", target, "--input", file)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, lines)


def test_alerts_can_be_asked_for(file: str) -> None:
    """By server, by severity and by time, and by all of them at once."""
    assert kinds("--input", file, "--server-id", "other") == ["pin_mismatch"]
    assert kinds("--input", file, "--severity", "high") == ["tool_changed", "pin_mismatch"]
    assert kinds("--input", file, "--since", "2026-03-01T00:01:00Z") == ["tool_removed"]
    assert kinds("--input", file, "--since", "2026-03-01T00:01:00Z", "--severity", "high") == []


def test_standard_input_can_be_read(file: str) -> None:
    done = run("export", "--format", "cef", "--input", "-", input=Path(file).read_text())
    assert done.stdout.count("CEF:0|") == 3


def test_an_archive_can_be_read(file: str, tmp_path: Path) -> None:
    """Each line of it is a record with its place in the log; what is no alert, or damaged, is named."""
    alerts = [recorded(output, offset) for offset, output in enumerate(alert_records(*FINDINGS))]
    archive = tmp_path / "alerts-0.ndjson"
    lines = [*map(record_line, alerts), record_line(alerts[0]._replace(value=b"{}")), b'{"origin":{}}']
    archive.write_bytes(b"".join(line + b"\n" for line in lines))
    exported, listed = run("export", "--input", archive), run("list", "--format", "json", "--input", archive)
    assert exported.stdout == run("export", "--input", file).stdout
    assert listed.stdout == run("list", "--format", "json", "--input", file).stdout
    for done in (exported, listed):
        assert done.exit_code == 2
        assert "line 4: not_an_alert" in done.stderr
        assert "line 5: bad_record_line" in done.stderr


def recorded(output: Output, offset: int) -> Record:
    place = Origin("assay.alerts", 0, offset)
    return Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms or 0)


def test_a_bad_line_is_named_and_the_good_ones_are_written(file: str) -> None:
    """With its number; the exit code says that something was left out."""
    done = run("export", "--input", "-", input="{}\n" + Path(file).read_text() + "x\n")
    assert done.exit_code == 2
    assert len(done.stdout.splitlines()) == 3
    assert "line 1: not_an_alert" in done.stderr
    assert "line 5: not_json" in done.stderr
