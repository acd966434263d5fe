"""What must hold after any faults: checked against a replay of the very same input logs."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from assay_stream.model.record import Origin, Record, Role
from tests.chaos.catching_up import caught_up
from tests.chaos.crew import Crew
from tests.integration.test_exactly_once import findings_of, of_one_server, undisturbed_until, values
from tests.support.deployment import payload


async def check_promises(
    crew: Crew, *, calls_published: int, alerts_repeated: bool, plain: Callable[[bytes], bytes] = bytes
) -> dict[str, int]:
    """Check every promise once the load has ended and nothing is broken any more.

    Args:
        crew: the workers.
        calls_published: how many calls the brokers acknowledged.
        alerts_repeated: whether alerts may stand there more than once, byte for byte: their states were lost.
        plain: returns a record without what may differ from an undisturbed run.

    Returns:
        How much was checked: number of records by what they are.

    Raises:
        AssertionError: naming the promise that does not hold.
    """
    deployment = crew.deployment
    await caught_up(crew)
    expected, time_us = await undisturbed_until(deployment)
    assert len(await findings_of(deployment)) >= len(expected[Role.FINDINGS]), "findings are missing"
    await deployment.tick(time_us)
    await caught_up(crew)

    inputs = await deployment.read(Role.CALLS)
    assert len(inputs) >= calls_published, "the brokers lost calls that they had acknowledged"
    evidence = await deployment.read(Role.EVIDENCE, settled=True)
    rejected = await deployment.read(Role.REJECTED, settled=True)
    _one_each(inputs, evidence, rejected)
    _same("evidence", map(plain, values(evidence)), map(plain, expected[Role.EVIDENCE]))
    _same("rejected records", values(rejected), expected[Role.REJECTED])
    findings = await findings_of(deployment)
    _same("findings", values(findings), expected[Role.FINDINGS])
    alerts = await deployment.read(Role.ALERTS, settled=True)
    told, wanted = ([*map(plain, given)] for given in (values(alerts), expected[Role.ALERTS]))
    _right_alerts(told, wanted, repeated=alerts_repeated)
    assert not crew.unasked, "workers ended that nobody had stopped:\n" + "\n".join(crew.unasked)
    return {
        "calls": len(inputs),
        "evidence": len(evidence),
        "findings": len(findings),
        "alerts": len(set(told)),
        "alerts repeated": len(told) - len(set(told)),
        "workers restarted": crew.restarted,
    }


def _one_each(inputs: Sequence[Record], evidence: Sequence[Record], rejected: Sequence[Record]) -> None:
    """Every call has one evidence record, or one rejected copy, that names its place; and nothing else has."""
    places = Counter(_place_of_call(record) for record in evidence)
    places.update(_place_of_rejected(record) for record in rejected)
    twice = [place for place, count in places.items() if count > 1]
    assert not twice, f"{len(twice)} calls have more than one record, the first of them is {twice[0]}"
    never = {record.origin for record in inputs} - set(places)
    assert not never, f"{len(never)} calls have no record, one of them is {min(never)}"
    assert len(places) == len(inputs)


def _place_of_call(record: Record) -> Origin:
    place: Any = payload(record)["origin"]
    return Origin(topic=place["topic"], partition=place["partition"], offset=place["offset"])


def _place_of_rejected(record: Record) -> Origin:
    told = {name: value.decode() for name, value in record.headers}
    return Origin(topic=told["error.topic"], partition=int(told["error.partition"]), offset=int(told["error.offset"]))


def _same(what: str, got: Iterable[bytes], wanted: Iterable[bytes]) -> None:
    got_times, wanted_times = Counter(got), Counter(wanted)
    more, less = got_times - wanted_times, wanted_times - got_times
    assert not more, f"{what}: {more.total()} that an undisturbed run does not write, such as {next(iter(more))!r}"
    assert not less, f"{what}: {less.total()} are missing, such as {next(iter(less))!r}"


def _right_alerts(got: Sequence[bytes], wanted: Sequence[bytes], *, repeated: bool) -> None:
    """Every alert of an undisturbed run, with its bytes, and nothing else; once, unless repeats are allowed."""
    got_times, wanted_times = Counter(of_one_server(got)), Counter(of_one_server(wanted))
    if repeated:
        got_times = Counter(got_times.keys())
    more, less = got_times - wanted_times, wanted_times - got_times
    assert not more, f"alerts: {more.total()} too many: {_causes(more)}"
    assert not less, f"alerts: {less.total()} missing: {_causes(less)}"


def _causes(alerts: Iterable[bytes]) -> list[str]:
    """Which records the alerts are about: partition and offset of the input, what was found, what was written."""
    told = []
    for value in alerts:
        alert = json.loads(value)
        said = alert["unmapped"]
        place = f"{said.get('mcp_origin_partition')}:{said.get('mcp_origin_offset')}"
        told.append(f"{place} {alert['finding_info']['types'][0]} {alert['activity_name']}")
    return sorted(told)
