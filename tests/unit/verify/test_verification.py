"""The judgement on a record of evidence, by what is wrong with it or missing."""

from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.record import Origin, Record, Role
from assay_stream.replay.log_cut import LATE_SNAPSHOT, Explanation, history_of
from assay_stream.schemes import assay_tool as assay
from assay_stream.verify.evidence import EvidenceSelection, Recorded, of_record
from assay_stream.verify.verification import (
    Coverage,
    Expect,
    Judgement,
    RecordStatus,
    Summary,
    Verifier,
    judgements,
    late_only,
)
from tests.acceptance.test_attribution_dialogue import by, fleet
from tests.acceptance.test_binding_dialogue import FIRST, SECOND, Dialogue
from tests.property.test_verify_laws import statuses, verified
from tests.support.controls import a_control
from tests.support.events import TOOL, Story, an_announcement, record_of
from tests.unit.replay.test_log_cut import explained, lists

OTHER = {**TOOL, "description": "Another one"}


@pytest.fixture(name="story")
def a_story() -> Story:
    story = Story().lists(TOOL)
    pin = a_control("pin.set", second=1, tool_name="read_file", scheme="assay.v1", value="0" * 64)
    return story.raw(Role.CONTROL, pin).calls()


def evidence_of(story: Story) -> list[bytes]:
    return [output.value or b"" for output in story.tell().of(Role.EVIDENCE)]


def judged(values: list[bytes], records: list[Record], **options: Any) -> list[Judgement]:
    selection = options.pop("selection", EvidenceSelection())
    verifier = Verifier(history_of(lambda: records), **options)
    evidence = [Recorded(f"line {number}", value) for number, value in enumerate(values)]
    return list(judgements(verifier, evidence, lambda: records, selection=selection))


def changed(value: bytes, path: str, new: Any, *, hashed: bool = True) -> bytes:
    content = orjson.loads(value)
    *parents, last = path.split(".")
    place = content
    for name in parents:
        place = place[name]
    place[last] = new
    if hashed:
        content["assaycontenthash"] = str(assay.content_hash(content))
    return canonicalize(content)


def test_white_space_and_order_of_members_do_not_matter(story: Story) -> None:
    [value] = evidence_of(story)
    content = orjson.loads(value)
    printed = orjson.dumps(dict(reversed(content.items())), option=orjson.OPT_INDENT_2)
    assert judged([printed], story.records)[0].status is RecordStatus.HOLDS


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("data.decision", "deny", "call_differs"),
        ("data.reason_code", "P_OTHER", "call_differs"),
        ("data.zz", 1, "call_differs"),
        ("id", "0" * 64, "call_differs"),
        ("time", "2026-03-01T10:00:03.000000Z", "call_differs"),
        ("subject", "write_file", "call_differs"),
        ("source", "urn:somebody", "envelope_differs"),
        ("specversion", "1.1", "envelope_differs"),
        ("assaysecrets", True, "producer_differs"),
        ("assayproducer", "somebody", "producer_differs"),
        ("data.binding.scope", "exact", "binding_differs"),
        ("data.binding.snapshot_id", "snapshot-9", "binding_differs"),
        ("data.binding.full_digest", "sha256:" + "0" * 64, "digest_differs"),
        ("data.tool_definition_digest", "sha256:" + "0" * 64, "digest_differs"),
        ("data.tool_identity.schema_hash", "sha256:" + "0" * 64, "digest_differs"),
        ("data.unbound_reason", "tool_not_listed", "unbound_reason_differs"),
        ("data.pin.status", "match", "pin_differs"),
        ("data.signature", {"valid": True}, "signature_differs"),
        ("data.redaction", "sha256:" + "0" * 64, "redaction_differs"),
        ("type", "assay.tool.other", "not_evidence"),
    ],
)
def test_what_is_wrong_has_its_code_and_path(story: Story, path: str, new: Any, code: str) -> None:
    [value] = evidence_of(story)
    [judgement] = judged([changed(value, path, new)], story.records)
    assert (judgement.status, judgement.codes) == (RecordStatus.WRONG, (code,))


def test_a_path_never_shows_what_somebody_wrote(story: Story) -> None:
    [value] = evidence_of(story)
    [judgement] = judged([changed(value, "data.\x1b[2J", 1)], story.records)
    assert judgement.paths == ("$.data",)


def test_a_content_hash_that_does_not_fit_is_told_first(story: Story) -> None:
    """Whatever else differs: the record contradicts itself."""
    [value] = evidence_of(story)
    [judgement] = judged([changed(value, "data.decision", "deny", hashed=False)], story.records)
    assert judgement.codes == ("content_hash_mismatch",)


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"\xff", b'{"data":1}', b'{"a":1,"a":2}'])
def test_what_is_no_evidence_is_said_to_be_none(story: Story, value: bytes) -> None:
    [judgement] = judged([value], story.records)
    assert (judgement.status, judgement.codes) == (RecordStatus.WRONG, ("not_evidence",))


