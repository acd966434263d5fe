"""``assay-stream alerts``: exporting from a file, and what forwarding refuses before it starts."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from assay_stream.alerts.view import AlertRow
from assay_stream.cli import store_sources
from assay_stream.files.lines import record_line
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, Page, Paging
from tests.support.alerts import alert_of, alert_records, finding_of
from tests.support.command import invoke, run_command_text
from tests.support.readmodel import history

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
        assert f"{archive}, line 4: not_an_alert" in done.stderr
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


# --- triage ---------------------------------------------------------------------------------------------------


@pytest.fixture
def alerts(tmp_path: Path) -> Path:
    path = tmp_path / "alerts.ndjson"
    told = [alert_of("tool", server_id=f"server-{number}") for number in range(4)] + [alert_of("other", after=None)]
    path.write_bytes(b"".join(orjson.dumps(alert) + b"\n" for alert in told))
    return path


def uid_of(alerts: Path) -> str:
    uid: str = json.loads(alerts.read_text().splitlines()[0])["finding_info"]["uid"]
    return uid


@pytest.mark.parametrize(
    ("act", "options", "more"),
    [
        ("acknowledge", ("--reason", "on it"), {"reason": "on it"}),
        ("assign", ("--to", "bob", "--reason", "knows it"), {"reason": "knows it", "assignee": "bob"}),
        ("comment", ("--reason", "asked the vendor"), {"reason": "asked the vendor"}),
        ("close", ("--reason", "a test"), {"reason": "a test"}),
        ("reopen", ("--reason", "it was none"), {"reason": "it was none"}),
    ],
)
def test_each_act_is_a_control_record(
    tmp_path: Path, alerts: Path, act: str, options: tuple[str, ...], more: dict[str, str]
) -> None:
    """With the whole uid, the alert's server, author and reason."""
    path = tmp_path / "decisions.ndjson"
    arguments = (uid_of(alerts)[:10], *options, "--author", "ann", "--input", str(alerts), "--output", str(path))
    done = run_command_text("alerts", act, *arguments)
    assert done.returncode == 0, done.stderr
    did = "open already" if act == "reopen" else f"{act.removesuffix('e')}ed"
    assert done.stderr.startswith(f"assay-stream: {did}: {uid_of(alerts)[:12]} (")
    event = json.loads(path.read_text())
    assert event["type"] == f"assay.control.alert.{act}"
    assert event["data"] == {"server_id": "server-0", "alert": uid_of(alerts), "author": "ann", **more}


@pytest.mark.parametrize(
    ("act", "is_closed", "told"),
    [("close", True, "closed already: "), ("reopen", False, "open already: "), ("acknowledge", True, "no change")],
)
def test_an_act_that_changes_nothing_does_not_claim_to(tmp_path: Path, act: str, is_closed: bool, told: str) -> None:
    path = tmp_path / "alerts.ndjson"
    path.write_bytes(orjson.dumps(alert_of() | ({"activity_id": 3} if is_closed else {})))
    arguments = ("--reason", "x", "--input", str(path), "--output", str(tmp_path / "decisions.ndjson"))
    assert told in run_command_text("alerts", act, uid_of(path)[:10], *arguments).stderr


def test_an_alert_that_nobody_knows_is_refused(tmp_path: Path, alerts: Path) -> None:
    path = tmp_path / "decisions.ndjson"
    arguments = ("--reason", "x", "--input", str(alerts), "--output", str(path))
    done = run_command_text("alerts", "close", "0" * 12, *arguments)
    assert (done.returncode, path.exists()) == (2, False)
    assert "unknown_uid" in done.stderr


def test_one_change_on_many_servers_is_one_line(alerts: Path) -> None:
    """It names the first servers and counts the others; ``--each`` shows every alert."""
    lines = run_command_text("alerts", "list", "--input", str(alerts)).stdout.splitlines()
    [line] = [line for line in lines if "server-0" in line]
    assert "server-0, server-1, server-2 and 1 more" in " ".join(line.split())
    each = run_command_text("alerts", "list", "--input", str(alerts), "--each").stdout
    assert sum(f"server-{number}" in each for number in range(4)) == 4


