"""Facts as the binding topic carries them."""

from dataclasses import replace

import orjson
import pytest

from assay_stream.bindings.sightings import run_fact
from assay_stream.bindings.state import Bindings
from assay_stream.errors import IntegrityError
from assay_stream.model.control import FirstUse
from assay_stream.model.facts import (
    Fact,
    Horizon,
    ItemFact,
    ItemList,
    Progress,
    RunCut,
    ToolFact,
    decode_fact,
    decode_key,
    encode_key,
    encode_value,
    read_progress,
)
from assay_stream.model.fields import Subject
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.step import progress
from tests.support.errors import raises_code
from tests.support.facts import (
    PACKED,
    SERVER,
    a_catalogue,
    a_discovery,
    a_fingerprint,
    a_key_decision,
    a_pin,
    a_policy,
    announcement,
    rejection,
    seen,
    signed_by,
)

FACTS: list[Fact] = [
    ToolFact.of(server_id=SERVER, server_scoped=True, fingerprint=a_fingerprint("a"), packed=PACKED),
    ToolFact.of(server_id=SERVER, server_scoped=False, fingerprint=a_fingerprint("a"), packed=PACKED),
    a_catalogue("one", {"b": "a", "a": "b"}),
    seen('observer:with/odd "signs" é', 7, "one", offset=3, completeness="partial", partition=2),
    rejection(2, offset=1),
    rejection(2, offset=2, observer_id="alice"),
    replace(rejection(2, offset=3), unlisted=True),
    announcement("alice", 3, offset=5),
    replace(announcement("alice", 3, offset=6), overdue=True),
    seen("alice", 9, "one", offset=7, attributed=True),
    seen("alice", 8, "one", offset=4, signatures="set"),
    a_pin(None, time_us=1, offset=1),
    a_pin("x", time_us=1, offset=2, act="reject"),
    a_policy(time_us=1, offset=3),
    a_policy(time_us=1, offset=4, tool_name="t"),
    a_key_decision("accept", "key-1", time_us=1, offset=5),
    a_key_decision("revoke", "key-1", time_us=1, offset=6),
    a_discovery("key-1", time_us=1, offset=7, revoked=("key-0",)),
    a_discovery(None, time_us=1, offset=8, status="fetch_failed"),
    *signed_by("key-1", "t", "u"),
    FirstUse(
        server_id=SERVER,
        domain="example.com",
        tool_name="t",
        fingerprint="key-1",
        origin=Origin(topic="assay.control", partition=0, offset=7),
        time_us=1,
    ),
    run_fact(
        Origin("mcp.tools.list", 2, 3), [seen("alice", 9, "one", offset=offset, partition=2) for offset in (4, 9)]
    ),
    RunCut(server_id=SERVER, observer_id="alice", origin=Origin("mcp.tools.list", 2, 3), gone=(1, 6)),
    Horizon(server_id=SERVER, observer_id="alice", time_us=2**60),
    Progress(topic="mcp.tools.list", partition=1, position=12),
]


def test_equal_facts_have_equal_bytes() -> None:
    one, other = a_catalogue("d", {"x": "1", "y": "2"}), a_catalogue("d", {"y": "2", "x": "1"})
    assert encode_value(one) == encode_value(other)


def test_facts_of_different_things_have_different_keys() -> None:
    assert len({encode_key(fact.key()) for fact in FACTS}) == len(FACTS)


@pytest.mark.parametrize("key", [None, b"", b"server-1", b"7", b"null"])
def test_a_foreign_key_stops_the_reader(key: bytes | None) -> None:
    with raises_code("foreign_fact", kind=IntegrityError):
        decode_key(key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("novelty", SERVER), b"{}"),
        (("seen", SERVER), b"{}"),
        (("item", "s", "tool", "d"), b'{"packed":null}'),
        (("item", "s", "resource", "d"), b'{"packed":null}'),
        (("item_list", "s", "prompt", "d"), b'{"items":[["p"]],"is_cut":false}'),
        (("item_list", "s", "prompt", "d"), b"{}"),
        (("progress", "t", 0), b"{"),
        (("progress", "t", 0), b"[]"),
        ((), b"{}"),
    ],
)
def test_an_unknown_fact_stops_the_reader(key: tuple[str | int, ...], value: bytes) -> None:
    with raises_code("unknown_fact", kind=IntegrityError, match="run the version that wrote it"):
        decode_fact(key, value)


def test_progress_goes_to_the_partition_it_is_about() -> None:
    output = progress(topic="mcp.tools.list", partition=3, position=9)
    assert (output.role, output.partition, output.label) == (Role.BINDINGS, 3, "fact:progress")
    assert orjson.loads(output.key or b"") == ["progress", "mcp.tools.list", 3]
    bindings = Bindings()
    place = Origin(topic="assay.tool.binding", partition=3, offset=0)
    bindings.take(Record(role=Role.BINDINGS, origin=place, key=output.key, value=output.value))
    assert bindings.progress == {("mcp.tools.list", 3): 9}


A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
ITEM = ItemFact(server_id=SERVER, subject=Subject.PROMPT, full=A, packed="eJwDAAAAAAE=")
UNKEPT = ItemFact(server_id=SERVER, subject=Subject.TEMPLATE, full=B, packed=None)
LIST = ItemList(server_id=SERVER, subject=Subject.PROMPT, digest=B, items=(("p", A), ("p", B), ("q", A)), is_cut=True)


def test_only_the_registry_keeps_them() -> None:
    """The join binds no call to them; a tombstone takes them back, and one of what was never kept does nothing."""
    registry, view = Bindings(keep_definitions=True), Bindings()
    for bindings in (registry, view):
        for fact in (ITEM, UNKEPT, LIST):
            bindings.apply(fact)
    server = registry.server(SERVER)
    assert server.items == {(Subject.PROMPT, A): ITEM.packed, (Subject.TEMPLATE, B): None}
    assert server.item_list(Subject.PROMPT, B) == LIST
    assert (view.server(SERVER).items, view.server(SERVER).item_lists) == ({}, {})
    for bindings in (registry, view):
        for fact in (ITEM, UNKEPT, LIST):
            bindings.forget(fact.key())
    assert (server.items, server.item_lists) == ({}, {})
    with pytest.raises(IntegrityError, match="no longer holds"):
        server.item_list(Subject.PROMPT, B)


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b'{"calls":1}', b'{"calls":-1,"rerouted":0}', b'{"calls":"1","rerouted":0}']
)
def test_what_is_not_ours_is_refused(value: bytes | None) -> None:
    """To go on from a made-up offset would skip calls."""
    with pytest.raises(IntegrityError):
        read_progress(value)
