"""Steps of the registry: what is published is applied, what is retracted is forgotten, and what is kept is bounded."""

import json
from collections.abc import Callable

from assay_stream.bindings.controls import Controls
from assay_stream.limits import Limits
from assay_stream.model.control import Checked, Discovery
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import Fact, ItemFact, ItemList, Seen, decode_key
from assay_stream.model.fields import Subject
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.retention import (
    fold,
    fold_discoveries,
    is_redundant,
    merge_rejections,
    pack_repeats,
    take_away,
)
from assay_stream.registry.step import Registry, Step, fact_output
from tests.support.facts import (
    SERVER,
    a_catalogue,
    a_discovery,
    a_fingerprint,
    bindings_with,
    rejection,
    seen,
    signed_by,
)

RECORD = Record(
    role=Role.CONTROL, origin=Origin(topic="assay.control", partition=3, offset=7), key=b"", value=b"", timestamp_ms=9
)


def a_registry(*facts: Fact, **limits: int) -> Registry:
    registry = Registry(producer=Producer(version="1"), limits=Limits(**limits))
    for fact in facts:
        Step(registry, RECORD).publish(fact)
    return registry


def written(registry: Registry, change: Callable[..., None], *about: object) -> list[Output]:
    step = Step(registry, RECORD)
    change(step, *about)
    return step.outputs


def told(outputs: list[Output]) -> list[tuple[str, bool]]:
    return [(str(decode_key(output.key)[0]), output.value is not None) for output in outputs]


def controls_of(registry: Registry) -> Controls:
    return registry.bindings.server(SERVER).controls


SIGNED, CHECKED = signed_by("k", "t")


def test_what_is_retracted_is_forgotten_and_its_key_deleted() -> None:
    discovery = a_discovery("k", time_us=1, offset=0)
    registry = a_registry(discovery)
    (output,) = written(registry, Step.retract, discovery.key())
    assert (output.key, output.value) == (fact_output(discovery, partition=3).key, None)
    assert (output.role, output.partition, output.label) == (Role.BINDINGS, 3, "fact:retracted")
    assert controls_of(registry).discoveries == {}


def test_signatures_go_with_the_last_observation_that_names_them() -> None:
    registry = a_registry(timeline_entries_max=1)
    registry.bindings.servers.update(bindings_with(a_catalogue("one", {"t": "a"})).servers)
    server = registry.bindings.server(SERVER)
    observations = [
        seen("alice", 1, "one", offset=0, signatures="set"),
        seen("bob", 2, "one", offset=1, signatures="set"),
        seen("alice", 3, "one", offset=2),
        seen("bob", 4, "one", offset=3),
    ]
    for fact in (SIGNED, CHECKED):
        Step(registry, RECORD).publish(fact)
    outputs = []
    for observation in observations:
        Step(registry, RECORD).publish(observation)
        outputs.append(told(written(registry, fold, server, observation)))
    assert outputs[:2] == [[], []]
    assert outputs[2] == [("seen", False), ("horizon", True)]
    assert outputs[3] == [("seen", False), ("horizon", True), ("signatures", False), ("checked", False)]
    assert (server.controls.signatures, server.controls.checked) == ({}, {})


def test_prompts_go_with_the_last_observation_that_names_them() -> None:
    registry = a_registry(timeline_entries_max=1)
    registry.bindings.server(SERVER).catalogues = (
        bindings_with(a_catalogue("one", {"t": "a"})).server(SERVER).catalogues
    )
    server = registry.bindings.server(SERVER)
    subject = Subject.PROMPT
    for full in ("a", "b"):
        Step(registry, RECORD).publish(ItemFact(server_id=SERVER, subject=subject, full=full, packed=None))
    for digest, items in (("both", (("p", "a"), ("q", "b"))), ("one", (("p", "a"),))):
        listed = ItemList(server_id=SERVER, subject=subject, digest=digest, items=items, is_cut=False)
        Step(registry, RECORD).publish(listed)
    outputs = []
    for offset, (observer, prompts) in enumerate(
        [("alice", "both"), ("bob", "both"), ("alice", "one"), ("bob", None), ("alice", None)]
    ):
        observation = seen(observer, offset, "one", offset=offset, prompts=prompts)
        Step(registry, RECORD).publish(observation)
        outputs.append([kind for kind in told(written(registry, fold, server, observation)) if "item" in kind[0]])
    gone = [("item_list", False), ("item", False)]
    assert outputs == [[], [], [], gone, gone]
    assert (server.items, server.item_lists) == ({}, {})


def discovered(*keys: str | None, discoveries_max: int) -> tuple[list[Discovery], Registry, list[Output]]:
    found = [
        a_discovery(key, time_us=number, offset=number, status="fetch_failed" if key is None else "observed")
        for number, key in enumerate(keys)
    ]
    registry = a_registry(*found, discoveries_max=discoveries_max)
    outputs = written(registry, fold_discoveries, registry.bindings.server(SERVER), "example.com")
    return found, registry, outputs


def test_of_too_many_discoveries_repeats_are_folded_first() -> None:
    """One that stands between two that found the same changes no answer by going."""
    found, registry, outputs = discovered("k", "l", "l", "l", "m", discoveries_max=4)
    assert controls_of(registry).discoveries["example.com"] == [found[0], found[1], found[3], found[4]]
    assert told(outputs) == [("discovery", False)]


