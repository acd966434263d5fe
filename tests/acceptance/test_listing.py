"""A gateway shows calls only; ``list-watch`` lists its servers: what the two add up to."""

import json
import sys
from datetime import UTC, datetime
from itertools import count

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.observe import Observation
from assay_stream.report.coverage import CoverageCounts
from assay_stream.report.pins import Row
from assay_stream.verify.evidence import Recorded
from tests.support.ingest import a_call
from tests.support.listing import listed_once
from tests.support.replaying import replay

SERVER = {"command": [sys.executable, "-m", "tests.support.scripted_lister_server", "good"]}


def called(number: int) -> Observation:
    return a_call(number, observer="gateway", server="the-server", observed_at=datetime.now(UTC), tool_name="tool_0")


def told(observations: list[Observation]) -> tuple[list[str | None], dict[str, Row]]:
    offsets = {role: count() for role in Role}
    records = [
        Record(
            each.role,
            Origin(each.role.value, 0, next(offsets[each.role])),
            each.key,
            each.value,
            each.headers,
            each.timestamp_ms,
        )
        for each in observations
    ]
    coverage, scopes = CoverageCounts(), []
    for record in records:
        if record.role is Role.SNAPSHOTS:
            coverage.take_snapshot(record)
    for output in replay(records, producer=Producer(version="1")):
        if output.role is Role.EVIDENCE:
            coverage.take_evidence(Recorded("here", output.value or b""))
            scopes.append(json.loads(output.value or b"")["data"]["binding"]["scope"])
    return scopes, {row["name"]: row for row in coverage.rows(silent_after_us=10**12)}


async def test_calls_of_a_gateway_are_bound_to_the_lists_of_a_lister() -> None:
    before = called(1)
    listing = await listed_once(SERVER)
    scopes, rows = told([before, *listing.sink.observations, called(2)])
    assert scopes == ["none", "server"]
    assert rows["gateway"]["gaps"] == ["calls_only", "calls_unlisted"]
    assert rows["lister"]["gaps"] == ["lists_only"]
    assert (rows["the-server"]["gaps"], rows["the-server"]["bound_share"]) == (["calls_unlisted"], 0.5)
    assert told([*listing.sink.observations, called(2)])[1]["the-server"]["gaps"] == []
