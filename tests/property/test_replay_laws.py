"""Laws of the replay: it gives what the live run gave, whoever hands the logs in, and in whatever order."""

import random
from collections import Counter, defaultdict
from datetime import timedelta

import msgspec
import orjson
from hypothesis import assume, given, strategies as st

from assay_stream.files.spool import LogSpool
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import PIN_FIELDS
from assay_stream.model.record import Origin, Output, Record, Role, murmur2_partition
from assay_stream.replay.order import Merge
from assay_stream.replay.run import Replay, ResumePoint
from assay_stream.text.times import time_ms_in
from tests.property.test_registry_laws import LIMITS, a_state, histories, run
from tests.support import engine
from tests.support.controls import control_at
from tests.support.engine import EngineState, evidence_by_partition
from tests.support.fleet import START, Fleet, a_call_by, a_listing
from tests.support.merging import merge_by_event_time, sort_in_memory
from tests.support.replaying import replay

PRODUCER = Producer(version="1")

FLEETS = st.builds(
    Fleet,
    servers=st.integers(1, 5),
    observers=st.integers(1, 3),
    calls=st.integers(0, 40),
    changes=st.integers(0, 6),
    named_share=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1_000),
)


def logged(fleet: Fleet, *, snapshot_partitions: int, call_partitions: int) -> list[Record]:
    counts = {Role.SNAPSHOTS: snapshot_partitions, Role.CALLS: call_partitions}
    offsets: Counter[tuple[Role, int]] = Counter()
    records = []
    for role, key, value in fleet.history():
        partition = murmur2_partition(key, counts[role])
        place = Origin(topic=role.value, partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        records.append(dated(Record(role=role, origin=place, key=key, value=value)))
    return records


def dated(record: Record) -> Record:
    return record._replace(timestamp_ms=time_ms_in(orjson.loads(record.value or b"")["time"]) or 0)


def live(records: list[Record], *, snapshot_partitions: int, limits: Limits = DEFAULT_LIMITS) -> list[Output]:
    join = EngineState(producer=PRODUCER, limits=limits, snapshot_partitions=snapshot_partitions)
    registries = {
        number: EngineState(producer=PRODUCER, limits=limits, snapshot_partitions=snapshot_partitions)
        for number in range(snapshot_partitions)
    }
    outputs: list[Output] = []
    for record in records:
        state = join if record.role is Role.CALLS else registries[record.origin.partition]
        written = engine.process(state, record)
        for offset, fact in enumerate(written):
            if fact.role is Role.BINDINGS:
                place = Origin(topic="bindings", partition=fact.partition or 0, offset=offset)
                engine.process(join, Record(role=Role.BINDINGS, origin=place, key=fact.key, value=fact.value))
        outputs += written
    return outputs


def replayed(records: list[Record], *, snapshot_partitions: int, limits: Limits = DEFAULT_LIMITS) -> list[Output]:
    return list(replay(records, producer=PRODUCER, limits=limits, snapshot_partitions=snapshot_partitions))


def findings(outputs: list[Output]) -> list[Output]:
    return sorted(output for output in outputs if output.role is Role.FINDINGS)


def handed_in(records: list[Record], choose: random.Random) -> list[Record]:
    partitions = defaultdict(list)
    for record in records:
        partitions[record.role, record.origin.topic, record.origin.partition].append(record)
    pending = [list(reversed(partition)) for partition in partitions.values()]
    choose.shuffle(pending)
    mixed = []
    while pending:
        source = choose.choice(pending)
        mixed.append(source.pop())
        pending = [left for left in pending if left]
    return mixed


@given(histories(), LIMITS)
def test_what_is_found_in_lists_is_found_in_a_replay(history: list[Record], limits: Limits) -> None:
    """Of tools, prompts and templates, and of lists that came late: in the order of the log."""
    records = [record for record in history if record.role is Role.SNAPSHOTS]
    registry = a_state(limits)
    told = [output for output in run(registry, records) if output.role is Role.FINDINGS]
    again = replayed(records, snapshot_partitions=1, limits=limits)
    assert [output for output in again if output.role is Role.FINDINGS] == told


@given(FLEETS, st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_order_in_which_partitions_are_handed_in_does_not_matter(
    fleet: Fleet, snapshot_partitions: int, call_partitions: int, choose: random.Random
) -> None:
    records = logged(fleet, snapshot_partitions=snapshot_partitions, call_partitions=call_partitions)
    assert replayed(handed_in(records, choose), snapshot_partitions=snapshot_partitions) == replayed(
        records, snapshot_partitions=snapshot_partitions
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 5)), max_size=20), st.randoms())
def test_merging_never_reorders_a_partition(drawn: list[tuple[int, int, int]], choose: random.Random) -> None:
    offsets: Counter[tuple[Role, int]] = Counter()
    records = []
    for kind, partition, second in drawn:
        role = (Role.SNAPSHOTS, Role.CALLS, Role.CONTROL)[kind]
        place = Origin(topic=role.value, partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        value = orjson.dumps({"time": f"2026-03-01T00:00:0{second}Z"})
        records.append(Record(role=role, origin=place, key=b"k", value=value))
    merged = merge_by_event_time(handed_in(records, choose))
    assert Counter(merged) == Counter(records)
    for role, partition in offsets:
        order = [
            record.origin.offset for record in merged if (record.role, record.origin.partition) == (role, partition)
        ]
        assert order == sorted(order)


def at(role: Role, partition: int, offset: int, published: tuple[Role, bytes, bytes], topic: str = "") -> Record:
    _, key, value = published
    place = Origin(topic=topic or role.value, partition=partition, offset=offset)
    return dated(Record(role=role, origin=place, key=key, value=value))


def test_a_snapshot_that_stands_in_two_partitions_is_replayed_in_one_way() -> None:
    """A call that names a snapshot found twice is placed alike, whichever partition is handed in first."""
    minute = START.replace(minute=1)
    later = START.replace(minute=9)
    first = at(Role.SNAPSHOTS, 0, 0, a_listing(0, 0, 0, 7, minute))
    second = at(Role.SNAPSHOTS, 1, 0, a_listing(0, 0, 0, 7, later))
    other = at(Role.SNAPSHOTS, 1, 1, a_listing(0, 1, 1, 8, later.replace(minute=10)))
    calls = [
        at(Role.CALLS, 0, 0, a_call_by(0, 0, 0, START, "snapshot-7")),
        at(Role.CALLS, 0, 1, a_call_by(0, 1, 3, minute.replace(minute=2), None)),
    ]
    one = replayed([first, second, other, *calls], snapshot_partitions=2)
    two = replayed([second, other, first, *calls], snapshot_partitions=2)
    assert evidence_by_partition(one) == evidence_by_partition(two)


def test_two_files_with_a_snapshot_on_the_same_line_are_two_logs() -> None:
    """Each call is bound to its own observer's list, also where both lists stand on line one of their files."""
    minute = START.replace(minute=1)
    records = [
        at(Role.SNAPSHOTS, 0, 0, a_listing(0, 0, 0, 1, START), topic="a.ndjson"),
        at(Role.SNAPSHOTS, 0, 0, a_listing(0, 1, 1, 2, START), topic="b.ndjson"),
        at(Role.CALLS, 0, 1, a_call_by(0, 0, 0, minute, None), topic="a.ndjson"),
        at(Role.CALLS, 0, 1, a_call_by(0, 1, 3, minute, None), topic="b.ndjson"),
    ]
    outputs = replayed(records, snapshot_partitions=1)
    bindings = [
        orjson.loads(output.value or b"")["data"]["binding"] for output in outputs if output.role is Role.EVIDENCE
    ]
    assert [binding["origin"]["topic"] for binding in bindings] == ["a.ndjson", "b.ndjson"]


# --- a live run in any order in which nothing was late ---------------------------------------------------------

MINUTES = st.integers(0, 6)
SERVERS = OBSERVERS = st.integers(0, 1)
SEEN = st.tuples(st.just("list"), SERVERS, OBSERVERS, MINUTES, st.integers(0, 2), st.booleans())
REFUSED_LIST = st.tuples(st.just("bad list"), SERVERS, OBSERVERS, MINUTES, MINUTES, st.booleans())
CALLED = st.tuples(st.just("call"), SERVERS, OBSERVERS, MINUTES, st.integers(0, 12), st.booleans())
REFUSED_CALL = st.tuples(st.just("bad call"), SERVERS, OBSERVERS, MINUTES, MINUTES, st.booleans())
PINNED = st.tuples(st.just("pin"), SERVERS, OBSERVERS, MINUTES, st.integers(0, 2), st.booleans())
LOGS = st.lists(st.one_of(SEEN, SEEN, CALLED, CALLED, CALLED, REFUSED_LIST, REFUSED_CALL, PINNED), max_size=24)
Drawn = tuple[str, int, int, int, int, bool]


def a_pin(server: int, minute: int, number: int) -> bytes:
    given = {"server_id": f"server-{server}", "tool_name": "tool_0", "scheme": "assay.v1", "value": f"{number:064x}"}
    return control_at(START.replace(minute=minute), "pin.set", number, **given)


def written(kind: str, server: int, observer: int, minute: int, detail: int, number: int) -> tuple[Role, bytes, int]:
    moment = START.replace(minute=minute)
    if kind in ("list", "bad list"):
        version = detail if kind == "list" else 0
        _, _, value = a_listing(server, observer, version, number, moment)
        if kind == "list":
            return Role.SNAPSHOTS, value, minute
        return Role.SNAPSHOTS, value.replace(b'"complete"', b'"novelty"'), detail
    if kind == "pin":
        return Role.CONTROL, a_pin(server, minute, number), minute
    named = f"snapshot-{detail}" if kind == "call" and detail < 8 else None
    _, _, value = a_call_by(server, observer, number * 3, moment, named)
    if kind == "call":
        return Role.CALLS, value, minute
    return Role.CALLS, value.replace(b'"allow"', b'"novelty"').replace(b"2026-03-01", b"2026-03-09"), detail


def drawn_log(drawn: list[Drawn]) -> list[Record]:
    offsets: Counter[tuple[Role, int]] = Counter()
    records = []
    for number, (kind, server, observer, minute, detail, second) in enumerate(drawn):
        role, value, log_minute = written(kind, server, observer, minute, detail, number)
        partition = int(second)
        place = Origin(topic=role.value, partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        logged_ms = int(START.replace(minute=log_minute).timestamp() * 1_000)
        records.append(Record(role, place, f"server-{server}".encode(), value, (), logged_ms))
    return records


def late_if_after(record: Record, call: Record) -> bool:
    event = orjson.loads(call.value or b"")
    told = orjson.loads(record.value or b"")
    named = event["data"].get("snapshot_id")
    if named is not None and named == told["data"].get("snapshot_id"):
        return True
    effect_ms = min(time_ms_in(told["time"]) or 0, record.timestamp_ms)
    return effect_ms <= (time_ms_in(event["time"]) or 0)


def in_time(records: list[Record], choose: random.Random) -> list[Record]:
    """The records in some live order: partitions keep theirs, and no call overtakes what it rests on."""
    partitions = defaultdict(list)
    for record in records:
        partitions[record.role, record.origin.partition].append(record)
    pending = {place: list(reversed(partition)) for place, partition in partitions.items()}
    ordered = []
    while pending:
        waiting = [r for (role, _), left in pending.items() if role is not Role.CALLS for r in left]
        ready = [
            place
            for place, left in pending.items()
            if place[0] is not Role.CALLS or not any(late_if_after(record, left[-1]) for record in waiting)
        ]
        place = choose.choice(ready)
        ordered.append(pending[place].pop())
        pending = {place: left for place, left in pending.items() if left}
    return ordered


def told(outputs: list[Output]) -> tuple[dict[int | None, list[Output]], Counter[Output]]:
    """Evidence and refusals partition by partition, and findings without order.

    A finding ``pin_mismatch`` rests on the order of reading, as docs/architecture.md says: it is left out, also where
    a finding about the same change names it. So does which record tells of the end that a decision puts to alerts: the
    decision, or the list that came after it; and of how much the end of an offer tells: what pins could have given is
    named once there are pins.
    """
    of_calls = defaultdict(list)
    for output in outputs:
        if output.role is Role.EVIDENCE:
            of_calls[output.partition].append(output)
    resting_on_order = ("finding:pin_mismatch", "resolution:decided", "resolution:no_longer_offered")
    others = Counter(
        without_pins(output)
        for output in outputs
        if output.role in (Role.FINDINGS, Role.REJECTED) and output.label not in resting_on_order
    )
    return dict(of_calls), others


def without_pins(output: Output) -> Output:
    if output.role is not Role.FINDINGS or b'"also":["pin_mismatch"]' not in (output.value or b""):
        return output
    finding = orjson.loads(output.value or b"")
    value = orjson.dumps({name: said for name, said in finding.items() if name not in ("also", *PIN_FIELDS)})
    return output._replace(value=value)


@given(LOGS, st.randoms(use_true_random=False))
def test_a_replay_gives_any_live_run_in_which_nothing_was_late(drawn: list[Drawn], choose: random.Random) -> None:
    """In whatever order a live run read its partitions, if no call overtook what it rests on, a replay agrees."""
    records = drawn_log(drawn)
    was = live(in_time(records, choose), snapshot_partitions=2)
    again = replayed(handed_in(records, choose), snapshot_partitions=2)
    assert told(again) == told(was)


# --- a live run in the order of publishing, that forgets early and reuses names --------------------------------

FORGETFUL = Limits(timeline_entries_max=2, rejections_max=1)
SKEWS = st.integers(-200, 200)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["list", "list", "call", "call", "bad list", "bad call"]),
        *(st.just(0), OBSERVERS, st.integers(0, 3), st.sampled_from([None, None, 0, 1]), SKEWS, st.booleans()),
    ),
    max_size=30,
)
Step = tuple[str, int, int, int, int | None, int, bool]