def test_of_too_many_different_discoveries_the_oldest_goes() -> None:
    """Failures count as what they are: no repeat of the document before them."""
    found, registry, _ = discovered("k", None, "k", "l", discoveries_max=2)
    assert controls_of(registry).discoveries["example.com"] == found[2:]


def test_checks_go_with_the_last_document_of_their_key() -> None:
    other = Checked(server_id=SERVER, signatures="set", fingerprint="l", modes={})
    found = (a_discovery("k", time_us=1, offset=0), a_discovery("l", time_us=2, offset=1))
    registry = a_registry(*found, SIGNED, CHECKED, other, discoveries_max=1)
    outputs = written(registry, fold_discoveries, registry.bindings.server(SERVER), "example.com")
    assert told(outputs) == [("discovery", False), ("checked", False)]
    assert controls_of(registry).checked == {("set", "l"): other}


def test_signatures_that_two_partitions_hold_stay_while_one_of_them_does() -> None:
    """A server that stands in two partitions has two registries; a join sees the facts of both."""
    registry = a_registry()
    for partition in (0, 1):
        registry.bindings.apply(SIGNED, partition=partition)
    registry.bindings.forget(SIGNED.key(), partition=1)
    assert controls_of(registry).signatures == {"set": SIGNED}
    registry.bindings.forget(SIGNED.key(), partition=0)
    assert controls_of(registry).signatures == {}


def test_the_oldest_rejections_become_one_that_ends_what_either_did() -> None:
    registry = a_registry(rejection(1, offset=1), rejection(5, offset=5), rejections_max=1)
    server = registry.bindings.server(SERVER)
    outputs = written(registry, merge_rejections, server, None)
    assert told(outputs) == [("rejection", False), ("rejection", True)]
    (kept,) = server.rejections
    assert (kept.time_us, kept.origin.offset) == (1, 5)
    assert json.loads(outputs[1].value or b"")["time_us"] == 1


def test_a_rejection_after_which_nothing_was_observed_makes_a_further_one_redundant() -> None:
    registry = a_registry(seen("alice", 1, "one", offset=0), rejection(2, offset=1))
    server = registry.bindings.server(SERVER)
    assert is_redundant(server, rejection(3, offset=2))
    assert not is_redundant(server, rejection(1, offset=2))
    Step(registry, RECORD).publish(seen("alice", 3, "one", offset=2))
    assert not is_redundant(server, rejection(4, offset=3))
    assert not is_redundant(a_registry().bindings.server(SERVER), rejection(4, offset=3))


def test_a_definition_stays_while_a_catalogue_names_it() -> None:
    registry = a_registry(timeline_entries_max=1)
    catalogues = (a_catalogue("one", {"t": "a", "u": "b"}), a_catalogue("two", {"t": "a"}))
    registry.bindings.servers.update(bindings_with(*catalogues).servers)
    server = registry.bindings.server(SERVER)
    Step(registry, RECORD).publish(seen("alice", 1, "one", offset=0))
    newer = seen("alice", 2, "two", offset=1)
    Step(registry, RECORD).publish(newer)
    assert told(written(registry, fold, server, newer)) == [
        ("seen", False),
        ("horizon", True),
        ("catalogue", False),
        ("tool", False),
    ]
    assert server.tools == {(True, "full:a"): a_fingerprint("a")}


LIMITS = {"seen_run_rows_min": 3, "seen_run_rows_max": 6}


def told_with_offsets(outputs: list[Output]) -> list[tuple[str, int, bool]]:
    keys = [decode_key(output.key) for output in outputs]
    return [(str(k[0]), int(k[-1]), out.value is not None) for k, out in zip(keys, outputs, strict=True)]


def step(registry: Registry, fact: Seen) -> list[tuple[str, int, bool]]:
    Step(registry, RECORD).publish(fact)
    timeline = registry.bindings.server(SERVER).observers[fact.observer_id]
    return told_with_offsets(written(registry, pack_repeats, timeline, fact))


def lists(*times_us: int, catalogue: str = "one") -> list[Seen]:
    return [seen("alice", time_us, catalogue, offset=time_us) for time_us in times_us]


def test_as_many_repeats_as_a_run_needs_become_one() -> None:
    """With tombstones of the single facts behind it, so that no reader misses a list in between."""
    registry = a_registry(**LIMITS)
    gone = [("seen", offset, False) for offset in (1, 2, 3)]
    assert [step(registry, fact) for fact in lists(1, 2, 3)] == [[], [], [("seen_run", 1, True), *gone]]


def test_rows_are_cut_until_half_are_gone() -> None:
    registry = a_registry(**LIMITS)
    facts = lists(1, 2, 3, 4, 5, 6)
    for fact in facts:
        step(registry, fact)
    timeline = registry.bindings.server(SERVER).observers["alice"]
    cut, run = ("run_cut", 1, True), ("seen_run", 1, True)
    assert [told_with_offsets(written(registry, take_away, timeline, fact)) for fact in facts] == [
        [cut],
        [cut],
        [cut, run, ("run_cut", 1, False)],
        [cut],
        [cut, run, ("run_cut", 1, False)],
        [("seen_run", 1, False)],
    ]
    assert not timeline
