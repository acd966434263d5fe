"""Lines of files: which records they become, and what is refused."""

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest

from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.files.lines import (
    EVENT_LINE_BYTES_MAX,
    lines_of,
    observation_lines,
    read_lines,
    record_line,
    rejected_line,
)
from assay_stream.limits import DEFAULT_LIMITS, LINE_BYTES_MAX
from assay_stream.model.record import Origin, Output, Record, Role, rejected
from tests.support.errors import raises_code

NOON = "2026-03-01T12:00:00Z"
NOON_MS = 1_772_366_400_000


def event(kind: str = "mcp.tools.call.observed", **changes: Any) -> bytes:
    return orjson.dumps({"specversion": "1.0", "type": kind, "time": NOON, "data": {"server_id": "s"}} | changes)


def a_line(**changes: Any) -> bytes:
    line = {
        "origin": {"topic": "prod.mcp.tools.call", "partition": 3, "offset": 99},
        "role": "calls",
        "timestamp_ms": 7,
        "key": "k",
        "headers": [["a", "1"], ["a", "2"]],
        "value": "v",
    }
    return orjson.dumps(line | changes)


def read(*lines: bytes) -> list[Record]:
    return list(read_lines(lines, name="f.ndjson"))


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("mcp.tools.call.observed", Role.CALLS),
        ("mcp.tools.list.observed", Role.SNAPSHOTS),
        ("assay.control.pin.set", Role.CONTROL),
        ("assay.control.anything", Role.CONTROL),
        ("novelty", Role.CALLS),
    ],
)
def test_an_event_line_goes_where_its_type_belongs(kind: str, role: Role) -> None:
    assert read(event(kind))[0].role is role


def test_an_event_line_is_its_bytes() -> None:
    (record,) = read(event() + b"\r\n")
    assert record == Record(
        role=Role.CALLS,
        origin=Origin(topic="f.ndjson", partition=0, offset=0),
        key=b"s",
        value=event(),
        timestamp_ms=NOON_MS,
    )


def test_blank_lines_are_skipped_and_counted() -> None:
    assert [record.origin.offset for record in read(b"\n", event(), b"", event())] == [1, 3]


def test_a_line_without_a_time_has_that_of_the_one_before() -> None:
    times = [record.timestamp_ms for record in read(b"{", event(), b"junk", event(time="no"), b"\xff")]
    assert times == [0, NOON_MS, NOON_MS, NOON_MS, NOON_MS]


@pytest.mark.parametrize("line", [b"{", b"junk", b"[1]", b"7", b"\xff\xfe", b"{" * 2_000])
def test_a_line_that_is_nothing_becomes_a_record(line: bytes) -> None:
    (record,) = read(line)
    assert (record.role, record.key, record.value) == (Role.CALLS, None, line)


def test_an_unsound_snapshot_stays_a_snapshot() -> None:
    """A list that a client would accept, but we will not, must end force: it is read leniently to know it."""
    line = event("mcp.tools.list.observed").replace(b'"time"', b'"id":NaN,"id":2,"time"')
    (record,) = read(line)
    assert (record.role, record.key, record.value) == (Role.SNAPSHOTS, b"s", line)


def test_a_record_line_says_that_its_record_was_set_aside() -> None:
    record = Record(Role.CALLS, Origin("prod.mcp.tools.call", 3, 99), b"k", b"v", (), 7, set_aside=True)
    assert orjson.loads(record_line(record))["set_aside"] is True
    assert read(record_line(record)) == [record]
    assert "set_aside" not in orjson.loads(record_line(record._replace(set_aside=False)))


def test_bytes_that_are_no_text_are_base64() -> None:
    raw = b"\xff\x00"
    text = base64.b64encode(raw).decode()
    (record,) = read(a_line(key_base64=text, value_base64=text, headers=[], headers_base64=[["h", text]]))
    assert (record.key, record.value, record.headers) == (raw, raw, (("h", raw),))


