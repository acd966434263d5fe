"""What the readers of recorded traffic share."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from assay_stream.errors import InputError
from assay_stream.observe.recorded import StableIds, numbered, parse_rfc3339, report
from tests.support.mcp_dialogue import THE_VANTAGE


@pytest.mark.parametrize(
    "text", ["2026-11-21T02:06:07Z", "2026-11-21t03:06:07.000+01:00", "2026-11-21T02:06:07.000000000-00:00"]
)
def test_rfc3339_times_are_read(text: str) -> None:
    """In every spelling that the standard allows."""
    assert parse_rfc3339(text, path="$.ts") == datetime(2026, 11, 21, 2, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-11-21", "2026-11-21T02:06:07", "2026-02-30T00:00:00Z", "20261121T020607Z", 1_795_226_767, None]
)
def test_other_times_are_refused(text: object) -> None:
    """A time without its offset is no moment."""
    with pytest.raises(InputError, match=r"bad_time at \$\.ts"):
        parse_rfc3339(text, path="$.ts")


def test_ids_depend_on_every_line_so_far_and_on_nothing_else() -> None:
    """So a log that grew gives the old ids for its old lines."""
    one, other, changed = StableIds(THE_VANTAGE), StableIds(THE_VANTAGE), StableIds(THE_VANTAGE)
    for ids, line in ((one, b"a"), (other, b"a"), (changed, b"b")):
        ids.line(line)
    assert one() == other()
    assert one() == other() != changed()
    assert one() != one()


def test_errors_name_their_line_and_are_collected_or_raised() -> None:
    """The caller chooses."""
    errors: list[InputError] = []
    report(InputError("bad", "mend it", path="$.x"), 3, errors.append)
    assert str(errors[0]) == "bad at $.x: line 3: mend it"
    with pytest.raises(InputError, match="line 4"):
        report(InputError("bad", "mend it"), 4, None)


def test_blank_lines_are_counted_but_not_given() -> None:
    """So numbers are those of the file."""
    assert list(numbered(iter([b"a\n", b"\r\n", b"  ", b"b"]))) == [(1, b"a"), (4, b"b")]
