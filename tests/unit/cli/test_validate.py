"""``assay-stream validate``."""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from assay_stream.schemes.handshake_event import FIELDS
from tests.support.command import run_command
from tests.support.events import a_call

VECTORS = Path(__file__).resolve().parents[2] / "data/vectors"
HANDSHAKE = json.loads((VECTORS / "handshake_tool_call.json").read_text())
PAYLOAD = json.loads((VECTORS / "assay_tool_decision_payload.json").read_text())["payload"]
GOLDEN = json.loads((VECTORS / "assay_evidence_envelope.json").read_text())["golden"]["event"]


run = partial(run_command, "validate")


def lines_of(*values: Any) -> bytes:
    return b"".join((value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n" for value in values)


def verdicts(done: subprocess.CompletedProcess[bytes]) -> list[tuple[int, bool, str | None, str | None]]:
    assert done.stderr == b""
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(line.keys() == {"line", "valid", "code", "path", "message"} for line in parsed)
    assert all((line["message"] is None) == line["valid"] for line in parsed)
    return [(line["line"], line["valid"], line["code"], line["path"]) for line in parsed]


def test_all_valid_exits_0(tmp_path: Path) -> None:
    """A file of valid events gives a verdict each, numbered as in the file."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(b"\n" + lines_of(HANDSHAKE["valid_event"]) * 2)
    done = run("--profile", "handshake", str(path))
    assert done.returncode == 0
    assert verdicts(done) == [(2, True, None, None), (3, True, None, None)]


def test_a_hyphen_is_standard_input() -> None:
    """As with the other commands that read files."""
    assert run("--profile", "handshake", "-", stdin=lines_of(HANDSHAKE["valid_event"])).returncode == 0


def test_one_invalid_line_exits_1() -> None:
    """Bad lines of every kind have their verdict, and those behind them too."""
    bad = [case["event"] for case in HANDSHAKE["invalid_events"]]
    done = run("--profile", "handshake", stdin=lines_of(*bad, b"{", b"[]", HANDSHAKE["valid_event"]))
    assert done.returncode == 1
    found = verdicts(done)
    assert [valid for _, valid, _, _ in found] == [False] * (len(bad) + 2) + [True]
    assert [code for _, _, code, _ in found[-3:]] == ["not_json", "wrong_type", None]


def test_the_published_requirements_are_a_profile_of_their_own() -> None:
    """Four fields are enough for the text, and not for the recorder."""
    required = ("trace_id", "tool_call_id", "tool_id", "tool_version")
    stdin = lines_of({name: HANDSHAKE["valid_event"][name] for name in required})
    assert run("--profile", "handshake-published", stdin=stdin).returncode == 0
    assert verdicts(run("--profile", "handshake", stdin=stdin)) == [(1, False, "missing_field", "$.type")]


def test_assay_payloads_records_and_calls() -> None:
    """All three kinds of line are told apart and checked."""
    stdin = lines_of(
        PAYLOAD,
        GOLDEN,
        a_call(),
        {name: value for name, value in PAYLOAD.items() if name != "tool_definition_digest"},
        GOLDEN | {"data": {}},
        a_call(decision="maybe"),
        a_call(profile="handshake"),
    )
    done = run("--profile", "assay", stdin=stdin)
    assert done.returncode == 1
    assert verdicts(done) == [
        (1, True, None, None),
        (2, True, None, None),
        (3, True, None, None),
        (4, False, "half_definition_cluster", "$"),
        (5, False, "content_hash_mismatch", "$.assaycontenthash"),
        (6, False, "unknown_value", "$.data.decision"),
        (7, False, "missing_field", "$.data.trace_id"),
    ]


def test_htc_envelopes() -> None:
    """Requests and responses are held against the schema."""
    request = {
        "schema_version": "htc-1.0",
        **{name: HANDSHAKE["valid_event"][name] for name in ("tool_call_id", "trace_id", "tool_id", "tool_version")},
        "actor": {"kind": "agent"},
        "args": {},
        "dry_run": False,
    }
    done = run("--profile", "htc", stdin=lines_of(request, request | {"args": {"a": "x" * 32_768}}))
    assert verdicts(done) == [(1, True, None, None), (2, False, "payload_too_large", "$.args")]


def test_an_empty_file_says_so() -> None:
    done = run("--profile", "assay", stdin=b"\n \n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"standard input is empty: nothing was checked" in done.stderr


def test_verdicts_quote_nothing() -> None:
    """No value of the input stands in the output, whichever field it stood in."""
    events = [HANDSHAKE["valid_event"] | {name: "hunter2 !"} for name in FIELDS]
    done = run("--profile", "handshake", stdin=lines_of(*events))
    assert done.returncode == 1
    assert b"hunter2" not in done.stdout + done.stderr