@pytest.mark.parametrize(
    "change",
    [
        {"role": "novelty"},
        {"origin": {"topic": "t"}},
        {"timestamp_ms": "soon"},
        {"timestamp_ms": None},
        {"key_base64": "?"},
        {"headers_base64": [["h", "?"]]},
        {"value_base64": 7},
        {"headers": [["only a name"]]},
        {"headers": 7},
    ],
)
def test_a_broken_record_line_is_an_error(change: dict[str, Any]) -> None:
    """An archive of ours that cannot be read is named with its line; guessing would change the evidence."""
    with raises_code("bad_record_line", match=r"line 2 of f\.ndjson"):
        read(event(), a_line(**change))


def test_a_file_is_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "day.ndjson"
    path.write_bytes(event() + b"\n" + event())
    assert [record.origin for record in read_files([path])] == [
        Origin(topic="day.ndjson", partition=0, offset=0),
        Origin(topic="day.ndjson", partition=0, offset=1),
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with raises_code("unreadable_file", match=str(path)):
            list(read_files([path]))


def refused(record: Record) -> Output:
    return rejected(record, InputError("not_json", "it is not"))


def test_a_rejected_line_keeps_bytes_that_are_no_text() -> None:
    raw = b"\xff\x00"
    text = base64.b64encode(raw).decode()
    (record,) = read(a_line())
    line = orjson.loads(rejected_line(refused(record._replace(key=None, value=raw, headers=(("h", raw),)))))
    assert (line["key"], line["value_base64"], line["headers"], line["headers_base64"]) == (
        None,
        text,
        [],
        [["h", text]],
    )


@pytest.mark.parametrize(
    "change",
    [
        b'"origin": {"topic": "t", "partition": "3", "offset": 99}',
        b'"origin": {"topic": "t", "partition": 3, "offset": 1.5}',
        b'"origin": {"topic": null, "partition": 3, "offset": 99}',
        b'"origin": {"topic": "t", "partition": -1, "offset": 99}',
        b'"timestamp_ms": 1e400',
        b'"timestamp_ms": Infinity',
        b'"role": "findings"',
        b'"role": "bindings"',
        b'"role": "evidence"',
        b'"key": 7',
        b'"value": {"a": 1}',
    ],
)
def test_a_record_line_with_a_part_of_another_kind_is_an_error(change: bytes) -> None:
    line = a_line()[:-1] + b", " + change + b"}"
    with raises_code("bad_record_line"):
        read(line)


@pytest.mark.parametrize("value", [b"first", b"", b"\xff"])
def test_a_rejected_line_can_be_read_by_its_own_record(value: bytes) -> None:
    (record,) = read(a_line())
    refused_record = record._replace(value=value, headers=(("text", b"a"), ("raw", b"\xfe"), ("text", b"b")))
    line = orjson.loads(rejected_line(refused(refused_record)))
    given = line["value"].encode() if "value" in line else base64.b64decode(line["value_base64"])
    assert given == value
    assert line["headers"] == [["text", "a"], ["text", "b"]]
    assert [(name, base64.b64decode(raw)) for name, raw in line["headers_base64"]] == [("raw", b"\xfe")]


@pytest.mark.parametrize(
    "own", [("error.code", b"an older refusal"), ("error.note", b"mine"), ("error.code", b"\xff"), ("error.", b"")]
)
def test_headers_of_the_original_called_error_are_kept(own: tuple[str, bytes]) -> None:
    """A record that had been rejected before is written whole: its own error.* headers are headers of its own."""
    (record,) = read(a_line())
    line = orjson.loads(rejected_line(refused(record._replace(headers=(own,)))))
    assert set(line["error"]) == {"code", "message", "topic", "partition", "offset"}
    assert line["error"]["code"] == "not_json"
    kept = [(name, text.encode()) for name, text in line["headers"]]
    kept += [(name, base64.b64decode(text)) for name, text in line.get("headers_base64", [])]
    assert kept == [own]


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, ()),
        (b"", b"", (("", b""),)),
        ("k\u00e9\x00\n".encode(), b'{"a": 1}\r\n', (("b", b"2"), ("a", b"1"), ("b", b"3"))),
        (b"\xff", b"\xfe\x00", (("b", b"2"), ("a", b"\xff"), ("b", b"3"), ("c", None))),
        (b"k", b"v", (("none", None), ("some", b"1"))),
    ],
)
def test_a_written_record_line_is_read_back_to_the_byte(key: Any, value: Any, headers: Any) -> None:
    record = Record(
        role=Role.EVIDENCE,
        origin=Origin(topic="t", partition=3, offset=2**63 - 1),
        key=key,
        value=value,
        headers=headers,
        timestamp_ms=7,
    )
    line = record_line(record)
    assert b"\n" not in line
    assert list(read_lines([line], name="f", roles=(Role.EVIDENCE,))) == [record]


