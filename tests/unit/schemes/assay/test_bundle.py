"""The events of a bundle: what may stand in one, and how it stands there."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from assay_stream.errors import InputError
from assay_stream.limits.storage import BundleLimits
from assay_stream.schemes.assay.bundle import check_event, event_line, producer_of, run_event, written_time
from tests.support.exports import evidence, sealed

EVENT: dict[str, Any] = orjson.loads(evidence())


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"specversion": "0.3"}, "$.specversion"),
        ({"type": None}, "$.type"),
        ({"assaygit": 7}, "$.assaygit"),
        ({"assaypii": "no"}, "$.assaypii"),
        ({"subject": 7}, "$.subject"),
        ({"traceparent": []}, "$.traceparent"),
        ({"source": "somewhere"}, "$.source"),
        ({"source": ":x"}, "$.source"),
    ],
)
def test_an_envelope_that_assay_cannot_read_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        check_event(orjson.loads(sealed(EVENT | changes)))
    assert (caught.value.code, caught.value.path) == ("not_evidence", path)


@pytest.mark.parametrize("event", [None, [], "x", {}])
def test_something_else_is_refused(event: object) -> None:
    with pytest.raises(InputError) as caught:
        check_event(event)
    assert caught.value.code == "not_evidence"


@pytest.mark.parametrize("change", [{"data": {}}, {"type": "other"}, {"subject": "other"}, {"assaycontenthash": None}])
def test_content_that_is_not_the_hashs_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        check_event(EVENT | change)
    assert caught.value.code == "content_hash_mismatch"


def test_an_event_without_data_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        check_event({name: value for name, value in EVENT.items() if name != "data"})
    assert caught.value.code == "content_hash_mismatch"


def test_the_run_is_not_covered_by_the_content_hash() -> None:
    assert check_event(run_event(EVENT, run_id="r", seq=7)) == check_event(EVENT)


def test_a_run_replaces_the_one_before() -> None:
    moved = run_event(run_event(EVENT, run_id="a", seq=9), run_id="b", seq=1)
    assert (moved["id"], moved["assayrunid"], moved["assayseq"]) == ("b:1", "b", 1)


def test_a_commit_that_is_not_known_is_left_out_of_the_manifest() -> None:
    assert producer_of(EVENT) == {"name": "assay-stream", "version": "1.2.3"}
    assert producer_of(EVENT | {"assaygit": "abc"})["git"] == "abc"


def test_a_long_line_is_refused() -> None:
    line = event_line(EVENT)
    assert event_line(EVENT, limits=BundleLimits(line_bytes_max=len(line))) == line
    with pytest.raises(InputError) as caught:
        event_line(EVENT, limits=BundleLimits(line_bytes_max=len(line) - 1))
    assert caught.value.code == "bundle_limit"


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("2026-11-21T02:06:00Z", "2026-11-21T02:06:00Z"),
        ("2026-11-21T02:06:00.000000Z", "2026-11-21T02:06:00Z"),
        ("2026-11-21T02:06:00.175000Z", "2026-11-21T02:06:00.175Z"),
        ("2026-11-21T02:06:00.1Z", "2026-11-21T02:06:00.100Z"),
        ("2026-11-21T02:06:00.000001Z", "2026-11-21T02:06:00.000001Z"),
        ("2026-11-21T02:06:00.0000000019Z", "2026-11-21T02:06:00.000000001Z"),
        ("2026-11-21T04:06:00.5+02:00", "2026-11-21T02:06:00.500Z"),
        ("2026-11-21t02:06:00z", "2026-11-21T02:06:00Z"),
    ],
)
def test_times_are_printed_as_assays_writer_prints_them(given: str, printed: str) -> None:
    assert written_time(given) == printed
    assert written_time(printed) == printed


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-21T02:06:00", "0001-01-01T00:00:00+01:00"]
)
def test_a_time_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        written_time(text)
    assert caught.value.code == "bad_time"
