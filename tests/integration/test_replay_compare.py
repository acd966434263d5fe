"""A live run with kills and rebalances on real Kafka, and a replay of its topics held against what it wrote."""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.files.lines import record_line
from assay_stream.kafka.ranges import committed_offsets
from assay_stream.model.cloudevents import event_time_us, read_event
from assay_stream.model.record import Record, Role
from assay_stream.verify.evidence import of_record
from tests.integration.test_exactly_once import undisturbed
from tests.support.controls import control_at
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import START, Fleet, Published, a_listing

pytestmark = [pytest.mark.kafka, pytest.mark.tier(name="outages")]

CALLS = 1_200
PHASES = 4
SLOW = {"ASSAY_STREAM_BATCH_RECORDS_MAX": "3"}


def a_decision(kind: str, number: int, at: datetime, server: int, **data: str) -> Published:
    name = f"server-{server}"
    return Role.CONTROL, name.encode(), control_at(at, kind, number, server_id=name, **data)


def a_pin(number: int, at: datetime, server: int, tool: str) -> Published:
    return a_decision("pin.set", number, at, server, tool_name=tool, scheme="assay.v1", value=f"{number:064x}")


def decisions(phase: int, at: datetime) -> list[Published]:
    return [
        a_pin(10 + phase, at, phase, "tool_0"),
        a_decision("policy.set", 20 + phase, at, phase, enforcement="block", unknown="warn"),
        a_decision("suppression.set", 30 + phase, at, phase, id=f"rule-{phase}", tool="tool_2"),
    ]


def phases() -> list[list[Published]]:
    """A fleet's history in portions, with decisions, and with calls of tools that nobody lists."""
    history = list(Fleet(servers=PHASES, calls=CALLS, changes=25, named_share=0.3, seed=11).history())
    size = len(history) // PHASES + 1
    portions = [history[first : first + size] for first in range(0, len(history), size)]
    told = []
    for phase, portion in enumerate(portions):
        at = max(time_of(value) for _, _, value in portions[phase - 1]) if phase else START
        mixed = [
            (role, key, value.replace(b'"tool_1"', b'"tool_9"') if number % 50 == 0 else value)
            for number, (role, key, value) in enumerate(portion)
        ]
        told.append([*decisions(phase, at + timedelta(milliseconds=1)), *mixed])
    return told


def time_of(value: bytes) -> datetime:
    return datetime.fromisoformat(json.loads(value)["time"])


async def send_portion(deployment: Deployment, portion: list[Published], first: int) -> None:
    """Publish what calls rest on, and then the calls, those of one server in any partition."""
    for wanted in (Role.CONTROL, Role.SNAPSHOTS):
        await deployment.send(wanted, [(key, value) for role, key, value in portion if role is wanted])
        # A decision that is read after the lists of its time would be late for what is found in those.
        await caught_up(deployment, "registry", wanted)
    calls = [value for role, _, value in portion if role is Role.CALLS]
    await deployment.send(Role.CALLS, [(b"%d" % (first + number), value) for number, value in enumerate(calls)])


async def a_disturbed_run(deployment: Deployment) -> None:
    """Publish everything, portion by portion, while workers are killed, added and taken away."""
    choose = random.Random(11)
    workers = [deployment.start_worker(**SLOW), deployment.start_worker(**SLOW)]
    await asyncio.gather(*(worker.wait_ready() for worker in workers))
    sent = kills_in_mid_stream = 0
    for number, portion in enumerate(phases()):
        await send_portion(deployment, portion, sent)
        before = sent
        sent += sum(role is Role.CALLS for role, _, _ in portion)
        await deployment.wait_until_written(Role.EVIDENCE, before + choose.randrange(10, 60))
        if number % 2:
            workers.append(deployment.start_worker(**SLOW))
        victim: Worker = workers.pop(0)
        if number == PHASES - 1:
            assert await asyncio.to_thread(victim.terminate) == 0
        else:
            victim.kill()
            kills_in_mid_stream += len(await deployment.read(Role.EVIDENCE)) < sent
            workers.append(deployment.start_worker(**SLOW))
    assert kills_in_mid_stream >= 1, "the kills hit no work: the test proves too little"
    await at_rest(deployment)


async def caught_up(deployment: Deployment, stage: str, *roles: Role, limit_s: float = 180) -> None:
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for role in roles:
        for record in await deployment.read(role):
            ends[record.origin[:2]] = record.origin.offset + 1
    deadline = time.monotonic() + limit_s
    while True:
        done = await committed_offsets(deployment.settings, stage)
        left = {place: end for place, end in ends.items() if done.get(place, 0) < end}
        if not left:
            return
        assert time.monotonic() < deadline, f"{stage} has {left} left\n{deployment.workers[-1].tail()}"
        await asyncio.sleep(0.5)


async def at_rest(deployment: Deployment) -> None:
    """Wait until all is joined, and let time come as far as the last record: alerts follow."""
    await caught_up(deployment, "registry", Role.SNAPSHOTS, Role.CONTROL)
    await caught_up(deployment, "join", Role.CALLS)
    await caught_up(deployment, "join", Role.REROUTED)
    times_us = [
        event_time_us(read_event(record))
        for role in (Role.CONTROL, Role.SNAPSHOTS, Role.CALLS)
        for record in await deployment.read(role)
    ]
    await deployment.tick(max(times_us))
    await caught_up(deployment, "alerts", Role.FINDINGS)