def test_a_key_that_stands_there_twice_is_no_evidence(story: Story) -> None:
    """What two readers read in two ways is refused, also where the last one would hold."""
    [value] = evidence_of(story)
    doubled = value.replace(b'"decision":"allow"', b'"decision":"deny","decision":"allow"')
    assert judged([doubled], story.records)[0].codes == ("not_evidence",)


def test_a_call_that_is_refused_has_no_evidence(story: Story) -> None:
    [value] = evidence_of(story)
    records = [record._replace(value=b"{}") if record.role is Role.CALLS else record for record in story.records]
    assert judged([value], records)[0].codes == ("call_refused",)


def test_a_call_beyond_the_end_of_its_log_never_was(story: Story) -> None:
    """Retention deletes beginnings only: where the log's start is known, this is wrong, not gone."""
    value = changed(evidence_of(story)[0], "data.origin.offset", 7)
    [judgement] = judged([value], story.records, starts={("calls", 0): 3})
    assert (judgement.status, judgement.codes) == (RecordStatus.WRONG, ("origin_missing",))


@pytest.mark.parametrize(
    ("role", "start", "code"), [(Role.CALLS, 3, "call_gone"), (Role.SNAPSHOTS, 1, "snapshot_gone")]
)
def test_what_retention_deleted_is_gone_and_named(story: Story, role: Role, start: int, code: str) -> None:
    records = [record for record in story.records if record.role is not role]
    [judgement] = judged(evidence_of(story), records, starts={(role.value, 0): start})
    assert (judgement.status, judgement.codes) == (RecordStatus.GONE, (code,))
    assert judgement.missing == (Origin(role.value, 0, 0),)


def test_what_is_wrong_in_the_call_is_wrong_although_the_snapshot_is_gone(story: Story) -> None:
    records = [record for record in story.records if record.role is not Role.SNAPSHOTS]
    value = changed(evidence_of(story)[0], "data.decision", "deny")
    [judgement] = judged([value], records, starts={("snapshots", 0): 1})
    assert judgement.status is RecordStatus.WRONG
    assert "call_differs" in judgement.codes


def test_a_call_cut_short_by_the_hold_limit_holds() -> None:
    """No log says how long a worker waited: ``definition_unavailable`` is what it gives, and so it holds."""
    story = Story().lists(TOOL)
    early = Story().calls(second=1).records[0]
    [value] = evidence_of(Story().calls())
    waited = changed(value, "data.unbound_reason", "definition_unavailable")
    assert judged([waited], [*story.records, early])[0].status is RecordStatus.HOLDS


def test_a_record_joined_without_a_late_list_is_late_and_names_it() -> None:
    before = Story().lists(TOOL).raw(Role.CALLS, Story().lists().lists().calls().records[2].value)
    [value] = evidence_of(before)
    late = Story().lists(TOOL).lists(OTHER).records
    [judgement] = judged([value], [*late, before.records[1]])
    assert (judgement.status, judgement.left_out) == (RecordStatus.LATE, (Origin("snapshots", 0, 1),))
    assert late_only(judgement).codes == ("joined_without",)


def test_only_expected_producers_are_taken(story: Story) -> None:
    """Version and commit are the producer's own word, so an operator may say which there were."""
    values = evidence_of(story)
    assert judged(values, story.records, producers=("0.1.0",))[0].status is RecordStatus.HOLDS
    assert judged(values, story.records, producers=("0.1.0@unknown",))[0].status is RecordStatus.HOLDS
    assert judged(values, story.records, producers=("0.2.0",))[0].codes == ("producer_differs",)


def test_a_record_of_the_log_has_its_key_time_headers_and_partition(story: Story) -> None:
    [output] = story.tell().of(Role.EVIDENCE)
    place = Origin("assay.tool.decision", 0, 0)
    record = Record(Role.EVIDENCE, place, output.key, output.value, output.headers, output.timestamp_ms)
    verifier = Verifier(history_of(lambda: story.records))
    call = story.records[-1]
    for right, candidate in (
        (True, record),
        (False, record._replace(key=b"server-b")),
        (False, record._replace(timestamp_ms=1)),
        (False, record._replace(headers=())),
        (False, record._replace(origin=place._replace(partition=1))),
    ):
        [judgement] = verifier.check([(of_record(candidate), call)])
        assert (judgement.codes == ()) is right
        assert right or judgement.codes == ("record_differs",)


