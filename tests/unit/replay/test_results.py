"""Results of a replay in a folder, and the point from which an interrupted one goes on."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.spool import Log
from assay_stream.model.record import Origin, Output, Record, Role, rejected
from assay_stream.replay import run as module
from assay_stream.replay.order import LogPosition
from assay_stream.replay.run import FILES, PROGRESS_FILE, Results, ResumePoint, Tally, noted_ends
from tests.support.disk import synced_sizes
from tests.support.errors import raises_code

WHAT = {"version": "1", "inputs": [["a", 1]]}
CALLS = Log(Role.CALLS, "calls", 0)
POINT = ResumePoint(
    logs=[(CALLS, LogPosition(7, 1_000), 8)], alerts={"uid": {"count": 1}}, findings=3, ticked_us=5, time_us=6
)


def an_output(role: Role, value: bytes, key: bytes = b"k") -> Output:
    return Output(role=role, key=key, value=value, label=role.value)


def lines(folder: Path) -> dict[str, list[bytes]]:
    return {name: (folder / name).read_bytes().splitlines() for name in FILES.values()}


def unfinished(folder: Path) -> dict[str, list[bytes]]:
    return {name: (folder / f"{name}.part").read_bytes().splitlines() for name in FILES.values()}


def interrupted(folder: Path) -> None:
    with Results(folder, WHAT, ends={Role.CALLS: {0: 9}}) as results:
        results.start()
        results.write(an_output(Role.EVIDENCE, b"one"))
        results.write(an_output(Role.ALERTS, b"two"))
        results.resume_point(POINT)
        results.write(an_output(Role.EVIDENCE, b"three"))


def refusal(folder: Path, what: dict[str, Any] = WHAT) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught, Results(folder, what) as results:
        results.resume()
    return caught.value


def test_each_result_stands_in_the_file_of_its_role(tmp_path: Path) -> None:
    (tmp_path / "evidence.ndjson").write_bytes(b"old\n")
    (tmp_path / PROGRESS_FILE).write_bytes(b"{}")
    with Results(tmp_path, WHAT) as results:
        results.start()
        for role in (Role.EVIDENCE, Role.DEFINITIONS, Role.DEFINITIONS, Role.FINDINGS, Role.CHANGES):
            results.write(an_output(role, role.value.encode()))
        results.end()
    assert lines(tmp_path) == {
        "evidence.ndjson": [b"evidence"],
        "alerts.ndjson": [],
        "definitions.ndjson": [b"definitions"],
        "changes.ndjson": [b"changes"],
        "rejected.ndjson": [],
    }
    assert results.tally.written == {"evidence": 1, "alerts": 0, "definitions": 1, "changes": 1, "rejected": 0}
    assert not (tmp_path / PROGRESS_FILE).exists()


def test_results_are_on_the_disk_before_they_take_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure leaves a file under its own name whole, or not there."""
    on_disk = synced_sizes(monkeypatch)
    with Results(tmp_path, WHAT) as results:
        results.start()
        results.write(an_output(Role.EVIDENCE, b"one"))
        results.end()
    assert all(on_disk[path.stat().st_ino] == path.stat().st_size for path in tmp_path.iterdir())


def test_going_on_cuts_the_files_to_the_last_resume_point(tmp_path: Path) -> None:
    interrupted(tmp_path)
    assert noted_ends(tmp_path) == {Role.CALLS: {0: 9}}
    with Results(tmp_path, WHAT) as results:
        assert results.resume() == POINT
        assert results.tally.written["evidence"] == 1
        results.write(an_output(Role.EVIDENCE, b"again"))
        results.end()
    assert lines(tmp_path)["evidence.ndjson"] == [b"one", b"again"]
    assert lines(tmp_path)["alerts.ndjson"] == [b"two"]


def test_a_resumed_replay_leaves_out_what_an_undisturbed_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSED_RECORDS_MAX", 3)
    refused = [
        rejected(Record(Role.CALLS, Origin("calls", 0, offset), None, b"x"), InputError("not_json", "x"))
        for offset in range(9)
    ]
    for cut in range(10):
        folder = tmp_path / str(cut)
        with Results(folder, WHAT) as results:
            results.start()
            for output in refused[:cut]:
                results.write(output)
            results.resume_point(POINT)
            results.write(refused[0])
        with Results(folder, WHAT) as results:
            assert results.resume() == POINT
            for output in refused[cut:]:
                results.write(output)
            results.end()
        written = [orjson.loads(line) for line in lines(folder)["rejected.ndjson"]]
        assert [line["error"]["offset"] for line in written] == ["0", "1", "2", "3"]
        assert written[-1]["headers"] == [["assay-left-out", "6"]]


def test_where_nothing_was_interrupted_there_is_nothing_to_resume_from(tmp_path: Path) -> None:
    assert noted_ends(tmp_path) is None
    with Results(tmp_path, WHAT) as results:
        assert results.resume() is None


def test_other_options_or_inputs_are_refused_and_named(tmp_path: Path) -> None:
    interrupted(tmp_path)
    error = refusal(tmp_path, {"version": "2", "inputs": [["a", 1]], "more": 1})
    assert error.code == "resume_differs"
    assert "more, version" in error.message


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"version":1,"what":{},"checkpoint":{}}', b'{"version":2,"what":[]}']
)
def test_a_progress_file_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    interrupted(tmp_path)
    (tmp_path / PROGRESS_FILE).write_bytes(content)
    before = unfinished(tmp_path)
    assert refusal(tmp_path).code == "bad_progress_file"
    with raises_code("bad_progress_file", kind=ConfigurationError):
        noted_ends(tmp_path)
    assert unfinished(tmp_path) == before


def test_a_progress_file_of_another_version_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path)
    told = orjson.loads((tmp_path / PROGRESS_FILE).read_bytes())
    (tmp_path / PROGRESS_FILE).write_bytes(orjson.dumps(told | {"version": 99}))
    assert refusal(tmp_path).code == "bad_progress_file"


def test_a_file_that_is_shorter_than_it_was_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path)
    (tmp_path / "alerts.ndjson.part").write_bytes(b"")
    error = refusal(tmp_path)
    assert error.code == "bad_progress_file"
    assert "alerts.ndjson" in error.message


def test_a_tally_counts_by_role_and_by_label() -> None:
    tally = Tally()
    taken = [tally.takes(an_output(Role.DEFINITIONS, b"", key)) for key in (b"one", b"two", b"one")] + [
        tally.takes(an_output(Role.FINDINGS, b""))
    ]
    assert taken == [True, True, False, False]
    assert (tally.written["definitions"], tally.what) == (2, {"definitions": 2, "findings": 1})
