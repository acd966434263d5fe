"""Laws of verification: what a run wrote holds, what was altered does not, and what came late is told as late."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import orjson
from hypothesis import assume, given, strategies as st

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.record import Record, Role
from assay_stream.replay.log_cut import history_of
from assay_stream.schemes import assay_tool as assay
from assay_stream.verify.evidence import Pairing, Recorded
from assay_stream.verify.verification import Judgement, RecordStatus, Verifier, judgements, origin_of
from tests.property.test_replay_laws import FLEETS, LOGS, Drawn, drawn_log, handed_in, in_time, live, logged
from tests.support.fleet import Fleet


def written(records: list[Record]) -> list[bytes]:
    outputs = live(records, snapshot_partitions=2)
    return [output.value or b"" for output in outputs if output.role is Role.EVIDENCE]


def verified(
    values: list[bytes], records: list[Record], *, waiting_max: int = 50_000, partitions: int = 2
) -> list[Judgement]:
    verifier = Verifier(history_of(lambda: records, snapshot_partitions=partitions))
    evidence = [Recorded(f"line {number}", value) for number, value in enumerate(values)]
    return list(judgements(verifier, evidence, lambda: records, pairing=Pairing(origin_of, waiting_max=waiting_max)))


def statuses(found: list[Judgement]) -> list[RecordStatus]:
    return [judgement.status for judgement in sorted(found, key=lambda v: int(v.evidence.where.split()[1]))]


def shuffled(records: list[Record], choose: random.Random) -> list[Record]:
    return handed_in(records, choose)


@given(LOGS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_what_a_run_wrote_in_time_holds(drawn: list[Drawn], choose: random.Random, waiting_max: int) -> None:
    """In whatever order a run read its partitions and the archives are given, and however little may wait."""
    records = drawn_log(drawn)
    values = written(in_time(records, choose))
    found = verified(values, handed_in(records, choose), waiting_max=waiting_max)
    assert statuses(found) == [RecordStatus.HOLDS] * len(values)


@given(LOGS, st.randoms(use_true_random=False))
def test_what_came_late_is_told_and_nothing_else(drawn: list[Drawn], choose: random.Random) -> None:
    """No record of a run is wrong; those that the whole logs do not give are late, and name what they lacked."""
    records = drawn_log(drawn)
    values = written(shuffled(records, choose))
    expected = {Recorded("", value).call: value for value in written(in_time(records, random.Random(0)))}
    found = verified(values, records)
    assert len(found) == len(values)
    for judgement in found:
        gives_the_same = expected[judgement.evidence.call] == judgement.evidence.value
        assert judgement.status is (RecordStatus.HOLDS if gives_the_same else RecordStatus.LATE)
        assert bool(judgement.left_out) is not gives_the_same


def members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*path, name)
        yield from members(item, (*path, name))


def altered(envelope: dict[str, Any], path: tuple[Any, ...], how: str) -> dict[str, Any]:
    copied = copy.deepcopy(envelope)
    parent: Any = copied
    for name in path[:-1]:
        parent = parent[name]
    value = parent[path[-1]]
    if how == "taken out":
        del parent[path[-1]]
    elif how == "joined" and isinstance(parent, dict):
        parent["zz_new"] = value
    elif isinstance(value, bool):
        parent[path[-1]] = not value
    elif isinstance(value, int | float):
        parent[path[-1]] = value + 1
    elif isinstance(value, str):
        parent[path[-1]] = value[:-1] + ("0" if value[-1:] != "0" else "1")
    else:
        parent[path[-1]] = None
    return copied


OWN_WORD = {("assayproducerversion",), ("assaygit",)}
"""What only the producer says: the logs do not repeat it. Whoever cares names the versions (``producers``)."""


@given(FLEETS, st.randoms(use_true_random=False), st.sampled_from(["replaced", "taken out", "joined"]), st.data())
def test_any_altered_member_is_found(fleet: Fleet, choose: random.Random, how: str, data: st.DataObject) -> None:
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    values = written(records)
    assume(values)
    number = choose.randrange(len(values))
    envelope = orjson.loads(values[number])
    path = data.draw(st.sampled_from(sorted(members(envelope), key=repr)))
    assume(path not in OWN_WORD)
    changed = altered(envelope, path, how)
    if data.draw(st.booleans()) and changed.keys() >= {"data", "specversion", "type", "datacontenttype"}:
        changed["assaycontenthash"] = str(assay.content_hash(changed))
    assume(changed != envelope)
    values[number] = canonicalize(changed)
    [found] = [one for one in verified(values, records) if one.evidence.where == f"line {number}"]
    assert found.status is RecordStatus.WRONG or (
        found.status is RecordStatus.GONE and path[-1] in ("topic", "partition", "offset", "origin")
    )
    assert found.codes


@given(FLEETS, st.randoms(use_true_random=False))
def test_a_record_that_stands_there_twice_is_found(fleet: Fleet, choose: random.Random) -> None:
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    values = written(records)
    assume(values)
    again = [*values, choose.choice(values)]
    found = statuses(verified(again, records))
    assert found == [RecordStatus.HOLDS] * len(values) + [RecordStatus.WRONG]