def test_the_summary_counts_and_gives_the_exit_code(story: Story) -> None:
    [value] = evidence_of(story)
    verifier = Verifier(history_of(lambda: story.records))
    codes = []
    summary = Summary()
    nameless = value.replace(b'"assayproducerversion"', b'"x"').replace(b'"assaygit"', b'"y"')
    altered = changed(value, "data.origin.topic", "elsewhere"), changed(value, "data.decision", "deny")
    for one in (value, *altered, nameless):
        evidence = [Recorded("line", one)]
        for judgement in judgements(verifier, evidence, lambda: story.records):
            summary.note(judgement)
        codes.append(summary.exit_code)
    assert codes == [0, 3, 1, 1]
    summary.note_producers(verifier.written_by)
    told = summary.as_json()
    assert (told["records"], told["holds"], told["gone"], told["wrong"]) == (4, 1, 1, 2)
    assert told["codes"] == dict.fromkeys(("call_differs", "call_gone", "envelope_differs", "producer_differs"), 1)
    assert told["producers"] == {"0.1.0@unknown": 2}


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (EvidenceSelection(), [0, 1]),
        (EvidenceSelection(server_id="server-b"), []),
        (EvidenceSelection(from_offset=1), [1]),
        (EvidenceSelection(to_offset=1), [0]),
        (EvidenceSelection(partition=3), []),
        (EvidenceSelection(since_us=1_772_359_202_000_000), [1]),
        (EvidenceSelection(until_us=1_772_359_201_000_000), [0]),
        (EvidenceSelection(evidence_id="none"), []),
    ],
)
def test_only_what_is_asked_for_is_judged(selection: EvidenceSelection, chosen: list[int]) -> None:
    story = Story().lists(TOOL).calls().calls()
    found = judged(evidence_of(story), story.records, selection=selection)
    assert [judgement.evidence.call.offset for judgement in found if judgement.evidence.call] == chosen


@pytest.mark.parametrize(
    ("selection", "path", "new"),
    [
        (EvidenceSelection(server_id="server-a"), "data.server_id", "server-b"),
        (EvidenceSelection(since_us=1_772_359_201_000_000), "time", "2020-01-01T00:00:00Z"),
    ],
)
def test_evidence_altered_to_be_passed_over_is_missing(selection: EvidenceSelection, path: str, new: str) -> None:
    """It names the call, and another server or time than was asked for: so the call has none that was."""
    story = Story().lists(TOOL).calls().calls()
    first, second = evidence_of(story)
    verifier = Verifier(history_of(lambda: story.records))
    given = [Recorded("line 0", changed(first, path, new)), Recorded("line 1", second)]
    found = list(
        judgements(verifier, given, lambda: story.records, selection=selection, coverage=Coverage(Expect.JOINED))
    )
    assert [(judgement.status, judgement.codes) for judgement in found] == [
        (RecordStatus.HOLDS, ()),
        (RecordStatus.MISSING, ("evidence_missing",)),
    ]


# --- which calls must have evidence ---------------------------------------------------------------------------

PLACE = ("mcp.tools.call", 0)


def at(offset: int) -> Origin:
    return Origin(*PLACE, offset)


def test_a_call_before_one_with_evidence_is_due() -> None:
    coverage = Coverage(Expect.JOINED, {PLACE: 2})
    coverage.note(at(7))
    assert coverage.is_missing(at(6))
    assert not coverage.is_missing(at(8))
    assert coverage.pending == 1


def test_where_evidence_is_out_of_order_what_the_join_committed_tells() -> None:
    """A re-routed call may still wait while later ones have evidence."""
    coverage = Coverage(Expect.JOINED, {PLACE: 2})
    coverage.note(at(7))
    coverage.note(at(3))
    assert not coverage.is_missing(at(6))
    assert coverage.is_missing(at(1))


def test_without_committed_offsets_evidence_is_all_that_tells() -> None:
    coverage = Coverage(Expect.JOINED)
    coverage.note(at(7))
    coverage.note(at(3))
    assert coverage.is_missing(at(6))


# --- evidence of announced changes and of attributed junk, held against the logs: verify, trace and explanation ---


def judged_in_order(talk: Dialogue) -> list[RecordStatus]:
    written = talk.joined_in_order().of(Role.EVIDENCE)
    return statuses(verified([output.value or b"" for output in written], talk.records, partitions=1))


def test_what_was_written_between_an_announcement_and_a_list_holds() -> None:
    talk = Dialogue().lists(1, FIRST).calls(1.5).announces(2).calls(2.5).announces(3).calls(3.5)
    assert judged_in_order(talk.lists(4, SECOND).calls(5)) == [RecordStatus.HOLDS] * 4


def test_what_was_written_behind_junk_holds_by_the_headers_of_the_log() -> None:
    talk = fleet()
    talk.garbles(1, by("proxy-1")).garbles(2)
    for name in ("proxy-1", "proxy-2", "old-proxy", "new-proxy"):
        talk.calls(3, observer_id=name)
    assert judged_in_order(talk) == [RecordStatus.HOLDS] * 4


def test_a_call_that_was_joined_before_an_announcement_arrived_is_late() -> None:
    known = [lists(0, "one")]
    late = record_of(Role.SNAPSHOTS, an_announcement(number=1, second=5), offset=1)
    origin = Origin(topic="mcp.tools.list", partition=0, offset=1)
    assert explained([*known, late], known) == Explanation(found=True, left_out=(origin,), causes=(LATE_SNAPSHOT,))
