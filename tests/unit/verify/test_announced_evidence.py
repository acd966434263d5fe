"""Evidence of announced changes and of attributed junk, held against the logs: verify, trace and explanation."""

from __future__ import annotations

from assay_stream.model.record import Origin, Role
from assay_stream.replay.log_cut import LATE_SNAPSHOT, Explanation
from assay_stream.verify.verification import RecordStatus
from tests.acceptance.test_attribution_dialogue import by, fleet
from tests.acceptance.test_binding_dialogue import FIRST, SECOND, Dialogue
from tests.property.test_verify_laws import statuses, verified
from tests.support.events import an_announcement, record_of
from tests.unit.replay.test_log_cut import explained, lists


def judged(talk: Dialogue) -> list[RecordStatus]:
    written = talk.joined_in_order().of(Role.EVIDENCE)
    return statuses(verified([output.value or b"" for output in written], talk.records, partitions=1))


def test_what_was_written_between_an_announcement_and_a_list_holds() -> None:
    talk = Dialogue().lists(1, FIRST).calls(1.5).announces(2).calls(2.5).announces(3).calls(3.5)
    assert judged(talk.lists(4, SECOND).calls(5)) == [RecordStatus.HOLDS] * 4


def test_what_was_written_behind_junk_holds_by_the_headers_of_the_log() -> None:
    talk = fleet()
    talk.garbles(1, by("proxy-1")).garbles(2)
    for name in ("proxy-1", "proxy-2", "old-proxy", "new-proxy"):
        talk.calls(3, observer_id=name)
    assert judged(talk) == [RecordStatus.HOLDS] * 4


def test_a_call_that_was_joined_before_an_announcement_arrived_is_late() -> None:
    known = [lists(0, "one")]
    late = record_of(Role.SNAPSHOTS, an_announcement(number=1, second=5), offset=1)
    origin = Origin(topic="mcp.tools.list", partition=0, offset=1)
    assert explained([*known, late], known) == Explanation(found=True, left_out=(origin,), causes=(LATE_SNAPSHOT,))
