"""The status of an answer, and what it says about trying again."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter

from assay_stream.errors import InputError
from assay_stream.ingest.requests import RequestRefused
from assay_stream.ingest.service import HeldRoom, IngestOutcome, Room, answer, refusal
from assay_stream.model.rejected import IngestAnswer, RequestRefusal

ACCEPTED, DUPLICATE, AWAY = IngestOutcome("accepted"), IngestOutcome("duplicate"), IngestOutcome("unavailable")
FOREIGN = IngestOutcome("refused", InputError("not_yours", "m", path="$.source"))
LARGE = IngestOutcome("refused", InputError("too_large", "m"))
INVALID = IngestOutcome("refused", InputError("duplicate_key", "m"), recorded=True)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([ACCEPTED, DUPLICATE, IngestOutcome("accepted", ignored=["args_hsh"])], 202),
        ([DUPLICATE, AWAY], 207),
        ([ACCEPTED, INVALID], 207),
        ([INVALID, LARGE], 413),
        ([INVALID, LARGE, FOREIGN], 403),
        ([INVALID, LARGE, FOREIGN, AWAY], 503),
        ([INVALID], 422),
    ],
)
def test_the_status_is_that_of_all_some_or_the_gravest(outcomes: list[IngestOutcome], status: int) -> None:
    """And Retry-After stands there if anything is worth trying again."""
    response = answer(outcomes)
    assert response.status == status
    assert ("Retry-After" in response.headers) == (AWAY in outcomes)
    body = response.body
    assert isinstance(body, bytes)
    TypeAdapter(IngestAnswer).validate_json(body)
    assert [each["index"] for each in json.loads(body)["outcomes"]] == list(range(len(outcomes)))


@pytest.mark.parametrize(
    ("status", "header"), [(401, "WWW-Authenticate"), (405, "Allow"), (429, "Retry-After"), (503, "Retry-After")]
)
def test_a_refusal_has_the_header_that_its_status_asks_for(status: int, header: str) -> None:
    response = refusal(status, "code", "message")
    assert header in response.headers
    assert isinstance(response.body, bytes)
    TypeAdapter(RequestRefusal).validate_json(response.body)


def test_a_request_takes_of_every_room_and_gives_it_back() -> None:
    everybody, own = Room(10), Room(5)
    held = HeldRoom((everybody, own))
    held.take(2)
    held.take(3)
    assert (everybody.left_bytes, own.left_bytes) == (5, 0)
    held.release()
    held.release()
    assert (everybody.left_bytes, own.left_bytes) == (10, 5), "once, however often it is released"


def test_where_one_room_is_full_none_is_taken_of_the_others() -> None:
    """The answer is 429, to be tried again."""
    everybody, own = Room(10), Room(5)
    with pytest.raises(RequestRefused) as refused:
        HeldRoom((everybody, own)).take(6)
    assert refused.value.status == 429
    assert (everybody.left_bytes, own.left_bytes) == (10, 5)