def published(steps: list[Step]) -> list[Record]:
    offsets: Counter[tuple[Role, int]] = Counter()
    records = []
    for number, (kind, server, observer, version, name, skew_s, second) in enumerate(steps):
        moment = START.replace(hour=1) + timedelta(seconds=number)
        claimed = moment + timedelta(seconds=skew_s) if kind.startswith("bad") else moment
        if kind.endswith("list"):
            role, key, value = a_listing(server, observer, version, name or 0, claimed)
            value = value if kind == "list" else value.replace(b'"complete"', b'"novelty"')
        else:
            names = None if name is None else f"snapshot-{name}"
            role, key, value = a_call_by(server, observer, number * 3, claimed, names)
            value = value if kind == "call" else value.replace(b'"allow"', b'"novelty"')
        partition = int(second)
        place = Origin(topic=role.value, partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        records.append(Record(role, place, key, value, (), int(moment.timestamp() * 1_000)))
    return records


def names_of_the_future(records: list[Record]) -> bool:
    """Whether a call names a snapshot, of its own observer or of anybody, that is published after it and not before."""
    known: set[tuple[object, ...]] = set()
    missed: set[tuple[object, ...]] = set()
    for record in records:
        data = orjson.loads(record.value or b"")["data"]
        anybodys = (record.key, data.get("snapshot_id"))
        names = {anybodys, (*anybodys, data["observer_id"])}
        if record.role is Role.SNAPSHOTS:
            if b'"novelty"' in (record.value or b""):
                continue  # what is refused never becomes known
            if names & missed:
                return True
            known |= names
        else:
            missed |= names - known
    return False


@given(STEPS, st.randoms(use_true_random=False))
def test_a_replay_forgets_what_the_live_run_forgot(steps: list[Step], choose: random.Random) -> None:
    """What is refused moves nothing else, and what was folded away or named again is so at the same calls."""
    records = published(steps)
    assume(not names_of_the_future(records))
    was = live(records, snapshot_partitions=2, limits=FORGETFUL)
    again = replayed(handed_in(records, choose), snapshot_partitions=2, limits=FORGETFUL)
    assert told(again) == told(was)


# --- streaming, and going on after an interruption ---------------------------------------------------------------


@st.composite
def any_records(draw: st.DrawFn) -> list[Record]:
    records = drawn_log(draw(LOGS))
    shuffled = draw(st.permutations(records))
    return [*shuffled, *draw(st.lists(st.sampled_from(shuffled), max_size=4))] if shuffled else []


def small_spool(records: list[Record]) -> LogSpool:
    """A spool that writes a block for every few records, and merges two runs at a time."""
    spool = LogSpool(in_memory_bytes_max=1, block_bytes=900, runs_max=2)
    for record in records:
        spool.add(record)
    spool.finish()
    return spool


@given(any_records())
def test_records_stream_in_the_order_that_sorting_in_memory_gives(records: list[Record]) -> None:
    with small_spool(records) as spool:
        streamed = Merge(spool, limits=DEFAULT_LIMITS, call_profile="assay").read({})
        assert [(placed.time_ms, placed.record) for placed in streamed] == sort_in_memory(records)


@given(any_records(), st.lists(st.integers(0, 30), max_size=3))
def test_one_that_was_interrupted_gives_what_an_undisturbed_one_gives(records: list[Record], stops: list[int]) -> None:
    """Interrupted after any records, with the checkpoint written as JSON and read, the outputs are the same."""
    was = replayed(records, snapshot_partitions=2)
    outputs: list[Output] = []
    told: bytes | None = None
    for stop in [*stops, None]:
        with small_spool(records) as spool:
            made = Replay(spool, producer=PRODUCER, snapshot_partitions=2)
            if told is not None:
                made.resume_from(msgspec.json.decode(told, type=ResumePoint))
            for number, written in enumerate(made.steps()):
                if number == stop:
                    break
                outputs += written
                told = msgspec.json.encode(made.resume_point())
            else:
                break
    assert outputs == was


@given(any_records())
def test_a_spool_gives_each_log_once_and_in_order(records: list[Record]) -> None:
    with small_spool(records) as spool:
        for log in spool.logs():
            wanted = sorted(
                {r for r in records if (r.role, *r.origin[:2]) == log}, key=lambda record: record.origin.offset
            )
            assert list(spool.read(log)) == wanted
            for place, record in enumerate(wanted):
                assert list(spool.read(log, after=record.origin.offset)) == wanted[place + 1 :]
