"""Decisions as events."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.model.control import KEY_REVOKE_TYPE, PIN_REMOVE_TYPE, PIN_SET_TYPE, POLICY_SET_TYPE
from assay_stream.observe import Observation
from assay_stream.observe.recorded import decision_event

NOW = datetime(2026, 11, 21, 2, 6, 7, 386_001, tzinfo=UTC)
PIN = {
    "server_id": "the server",
    "tool_name": "t",
    "scheme": "assay.p60",
    "value": "sha256:" + "a" * 64,
    "author": "ann",
    "reason": "reviewed",
}


def a_decision(kind: str = PIN_SET_TYPE, *, author: str = "ann", at: datetime = NOW, **data: Any) -> Observation:
    return decision_event(kind, PIN | data, author=author, event_id="event-1", decided_at=at)


def test_a_decision_is_a_cloudevent_with_the_server_as_its_key() -> None:
    """It counts from the moment it was made, to the microsecond."""
    event = a_decision()
    assert (event.kind, event.key, event.timestamp_ms) == ("control", b"the server", 1_795_226_767_386)
    assert json.loads(event.value) == {
        "specversion": "1.0",
        "type": "assay.control.pin.set",
        "source": "urn:assay-stream:operator:ann",
        "id": "event-1",
        "time": "2026-11-21T02:06:07.386001Z",
        "datacontenttype": "application/json",
        "data": PIN,
    }


def test_an_author_may_have_any_letters() -> None:
    event = json.loads(a_decision(author="Ann Öz/ops").value)
    assert event["source"] == "urn:assay-stream:operator:Ann%20%C3%96z%2Fops"


def test_what_is_none_is_left_out() -> None:
    """An optional field that is not given."""
    event = a_decision(PIN_REMOVE_TYPE, value=None)
    assert "value" not in json.loads(event.value)["data"]


@pytest.mark.parametrize(
    ("kind", "data", "path"),
    [
        (PIN_SET_TYPE, {"value": None}, "$.data.value"),
        (PIN_SET_TYPE, {"scheme": "md5"}, "$.data.scheme"),
        (PIN_SET_TYPE, {"tool_name": ""}, "$.data.tool_name"),
        (PIN_SET_TYPE, {"server_id": " "}, "$.data.server_id"),
        (PIN_SET_TYPE, {"reason": None}, "$.data.reason"),
        (PIN_SET_TYPE, {"reason": "\udcff"}, "$.data.reason"),
        (PIN_SET_TYPE, {"server_id": "a\udcff"}, "$.data.server_id"),
        (POLICY_SET_TYPE, {"enforcement": "shout", "unknown": "warn"}, "$.data.enforcement"),
        (KEY_REVOKE_TYPE, {"fingerprint": "sha256:abc"}, "$.data.fingerprint"),
    ],
)
def test_what_the_stream_would_refuse_is_refused_here(kind: str, data: dict[str, Any], path: str) -> None:
    """With the path of what is wrong, and without quoting it."""
    with pytest.raises(InputError) as caught:
        a_decision(kind, **data)
    assert caught.value.path == path


def test_an_author_that_is_no_text_is_refused() -> None:
    """As a shell passes on bytes that are no UTF-8."""
    with pytest.raises(InputError, match="lone_surrogate"):
        a_decision(author="\udcff")
