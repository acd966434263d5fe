"""Laws of shadowing: how the claims of several servers are mixed changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.core.alerting import DueTimes, apply_entry, is_alert
from assay_stream.core.name_claim import NameClaim
from assay_stream.core.name_sketch import name_sketch
from assay_stream.core.partition import murmur2_partition
from assay_stream.core.record import Origin
from tests.support.findings import RULES, a_claim

NAMES = ("read_file", "read-file", "re\u0430d_file", "list", "1ist")

claims = st.builds(
    a_claim,
    server_id=st.sampled_from(("a", "b", "c")),
    tool_name=st.sampled_from(NAMES),
    second=st.integers(0, 20),
    definition=st.sampled_from(("", "other")),
    is_offered=st.sampled_from((True, True, False)),
    approved=st.booleans(),
    added=st.booleans(),
    sketch=st.sampled_from(((), name_sketch(["a"]), name_sketch(["a", "b"]), name_sketch(["c"]))),
)


def open_alerts(log: list[NameClaim], partitions: int) -> set[tuple[str, int, str]]:
    """Uid, severity and newcomer of what stands open after a log."""
    found = set()
    for partition in range(partitions):
        states: dict[str, Any] = {}
        for offset, claim in enumerate(log):
            if murmur2_partition(claim.output().key or b"", partitions) == partition:
                place = Origin(topic="findings", partition=partition, offset=offset)
                states |= apply_entry(states, claim, RULES, DueTimes(RULES), place=place).states
        found |= {
            (uid, state["severity_id"], state["last"]["server_id"])
            for uid, state in states.items()
            if is_alert(uid) and state["resolved_us"] is None
        }
    return found


def unique(log: list[NameClaim]) -> list[NameClaim]:
    """Each claim from a record of its own, as registries write them."""
    return list({claim.origin.offset: claim for claim in log}.values())


@given(log=st.lists(claims, max_size=12).map(unique), data=st.data())
def test_the_mixture_of_servers_changes_nothing(log: list[NameClaim], data: st.DataObject) -> None:
    """Each server's claims keep their order; nothing else does."""
    order = data.draw(st.permutations([claim.server_id for claim in log]))
    own = {name: iter([claim for claim in log if claim.server_id == name]) for name in set(order)}
    assert open_alerts([next(own[name]) for name in order], 1) == open_alerts(log, 1)


@given(log=st.lists(claims, max_size=12).map(unique), partitions=st.integers(2, 9))
def test_the_partition_count_changes_nothing(log: list[NameClaim], partitions: int) -> None:
    """Look-alikes stand in one partition, however many there are."""
    assert open_alerts(log, partitions) == open_alerts(log, 1)