async def compared(deployment: Deployment, folder: Path) -> tuple[int, list[list[str]], dict[str, Any]]:
    """Exit code, the lines that name a difference, and the summary of a replay held against the topics."""
    options = ("--from-kafka", "--compare", "--output", str(folder), "--force")
    done = await asyncio.to_thread(deployment.run, "replay", *options)
    summaries = [line for line in done.stderr.splitlines() if line.startswith('{"summary"')]
    assert summaries, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("{")]
    return done.returncode, rows, json.loads(summaries[-1])["summary"]


async def settled(
    deployment: Deployment, folder: Path, causes: frozenset[str] = frozenset(), limit_s: float = 120
) -> tuple[int, list[list[str]], dict[str, Any]]:
    deadline = time.monotonic() + limit_s
    while True:
        code, rows, summary = await compared(deployment, folder)
        if {row[1] for row in rows if row[0] == "evidence"} <= causes or time.monotonic() > deadline:
            return code, rows, summary
        await asyncio.sleep(1)


async def differing_calls(deployment: Deployment) -> set[str]:
    """The calls whose recorded evidence is not what one pass of the engine gives, as the report names them."""
    again = set((await undisturbed(deployment))[Role.EVIDENCE])
    recorded = [of_record(record) for record in await deployment.read(Role.EVIDENCE)]
    calls = [evidence.call for evidence in recorded if evidence.value not in again]
    return {"/".join(map(str, call)) for call in calls if call is not None}


def named(rows: list[list[str]], *causes: str) -> set[str]:
    return {row[2] for row in rows if row[0] == "evidence" and row[1] in causes}


@pytest.mark.timeout(900)
async def test_a_replay_of_a_disturbed_run_has_no_differences_until_something_comes_late(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Kills, workers that come and go, decisions: no difference. Then what comes late is named exactly.

    Nor in alerts: each is there, with its count.
    """
    await a_disturbed_run(deployment)
    code, rows, summary = await settled(deployment, tmp_path / "live")
    assert (code, summary["differences"]) == (0, 0), rows
    # Which finding came first to an alert that several partitions feed is the one thing a replay cannot know.
    assert {tuple(row[:2]) for row in rows} <= {("alert", "order_of_reading")}
    assert summary["identical"]["evidence"] == CALLS
    assert summary["identical"]["alert"] >= 10
    await check_altered_copies(deployment, tmp_path)

    middle = START + timedelta(seconds=CALLS / 8)
    await deployment.put(a_listing(2, 0, 77, 10_077, middle))
    await at_rest(deployment)
    late = await differing_calls(deployment)
    code, rows, summary = await settled(deployment, tmp_path / "late", frozenset({"late_snapshot"}))
    assert code == 1
    assert len(late) >= 3
    assert named(rows, "late_snapshot") == late, summary
    assert {row[1] for row in rows if row[0] == "evidence"} == {"late_snapshot"}

    await deployment.put(a_pin(99, middle, 3, "tool_1"))
    await at_rest(deployment)
    pinned = await differing_calls(deployment) - late
    code, rows, summary = await compared(deployment, tmp_path / "pinned")
    assert code == 1
    assert len(pinned) >= 3
    assert named(rows, "pin_changed") == pinned, summary
    assert named(rows, "late_snapshot") == late
    # Alerts that a late decision would have raised may be missing with no evidence to explain them.
    assert {row[1] for row in rows if row[0] == "evidence"} == {"late_snapshot", "pin_changed"}


async def check_altered_copies(deployment: Deployment, folder: Path) -> None:
    """Evidence altered, taken out and put in, in copies of the topics: each is named, with exit code 1."""
    copies = folder / "copies"
    done = await asyncio.to_thread(deployment.run, "archive", "--output", str(copies))
    assert done.returncode == 0, done.stderr
    inputs = [option for path in sorted(copies.iterdir()) for option in ("--input", str(path))]
    partitions = ("--snapshot-partitions", str(deployment.settings.input_partitions))
    evidence = await deployment.read(Role.EVIDENCE)
    victim = len(evidence) // 2
    call = of_record(evidence[victim]).call
    assert call is not None
    kept: list[tuple[str | None, Callable[[], list[Record]]]] = [
        (None, lambda: evidence),
        ("altered_record", lambda: [*evidence[:victim], denied(evidence[victim]), *evidence[victim + 1 :]]),
        ("missing_record", lambda: [*evidence[:victim], *evidence[victim + 1 :]]),
        ("unexpected_record", lambda: [*evidence, evidence[victim]]),
    ]
    for cause, copy in kept:
        path = folder / "evidence.ndjson"
        path.write_bytes(b"".join(record_line(record) + b"\n" for record in copy()))
        options = ("--evidence", str(path), "--format", "json")
        done = await asyncio.to_thread(deployment.run, "compare", *inputs, *partitions, *options)
        rows = [row for row in map(json.loads, done.stdout.splitlines()) if row["what"] == "evidence"]
        assert done.returncode == (0 if cause is None else 1), done.stderr
        assert [(row["causes"], row["call"]) for row in rows] == [([cause], call.as_json())] * (cause is not None)


def denied(record: Record) -> Record:
    content = json.loads(record.value or b"")
    content["data"]["decision"] = "deny"
    return record._replace(value=canonicalize(content))
