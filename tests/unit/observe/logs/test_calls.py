"""What the readers of all logs share."""

import pytest

from assay_stream.errors import InputError
from assay_stream.observe.logs.calls import duration_of, safe_error_code
from tests.support.logs import read


@pytest.mark.parametrize(
    "timestamp", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
def test_times_at_the_ends_of_the_calendar_are_refused(timestamp: str) -> None:
    """Where a duration or an offset leads out of it."""
    line = {"timestamp": timestamp, "event_type": "ToolInvocationCompleted", "provider_id": "p", "tool_name": "t"}
    with pytest.raises(InputError, match="bad_time"):
        read("hangar", line | {"duration_ms": 1_000})


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ("-32601", "jsonrpc_-32601"),
        (-32601, "jsonrpc_-32601"),
        ("tool_error", "tool_error"),
        ("TimeoutError", "TimeoutError"),
        ("cannot read /home/alice", "error"),
        (None, "error"),
        (True, "error"),
    ],
)
def test_an_error_code_quotes_nothing(stated: object, code: str) -> None:
    """Words that a log may have from anywhere become one."""
    assert safe_error_code(stated) == code


@pytest.mark.parametrize("stated", [-1, True, "1", float("nan"), float("inf"), 10**30, None])
def test_what_is_no_duration_is_none(stated: object) -> None:
    """Then the start of the call is not observed."""
    assert duration_of(stated) is None