def test_an_alert_about_a_prompt_is_listed_by_its_name(tmp_path: Path) -> None:
    """As in its own page and in what is forwarded; an alert about nothing in particular has none."""
    path = tmp_path / "alerts.ndjson"
    path.write_bytes(json.dumps(alert_of(None, kind=Kind.PROMPT_CHANGED, item_name="review")).encode() + b"\n")
    head, line = run_command_text("alerts", "list", "--input", str(path)).stdout.splitlines()[:2]
    assert line[head.index("about") :].startswith("review ")
    arguments = ("--reason", "x", "--input", str(path), "--output", str(tmp_path / "decisions.ndjson"))
    assert "(prompt_changed, server/review)" in run_command_text("alerts", "close", uid_of(path), *arguments).stderr


def test_closing_one_of_a_group_says_how_many_stay(tmp_path: Path, alerts: Path) -> None:
    """The list shows them in one line, so that whoever closes its uid may take them for closed."""
    arguments = ("--reason", "x", "--input", str(alerts), "--output", str(tmp_path / "decisions.ndjson"))
    told = run_command_text("alerts", "close", uid_of(alerts)[:10], *arguments).stderr
    assert "other open alerts of this change, unaffected: 3 (`assay-stream alerts list --each` has their uids)" in told


def test_json_has_every_alert_with_its_group(alerts: Path) -> None:
    done = run_command_text("alerts", "list", "--input", str(alerts), "--format", "json")
    groups = [json.loads(line)["group"] for line in done.stdout.splitlines()]
    assert len(groups) == 5
    assert len(set(groups)) == 2


# --- suppression ----------------------------------------------------------------------------------------------


HERE = ("--server-id", "server", "--id", "rule-1", "--reason", "noise", "--author", "ann")


