"""Where a replay takes its records from, and which."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from assay_stream.cli import shared
from assay_stream.cli.sources import RangeOptions, make_source
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka import ranges as log_ends
from assay_stream.model.record import Role
from assay_stream.replay.order import Selection
from tests.support.command import invoke
from tests.support.errors import raises_code
from tests.support.events import SERVER, TOOL, Story

SETTINGS = load_settings()
ENDS = {Role.CALLS: {0: 5, 1: 6}, Role.SNAPSHOTS: {0: 2, 1: 0, 2: 0}, Role.CONTROL: {0: 0}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Story().lists(TOOL).calls().calls().write(tmp_path / "in.ndjson")


@pytest.mark.parametrize(("files", "from_kafka"), [(None, False), ([], False), ([Path("x")], True)])
def test_files_or_topics_are_read_and_not_both(files: list[Path] | None, from_kafka: bool) -> None:
    with raises_code("no_source", kind=ConfigurationError):
        make_source(files, from_kafka, Selection(), SETTINGS)


def test_what_decides_the_records_is_told_for_who_goes_on(file: Path) -> None:
    """A file by its name, size and time; a file that is gone is an error."""
    source = make_source([file], False, RangeOptions(offsets=["calls:0=1..2"], server_ids=["s"]).selection(), SETTINGS)
    told = source.what()
    assert told["offsets"] == [["calls", 0, 1, 2]]
    assert told["server_ids"] == ["s"]
    assert [name for name, _, _ in told["inputs"]] == [str(file)]
    file.write_bytes(file.read_bytes() + b"\n")
    assert source.what() != told
    file.unlink()
    with raises_code("unreadable_file"):
        source.what()


def test_topics_are_read_as_far_as_was_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their partitions are counted there, and brokers and prefix decide what is read."""

    async def note(_: Settings, roles: object) -> dict[Role, dict[int, int]]:
        assert roles == log_ends.READ
        return ENDS

    monkeypatch.setattr(shared, "open_admin", lambda *_, **__: nullcontext())
    monkeypatch.setattr(log_ends, "note_ends", note)
    source = make_source(None, True, Selection(), SETTINGS, snapshot_partitions=9)
    assert (source.partitions, source.ends) == (3, ENDS)
    assert source.what()["bootstrap_servers"] == SETTINGS.bootstrap_servers
    other = {**ENDS, Role.CALLS: {0: 1}}
    assert make_source(None, True, Selection(), SETTINGS, ends=other).ends == other


@pytest.mark.parametrize(
    "command",
    [
        ("evidence", "list"),
        ("evidence", "list", "--server-id", "nobody"),
        ("evidence", "search", "call-1"),
        ("tools", "list"),
        ("coverage",),
        ("asof", "--server-id", SERVER),
        ("timeline", "--server-id", SERVER),
        ("trace", "--tool-call-id", "nobody's"),
        ("policy", "plan", "--server-id", SERVER, "--enforcement", "block"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(file: Path, command: tuple[str, ...]) -> None:
    """A query goes on without it, and ends with a code of its own: what the line holds may be what was looked for."""
    intact = invoke(*command, "--input", str(file))
    assert "in.ndjson" not in intact.stderr
    file.write_bytes(file.read_bytes() + b'{"specversion":"1.0","type":"mcp.tool.call.dec')
    done = invoke(*command, "--input", str(file))
    assert done.exit_code == 3
    assert "in.ndjson/0/3: not_json" in done.stderr
    assert done.stdout == intact.stdout


def test_a_line_that_is_no_evidence_is_named(tmp_path: Path, file: Path) -> None:
    assert invoke("replay", "--input", str(file), "--output", str(tmp_path / "out")).exit_code == 0
    evidence = tmp_path / "out" / "evidence.ndjson"
    evidence.write_bytes(evidence.read_bytes()[:-9])
    done = invoke("evidence", "list", "--evidence", str(evidence), "--json")
    assert (done.exit_code, len(done.stdout.splitlines())) == (3, 1)
    assert f"{evidence}, line 2: not_evidence" in done.stderr


def test_verify_and_compare_name_a_line_of_their_input_that_cannot_be_read(tmp_path: Path, file: Path) -> None:
    """It is not that somebody deleted or altered what the evidence is about."""
    assert invoke("replay", "--input", str(file), "--output", str(tmp_path / "out")).exit_code == 0
    evidence = tmp_path / "out" / "evidence.ndjson"
    given = ("--evidence", str(evidence), "--input", str(file))
    assert invoke("verify", *given).exit_code == 0
    file.write_bytes(file.read_bytes() + b'{"specversion":"1.0","type":"mcp.tool.call.dec')
    compared = invoke("compare", *given)
    assert (compared.exit_code, "in.ndjson/0/3: not_json" in compared.stderr) == (3, True)
    file.write_bytes(b"{broken")
    gone = invoke("verify", *given)
    assert (gone.exit_code, "in.ndjson/0/0: not_json" in gone.stderr, "renamed" in gone.stderr) == (3, True, True)


def test_verify_names_the_line_that_is_no_evidence(tmp_path: Path, file: Path) -> None:
    (tmp_path / "broken.ndjson").write_bytes(b"{broken")
    done = invoke("verify", "--evidence", str(tmp_path / "broken.ndjson"), "--input", str(file))
    assert (done.exit_code, "broken.ndjson" in done.stdout) == (1, True)
