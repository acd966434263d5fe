"""The events of a bundle: what may stand in one, and how it stands there."""

import tarfile
from typing import Any, Literal

import orjson
import pytest

from assay_stream.canonical.digest import Digest
from assay_stream.limits import BundleLimits
from assay_stream.schemes.assay_bundle import (
    Manifest,
    Member,
    check_event,
    event_line,
    read_manifest,
    read_tar_header,
    run_event,
    tar_header,
    written_time,
)
from tests.support.errors import raises_code
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
    with raises_code("not_evidence", path):
        check_event(orjson.loads(sealed(EVENT | changes)))


@pytest.mark.parametrize("event", [None, [], "x", {}])
def test_something_else_is_refused(event: object) -> None:
    with raises_code("not_evidence"):
        check_event(event)


@pytest.mark.parametrize("change", [{"data": {}}, {"type": "other"}, {"subject": "other"}, {"assaycontenthash": None}])
def test_content_that_is_not_the_hashs_is_refused(change: dict[str, Any]) -> None:
    with raises_code("content_hash_mismatch"):
        check_event(EVENT | change)


def test_an_event_without_data_is_refused() -> None:
    with raises_code("content_hash_mismatch"):
        check_event({name: value for name, value in EVENT.items() if name != "data"})


def test_a_run_replaces_the_one_before() -> None:
    moved = run_event(run_event(EVENT, run_id="a", seq=9), run_id="b", seq=1)
    assert (moved["id"], moved["assayrunid"], moved["assayseq"]) == ("b:1", "b", 1)


def test_a_long_line_is_refused() -> None:
    line = event_line(EVENT)
    assert event_line(EVENT, limits=BundleLimits(line_bytes_max=len(line))) == line
    with raises_code("bundle_limit"):
        event_line(EVENT, limits=BundleLimits(line_bytes_max=len(line) - 1))


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
    with raises_code("bad_time"):
        written_time(text)


MANIFEST = Manifest(
    run_id="r",
    event_count=2,
    run_root=Digest("a" * 64),
    producer={"name": "p", "version": "1"},
    events_digest=Digest("b" * 64),
    events_bytes=99,
)
CONTENT: dict[str, Any] = orjson.loads(MANIFEST.encode())
FILE: dict[str, Any] = CONTENT["files"]["events.ndjson"]


def test_further_members_and_a_bare_digest_are_read() -> None:
    """As Assay reads them: an extension, a producer without a commit, a digest without its prefix."""
    content = CONTENT | {
        "x-assay": {"a": 1},
        "producer": CONTENT["producer"] | {"git": None},
        "files": {"events.ndjson": FILE | {"sha256": "b" * 64}},
    }
    assert read_manifest(orjson.dumps(content)) == MANIFEST


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schema_version": 2}, "$.schema_version"),
        ({"schema_version": True}, "$.schema_version"),
        ({"algorithms": {}}, "$.algorithms"),
        ({"algorithms": None}, "$.algorithms"),
        ({"files": {}}, "$.files"),
        ({"files": CONTENT["files"] | {"more": FILE}}, "$.files"),
        ({"files": {"events.ndjson": FILE | {"path": "/etc/passwd"}}}, "$.files"),
        ({"files": {"events.ndjson": FILE | {"bytes": "9"}}}, "$.files['events.ndjson'].bytes"),
        ({"files": {"events.ndjson": FILE | {"sha256": "B" * 64}}}, "$.files['events.ndjson'].sha256"),
        ({"event_count": 0}, "$.event_count"),
        ({"run_root": "x"}, "$.run_root"),
        ({"bundle_id": "sha256:" + "0" * 64}, "$.bundle_id"),
        ({"producer": {"name": 7}}, "$.producer"),
        ({"run_id": None}, "$.run_id"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(changes: dict[str, Any], path: str) -> None:
    with raises_code("bundle_manifest", path):
        read_manifest(orjson.dumps(CONTENT | changes))


def test_more_events_than_a_bundle_may_have_are_refused_at_once() -> None:
    with raises_code("bundle_limit"):
        read_manifest(orjson.dumps(CONTENT | {"event_count": 100_001}))


MEMBER = Member("events.ndjson", 1_234_567)


def test_another_reader_reads_our_header() -> None:
    info = tarfile.TarInfo.frombuf(tar_header(MEMBER), "ascii", "strict")
    assert (info.name, info.size, info.mode, info.mtime) == ("events.ndjson", 1_234_567, 0o644, 0)
    assert (info.uid, info.gid, info.uname, info.gname, info.isreg()) == (0, 0, "assay", "assay", True)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_we_read_the_headers_of_others(form: Literal[0, 1]) -> None:
    info = tarfile.TarInfo("events.ndjson")
    info.size = 1_234_567
    assert read_tar_header(info.tobuf(form)) == MEMBER
    assert read_tar_header(tar_header(MEMBER)) == MEMBER


def test_zeros_are_the_end() -> None:
    """A block of zeros announces nothing."""
    assert read_tar_header(bytes(512)) is None


@pytest.mark.parametrize("position", [0, 130, 150, 156, 260])
def test_a_damaged_header_is_refused(position: int) -> None:
    block = bytearray(tar_header(MEMBER))
    block[position] ^= 1
    with raises_code("bundle_member"):
        read_tar_header(bytes(block))


def test_a_size_beyond_octal_is_refused() -> None:
    info = tarfile.TarInfo("events.ndjson")
    info.size = 2**40
    with raises_code("bundle_member"):
        read_tar_header(info.tobuf(tarfile.GNU_FORMAT))


def altered(where: slice, content: bytes) -> bytes:
    block = bytearray(tar_header(MEMBER))
    block[where] = content
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "size",
    [b"    4553207\0", b"4553207\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\0\0\0", b"000045532077", b"00004553208\0"],
    ids=["blanks", "short", "empty", "twelve digits", "not octal"],
)
def test_a_size_that_is_not_eleven_octal_digits_is_refused(size: bytes) -> None:
    """Readers differ in what they make of it, so Assay refuses it, and so do we."""
    with raises_code("bundle_member"):
        read_tar_header(altered(slice(124, 136), size))


@pytest.mark.parametrize("start", [157, 251, 345, 506], ids=["link", "its end", "prefix", "its end and padding"])
def test_a_plain_file_with_a_link_name_or_prefix_is_refused(start: int) -> None:
    """In a plain file the fields are room for what no digest covers."""
    with raises_code("bundle_member") as caught:
        read_tar_header(altered(slice(start, start + 6), b"hidden"))
    assert "link name or a name prefix" in caught.value.message