@pytest.mark.parametrize("value", [b"\0" * 8 * 1024 * 1024, b'"' * 8 * 1024 * 1024, b"\xff" * 9 * 1024 * 1024])
def test_the_largest_record_fits_a_line_whatever_it_holds(value: bytes, tmp_path: Path) -> None:
    """Escapes would make six bytes of one: such a value is written in base64, and read as it was."""
    record = Record(Role.CALLS, Origin("t", 0, 7), b"k", value, (), 5)
    line = record_line(record)
    assert len(line) < LINE_BYTES_MAX
    path = tmp_path / "a.ndjson"
    path.write_bytes(line + b"\n")
    assert list(read_files([path])) == [record]


def test_a_list_over_the_limit_is_a_list_without_being_decoded() -> None:
    """It must end the force of the lists before it, whatever else it holds."""
    huge = event("mcp.tools.list.observed", data={"server_id": "s", "x": "x" * DEFAULT_LIMITS.record_bytes_max})
    (record,) = read(huge)
    assert (record.role, record.key) == (Role.SNAPSHOTS, b"s")
    assert record.value is not None
    assert len(record.value) == DEFAULT_LIMITS.record_bytes_max + 1


def test_a_long_record_line_that_is_none_is_an_error() -> None:
    with pytest.raises(InputError, match="bad_record_line"):
        read(b'{"origin":[' + b"[]," * (3 * 1024 * 1024) + b"[]]}")


def read_of_line_reader(raw: bytes, bytes_max: int = 4) -> tuple[list[bytes], list[str]]:
    errors: list[InputError] = []
    lines = list(lines_of(BytesIO(raw), name="f", bytes_max=bytes_max, too_long=errors.append))
    return lines, [error.message for error in errors]


@pytest.mark.parametrize("raw", [b"", b"a\nb\n", b"abc\nabc\n", b"abcd", b"\n\n", b"a\nabcd"])
def test_lines_within_the_limit_are_whole(raw: bytes) -> None:
    assert read_of_line_reader(raw) == (raw.splitlines(keepends=True), [])


def test_a_line_over_the_limit_is_cut_and_the_next_one_is_the_next() -> None:
    lines, told = read_of_line_reader(b"a\nabcdefghij\nb\n")
    assert lines == [b"a\n", b"abcd", b"b\n"]
    assert told == ["line 2 of f is over the limit of 4 bytes (it has 11): only its beginning is kept"]


def test_without_anyone_to_tell_it_is_an_error() -> None:
    with raises_code("line_too_long", match="line 1 of f is over the limit of 4 bytes: remove the line"):
        list(lines_of(BytesIO(b"abcde\n"), name="f", bytes_max=4))


@pytest.mark.parametrize(("start", "limit"), [(b'{"a":"', EVENT_LINE_BYTES_MAX), (b'{"origin":"', LINE_BYTES_MAX)])
def test_a_record_line_may_be_longer_than_an_event(start: bytes, limit: int) -> None:
    longest = start.ljust(limit - 1, b"x") + b"\n"
    assert list(observation_lines(BytesIO(longest + b"y\n"), name="f")) == [longest, b"y\n"]
    with pytest.raises(InputError, match=f"over the limit of {limit} bytes"):
        list(observation_lines(BytesIO(b"x" + longest if limit < LINE_BYTES_MAX else b" " + longest), name="f"))
