"""Which erasures count, what they cover, and what a legal hold keeps."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay_stream.bindings import erasures as module
from assay_stream.bindings.erasures import (
    ERASURE,
    HOLD,
    RELEASE,
    Account,
    Erasures,
    ScopeAct,
    Subject,
    covers,
    subject_of,
)
from assay_stream.files.erasing import acts_of_files
from assay_stream.model.fields import ScopeField
from assay_stream.model.record import ERASED_HEADER, ERASED_LEAF_HEADER, Origin, Record, Role
from tests.support.errors import raises_code
from tests.support.events import TOOL, a_snapshot, an_event

TEN = 1_772_359_200_000_000
"""2026-03-01T10:00:00Z, in microseconds."""
BOB: ScopeField = {"agent_id": "bob", "to_time": "2026-03-01T10:00:00Z"}


def act(kind: str, offset: int, scope_id: str = "one", scope: ScopeField | None = None, **more: Any) -> ScopeAct:
    given = {"records": 2 if kind == ERASURE else None, "partition": 0} | more
    return ScopeAct(
        act=kind,
        scope_id=scope_id,
        scope=None if kind == RELEASE else BOB if scope is None else scope,
        records=given["records"],
        author="ann",
        reason="request 17",
        time_us=TEN + offset,
        origin=Origin("assay.control", given["partition"], offset),
    )


def bob(time_us: int = TEN - 1, server_id: str = "notes") -> Subject:
    return Subject(server_id, "bob", time_us)


@pytest.mark.parametrize(
    ("scope", "is_covered"),
    [
        ({}, True),
        ({"agent_id": "bob"}, True),
        ({"agent_id": "eve"}, False),
        ({"server_id": "notes", "agent_id": "bob"}, True),
        ({"server_id": "time", "agent_id": "bob"}, False),
        ({"from_time": "2026-03-01T10:00:00Z"}, True),
        ({"to_time": "2026-03-01T10:00:00Z"}, False),
        ({"from_time": "2026-03-01T10:00:00.000001Z"}, False),
    ],
)
def test_a_scope_covers_from_its_beginning_and_not_its_end(scope: ScopeField, is_covered: bool) -> None:
    found = Erasures([act(ERASURE, 0, scope=scope)]).covering(bob(TEN))
    assert bool(found) is is_covered


def test_calls_in_binary_mode_say_in_headers_when_they_were() -> None:
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_type", b"mcp.tools.call.observed"),
        ("ce_time", b"2026-03-01T10:00:00Z"),
    )
    data = b'{"server_id":"notes","actor":{"kind":"agent","agent_id":"bob"}}'
    assert subject_of(data, headers) == bob(TEN)


def test_lists_are_never_in_a_scope() -> None:
    assert subject_of(a_snapshot(TOOL)) is None


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b'{"data":{}}', b'{"time":1,"data":{"server_id":"s"}}'])
def test_what_does_not_say_what_it_is_about_is_in_no_scope(value: bytes | None) -> None:
    assert Erasures([act(ERASURE, 0, scope={})]).covering(subject_of(value)) == []


def test_an_erasure_under_a_hold_counts_for_nothing_even_after_its_release() -> None:
    found = Erasures([act(HOLD, 0, "hold"), act(ERASURE, 1), act(RELEASE, 2, "hold"), act(ERASURE, 3, "two")])
    assert found.erasure("one") is None
    assert found.held_by(act(ERASURE, 1)) == act(HOLD, 0, "hold")
    assert found.erasure("two") == act(ERASURE, 3, "two")


def test_the_log_and_not_the_event_time_says_which_came_first() -> None:
    """An erasure that is dated back does not come before the hold."""
    backdated = act(ERASURE, 1)
    object.__setattr__(backdated, "time_us", 0)
    assert Erasures([act(HOLD, 0, "hold"), backdated]).erasure("one") is None


def test_an_erasure_in_another_partition_does_not_escape_a_hold() -> None:
    acts = [act(HOLD, 5, "hold"), act(ERASURE, 0, partition=1), act(RELEASE, 6, "hold")]
    assert Erasures(acts).erasure("one") is None


def test_a_hold_that_is_set_and_taken_back_again_and_again_is_found_in_order() -> None:
    """An erasure met it if the last act on the hold before it was to set it."""
    for seed in range(200):
        chosen = Random(seed)
        kinds = chosen.choices([HOLD, RELEASE, ERASURE], k=12)
        acts = [act(kind, at, f"e{at}" if kind == ERASURE else "hold") for at, kind in enumerate(kinds)]
        last, expected = RELEASE, set[str]()
        for each in acts:
            if each.act == ERASURE and last == RELEASE:
                expected.add(each.scope_id)
            last = each.act if each.act != ERASURE else last
        found = Erasures(chosen.sample(acts, len(acts)))
        assert {each.scope_id for each in found.standing()} == expected
        assert bool(found.holds()) is (last == HOLD)


def test_decisions_in_files_of_the_same_name_are_all_read(tmp_path: Path) -> None:
    """A hold in one does not make room for the erasure in the other."""
    paths = [tmp_path / folder / "control.ndjson" for folder in ("a", "b")]
    for path, kind, more in zip(paths, (HOLD, ERASURE), ({}, {"records": 1}), strict=True):
        path.parent.mkdir()
        data = {"server_id": "*", "id": kind, "scope": BOB, "author": "ann", "reason": "r", **more}
        event = json.loads(an_event(Role.CALLS, 0, 0, data)) | {"type": f"assay.control.{kind}"}
        path.write_text(json.dumps(event) + "\n")
    found = Erasures(acts_of_files(paths))
    assert [each.act for each in found.holds()] == [HOLD]
    assert ERASURE in found
    assert found.standing() == []


def test_a_damaged_line_of_control_records_may_have_been_a_hold(tmp_path: Path) -> None:
    """Without it, what it holds would be erased."""
    path = tmp_path / "control.ndjson"
    path.write_text('\n{"type": "assay.control.hold.set", "da\n')
    with raises_code("bad_record_line", match=r"line 2 of .*control\.ndjson"):
        Erasures(acts_of_files([path]))


def test_a_hold_elsewhere_forbids_nothing() -> None:
    elsewhere: ScopeField = {"agent_id": "bob", "from_time": "2026-03-01T10:00:00Z"}
    found = Erasures([act(HOLD, 0, "a", scope={"agent_id": "eve"}), act(HOLD, 1, "b", elsewhere), act(ERASURE, 2)])
    assert found.erasure("one") is not None


def test_a_hold_that_came_later_keeps_what_was_not_deleted_yet() -> None:
    acts = [act(ERASURE, 0), act(HOLD, 1, "hold", scope={"server_id": "notes"})]
    found = Erasures(acts)
    assert found.covering(bob()) == acts[:1]
    assert found.due(bob()) == []
    assert found.due(bob(server_id="time")) == acts[:1]
    found.take(act(RELEASE, 2, "hold"))
    assert found.due(bob()) == acts[:1]


def test_the_first_erasure_of_an_id_counts() -> None:
    """Otherwise a second one could account for more."""
    first, second = act(ERASURE, 0, records=1), act(ERASURE, 1, records=1_000)
    assert Erasures([second, first]).erasure("one") == first


def stub(scope_id: str = "one", leaf: bytes = b"leaf") -> Record:
    headers = ((ERASED_HEADER, scope_id.encode()), (ERASED_LEAF_HEADER, leaf.hex().encode()))
    return Record(Role.EVIDENCE, Origin("assay.tool.decision", 0, 0), None, None, headers)


def test_an_erasure_accounts_for_as_many_records_as_it_states_and_for_no_other_leaf() -> None:
    account = Account(lambda: Erasures([act(ERASURE, 0, records=1), act(HOLD, 1, "hold"), act(ERASURE, 2, "held")]))
    assert account.refuse(stub(), b"other") == "erasure_of_another_record"
    assert account.refuse(stub("held"), b"leaf") == "erasure_held"
    assert account.refuse(stub("nobody"), b"leaf") == "erasure_unknown"
    assert account.refuse(stub(), b"leaf") is None
    assert account.refuse(stub(), b"leaf") == "erasure_exceeded"
    assert account.used() == [act(ERASURE, 0, records=1)]


def test_a_record_is_held_against_the_erasures_that_name_its_server_or_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others there are: one for each request of a year, and a store asks for every record."""
    others = [act(ERASURE, n, str(n), {"agent_id": f"agent-{n}", "to_time": BOB["to_time"]}) for n in range(2_000)]
    ours = [act(ERASURE, 2_000 + n, f"ours-{n}", scope) for n, scope in enumerate((BOB, BOB | {"server_id": "notes"}))]
    erasures = Erasures([*others, *ours])
    looked_at: list[ScopeField | None] = []

    def noted(scope: ScopeField | None, subject: Subject) -> bool:
        looked_at.append(scope)
        return covers(scope, subject)

    monkeypatch.setattr(module, "covers", noted)
    assert [each.scope_id for each in erasures.covering(bob())] == ["ours-1", "ours-0"], "latest first"
    assert len(looked_at) == 2
