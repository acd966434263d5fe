"""The search for what was known when a call was joined."""

from typing import Any

from assay_stream.model.cloudevents import read_event
from assay_stream.model.evidence import Producer
from assay_stream.model.observation import CallEvent
from assay_stream.model.record import Origin, Record, Role, murmur2_partition
from assay_stream.replay import log_cut
from assay_stream.replay.log_cut import Explanation, Question, explain, in_log_order
from tests.support.controls import a_control
from tests.support.events import TOOL, a_call, a_snapshot, record_of
from tests.support.replaying import replay

PRODUCER = Producer(version="1")
CALL = record_of(Role.CALLS, a_call(second=9), key=None)


def lists(offset: int, description: str, *, second: float = 0) -> Record:
    tool = {**TOOL, "description": description}
    value = a_snapshot(tool, number=offset, second=second, snapshot_id=f"snapshot-{offset}")
    return record_of(Role.SNAPSHOTS, value, offset=offset)


def decides(offset: int, kind: str, **data: object) -> Record:
    return record_of(Role.CONTROL, a_control(kind, number=offset, second=1, **data), offset=offset)


def asked(known: list[Record]) -> Question:
    event = read_event(CALL)
    assert isinstance(event, CallEvent)
    [value] = [o.value for o in replay([*known, CALL], producer=PRODUCER) if o.role is Role.EVIDENCE]
    return Question(CALL, event, value or b"", PRODUCER)


def explained(records: list[Record], known: list[Record], **options: Any) -> Explanation:
    [answer] = explain(in_log_order(records), [asked(known)], **options)
    return answer


def pin(offset: int, value: str) -> Record:
    return decides(offset, "pin.set", tool_name="read_file", scheme="assay.v1", value=value * 64)


def policy(offset: int, enforcement: str) -> Record:
    return decides(offset, "policy.set", enforcement=enforcement, unknown="warn")


def test_the_first_record_left_out_of_a_log_is_named() -> None:
    records = [lists(0, "a"), lists(1, "a", second=1), lists(2, "b", second=2), lists(3, "b", second=3)]
    answer = explained(records, records[:2])
    assert answer.left_out == (Origin("mcp.tools.list", 0, 2),)
    assert answer.causes == ("late_snapshot",)


def test_decisions_are_told_by_their_kind() -> None:
    snapshot = lists(0, "a")
    key = decides(1, "key.accept", domain="example.com", fingerprint="sha256:" + "a" * 64)
    assert explained([snapshot, pin(0, "0"), pin(1, "1")], [snapshot, pin(0, "0")]).causes == ("pin_changed",)
    assert explained([snapshot, pin(0, "0"), policy(1, "block")], [snapshot, pin(0, "0")]).causes == ("policy_changed",)
    assert explained([snapshot, pin(0, "0"), key], [snapshot, pin(0, "0")]).causes == ("key_changed",)


def test_two_logs_may_both_have_been_behind() -> None:
    records = [lists(0, "a"), lists(1, "b", second=1), pin(0, "0"), policy(1, "block")]
    answer = explained(records, [lists(0, "a"), pin(0, "0")])
    assert answer.causes == ("late_snapshot", "policy_changed")
    assert answer.left_out == (Origin("assay.control", 0, 1), Origin("mcp.tools.list", 0, 1))


def test_what_no_state_of_the_logs_gives_is_not_explained() -> None:
    records = [lists(0, "a"), pin(0, "0")]
    assert explained(records, [lists(0, "z")]) == Explanation(found=False)


def test_a_list_that_was_set_aside_is_named() -> None:
    records = [lists(0, "a"), lists(1, "b", second=1)]
    answer = explained(records, [records[0], records[1]._replace(set_aside=True)])
    assert answer == Explanation(found=True, left_out=(records[1].origin,), causes=("record_set_aside",))


def test_a_search_that_is_given_up_says_so() -> None:
    records = [lists(0, "a"), *(pin(number, str(number)) for number in range(4))]
    assert explained(records, [lists(0, "z")], steps_max=3).limited


def test_without_any_record_only_an_unbound_call_is_explained() -> None:
    """There is one state of no log."""
    assert explained([], []) == Explanation(found=True)
    assert explained([], [lists(0, "a")]) == Explanation(found=False)


def test_a_list_in_a_partition_that_is_not_its_server_s_explains_nothing() -> None:
    """No join sees it, however late the lists of the right partition were."""
    home, late = lists(0, "a"), lists(1, "b", second=1)
    key = home.key or b""
    number = murmur2_partition(key, 4)
    right, wrong = (
        record._replace(origin=record.origin._replace(partition=partition))
        for record, partition in ((home, number), (late, (number + 1) % 4))
    )
    question = asked([right])
    for partitions, is_left_out in ((4, False), (None, True)):
        [(_, answer)] = log_cut.explained([("doubt", question)], [right, wrong], snapshot_partitions=partitions)
        assert answer.found
        assert bool(answer.left_out) == is_left_out
