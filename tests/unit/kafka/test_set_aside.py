"""Reading back which records were set aside."""

from __future__ import annotations

import pytest

from assay_stream.kafka.set_aside import marked, set_aside_place
from assay_stream.model.record import Headers, Origin, Record, Role, rejected, set_aside_error

PLACE = Origin("mcp.tools.list", 1, 7)


def a_rejected(*own: tuple[str, bytes]) -> Record:
    """The rejected copy of a record that was set aside, with headers of its own."""
    output = rejected(Record(Role.SNAPSHOTS, PLACE, b"k", b"v", own), set_aside_error())
    return Record(Role.REJECTED, Origin("assay.rejected", 0, 0), output.key, output.value, output.headers)


def test_the_copy_names_the_place() -> None:
    """Headers that the record had before do not count."""
    assert set_aside_place(a_rejected()) == PLACE
    assert set_aside_place(a_rejected(("error.code", b"not_json"), ("error.offset", b"9"))) == PLACE


@pytest.mark.parametrize(
    "headers", [(), (("error.code", b"not_json"),), (("error.code", b"record_kills_worker"), ("error.topic", b"t"))]
)
def test_other_copies_name_none(headers: Headers) -> None:
    """Refused for something else, or not by us."""
    assert set_aside_place(a_rejected()._replace(headers=headers)) is None


def test_records_are_marked_by_their_place() -> None:
    """And no other."""
    records = [Record(Role.SNAPSHOTS, PLACE._replace(offset=offset), None, None) for offset in (6, 7)]
    assert [record.set_aside for record in marked(records, frozenset({PLACE}))] == [False, True]
    assert marked(records, frozenset()) == records
