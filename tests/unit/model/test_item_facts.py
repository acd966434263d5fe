"""The facts about prompts and resource templates, as the binding topic carries them."""

from __future__ import annotations

import pytest

from assay_stream.bindings.state import Bindings
from assay_stream.errors import IntegrityError
from assay_stream.model.definition_facts import ItemFact, ItemList
from assay_stream.model.facts import Fact, decode_fact, decode_key, encode_key, encode_value
from assay_stream.model.fields import Subject
from tests.support.facts import SERVER

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
ITEM = ItemFact(server_id=SERVER, subject=Subject.PROMPT, full=A, packed="eJwDAAAAAAE=")
UNKEPT = ItemFact(server_id=SERVER, subject=Subject.TEMPLATE, full=B, packed=None)
LIST = ItemList(server_id=SERVER, subject=Subject.PROMPT, digest=B, items=(("p", A), ("p", B), ("q", A)), is_cut=True)


@pytest.mark.parametrize("fact", [ITEM, UNKEPT, LIST])
def test_a_fact_is_read_as_it_was_written(fact: Fact) -> None:
    assert decode_fact(decode_key(encode_key(fact.key())), encode_value(fact)) == fact


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["item","s","tool","d"]', b'{"packed":null}'),
        (b'["item","s","prompt"]', b'{"packed":null}'),
        (b'["item","s","resource","d"]', b'{"packed":null}'),
        (b'["item_list","s","prompt","d"]', b'{"items":[["p"]],"is_cut":false}'),
        (b'["item_list","s","prompt","d"]', b"{}"),
    ],
)
def test_what_this_version_cannot_read_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(IntegrityError, match="cannot read"):
        decode_fact(decode_key(key), value)


def test_a_name_may_stand_several_times() -> None:
    assert LIST.by_name() == {"p": (A, B), "q": (A,)}


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