def decided(path: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    result = run(*arguments, "--output", path)
    assert result.exit_code == 0, result.output
    event = json.loads(path.read_bytes())
    return event["type"].removeprefix("assay.control."), event["data"]


def test_a_rule_is_set_with_all_it_says(tmp_path: Path) -> None:
    options = ("--tool", "read_*", "--kind", "tool_changed", "--field", "title", "--until", "2999-03-01T10:00:00Z")
    kind, data = decided(tmp_path / "o", "suppress", *HERE, *options)
    assert kind == "suppression.set"
    assert data["until"].startswith("2999-03-01T10:00:00")
    del data["until"]
    assert data == {
        "server_id": "server",
        "id": "rule-1",
        "tool": "read_*",
        "kind": "tool_changed",
        "field": "title",
        "author": "ann",
        "reason": "noise",
    }


def test_a_rule_may_be_for_what_one_agent_finds(tmp_path: Path) -> None:
    _, data = decided(tmp_path / "o", "suppress", *HERE, "--detection", "denied_burst")
    assert data["detection"] == "denied_burst"


def test_what_is_left_out_is_not_in_the_rule(tmp_path: Path) -> None:
    """It applies to all then; a rule may be for every server."""
    _, data = decided(tmp_path / "o", "suppress", *HERE, "--server-id", "*")
    assert data == {"server_id": "*", "id": "rule-1", "author": "ann", "reason": "noise"}


def test_a_rule_is_taken_back(tmp_path: Path) -> None:
    kind, data = decided(tmp_path / "o", "unsuppress", *HERE)
    assert (kind, data["id"], data["server_id"]) == ("suppression.remove", "rule-1", "server")


def test_a_field_that_mcp_does_not_define_is_warned_of(tmp_path: Path) -> None:
    """A slip would cover nothing; the rule is set all the same, since servers have fields of their own."""
    slip = run("suppress", *HERE, "--field", "titel", "--output", tmp_path / "o")
    assert slip.exit_code == 0
    assert "not a field that MCP defines" in slip.stderr
    assert "no field" not in run("suppress", *HERE, "--field", "title", "--output", tmp_path / "p").stderr


def test_it_claims_no_more_than_it_knows(tmp_path: Path) -> None:
    """What was written stays as it is; for a decision in a file, no broker is asked whether there is such a rule."""
    assert "from its next record on" in run("suppress", *HERE, "--output", tmp_path / "o").stderr
    assert "if there is one" in run("unsuppress", *HERE, "--output", tmp_path / "o").stderr


def test_rules_in_force_are_listed_with_who_set_them(tmp_path: Path) -> None:
    """Neither those that were replaced or taken back, nor those that are over; for a server also those of all."""
    setting = [
        ("suppress", *HERE, "--kind", "tool_changed", "--field", "title"),
        ("suppress", *HERE, "--server-id", "*", "--id", "all", "--until", "2999-03-01T10:00:00Z"),
        ("suppress", *HERE, "--id", "gone"),
        ("unsuppress", *HERE, "--id", "gone"),
        ("suppress", *HERE, "--server-id", "other"),
    ]
    files = [tmp_path / f"{number}.ndjson" for number in range(6)]
    assert [run(*words, "--output", file).exit_code for words, file in zip(setting, files, strict=False)] == [0] * 5
    over = json.loads(files[0].read_bytes())
    over |= {"id": "over", "data": over["data"] | {"id": "over", "until": "2026-01-01T00:00:00Z"}}
    files[5].write_text(json.dumps(over))
    inputs = [word for file in files for word in ("--input", file)]
    rows = [json.loads(line) for line in run("rules", *inputs, "--json").stdout.splitlines()]
    assert [f"{row['server_id']}/{row['rule_id']}" for row in rows] == ["*/all", "other/rule-1", "server/rule-1"]
    assert {name: rows[2][name] for name in ("kind", "field", "author", "reason", "until")} == {
        "kind": "tool_changed", "field": "title", "author": "ann", "reason": "noise", "until": None,
    }  # fmt: skip
    assert rows[0]["until"].startswith("2999-03-01T10:00:00")
    table = run("rules", *inputs, "--server-id", "server").stdout
    assert ("all" in table, "other" in table) == (True, False)
    nothing = run("rules", "--input", files[3])
    assert (nothing.exit_code, nothing.stderr.endswith("nothing to show\n")) == (0, True)


@pytest.mark.parametrize(
    ("options", "covered"),
    [
        ((), "every alert about server, without end"),
        (
            ("--server-id", "*", "--until", "2999-03-01T10:00:00Z"),
            "every alert about every server, until 2999-03-01T10:",
        ),
        (
            ("--kind", "tool_changed", "--tool", "r*"),
            "alerts about server with --kind tool_changed, --tool r*, without end",
        ),
        (
            ("--field", "title", "--detection", "bot"),
            "alerts about server with --field title, --detection bot, without end",
        ),
    ],
)
def test_a_rule_says_what_it_covers_and_for_how_long(options: tuple[str, ...], covered: str, tmp_path: Path) -> None:
    """A rule without restrictions silences a server for good: whoever forgot one should notice."""
    done = run("suppress", *HERE, *options, "--output", tmp_path / "o")
    assert done.stderr.startswith(f"assay-stream: suppressed by rule-1: {covered}")


def test_an_alert_that_is_seen_again_meanwhile_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages of a store that is being filled the list takes."""
    with schema.writing(tmp_path) as connection:
        fill(connection, [record for record in history() if record.role is Role.ALERTS])
    ask = Store.alerts

    def asked(store: Store, wanted: AlertFilter, paging: Paging) -> Page[AlertRow]:
        found = ask(store, wanted, paging)
        with schema.writing(tmp_path) as connection:
            connection.execute(
                "UPDATE alert SET severity = 7 WHERE uid = (SELECT uid FROM alert ORDER BY severity, last_ms LIMIT 1)"
            )
        return found

    monkeypatch.setattr(Store, "alerts", asked)
    monkeypatch.setattr(store_sources, "STORE_PAGE_ROWS_MAX", 2)
    done = run("list", "--store", tmp_path, "--status", "all", "--format", "json")
    uids = [json.loads(line)["uid"] for line in done.stdout.splitlines()]
    assert len(uids) == len(set(uids)) > 4
    assert f"{len(uids)} open" in done.stderr
