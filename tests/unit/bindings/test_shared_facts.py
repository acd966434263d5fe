"""Facts that a join reads: equal ones of several servers share what they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay_stream.bindings.state import SharedFacts
from assay_stream.errors import IntegrityError
from assay_stream.model.definition_facts import Catalogue, ToolFact
from assay_stream.model.facts import encode_value
from tests.support.facts import PACKED, a_catalogue, a_fingerprint, seen

CATALOGUE = a_catalogue("one", {"t": "a", "u": "b"})


def a_tool(server_id: str, name: str = "a", *, server_scoped: bool = True) -> ToolFact:
    print_ = a_fingerprint(name)
    return ToolFact.of(server_id=server_id, server_scoped=server_scoped, fingerprint=print_, packed=PACKED)


def read(shared: SharedFacts, fact: ToolFact | Catalogue) -> ToolFact | Catalogue:
    found = shared.read(fact.key(), encode_value(fact))
    assert isinstance(found, ToolFact | Catalogue)
    return found


@pytest.mark.parametrize("bytes_max", [0, 10_000])
def test_each_server_gets_its_own_facts(bytes_max: int) -> None:
    shared = SharedFacts(bytes_max)
    for _ in range(2):
        for server_id in ("one", "two"):
            for name in ("a", "b"):
                for scoped in (True, False):
                    fact = a_tool(server_id, name, server_scoped=scoped)
                    assert read(shared, fact) == replace(fact, packed="")
            listed = replace(CATALOGUE, server_id=server_id)
            assert read(shared, listed) == listed


def test_equal_facts_share_what_they_hold() -> None:
    shared = SharedFacts()
    one, two = read(shared, a_tool("one")), read(shared, a_tool("two"))
    assert isinstance(one, ToolFact)
    assert isinstance(two, ToolFact)
    assert (one.schemes, one.fields) == (two.schemes, two.fields)
    assert one.schemes is two.schemes
    assert one.fields is two.fields
    lists = [read(shared, replace(CATALOGUE, server_id=name)) for name in ("one", "two")]
    assert isinstance(lists[0], Catalogue)
    assert isinstance(lists[1], Catalogue)
    assert lists[0].tools is lists[1].tools


def test_one_key_with_two_values_is_read_as_written() -> None:
    """What is remembered goes by the value too: a definition may be digested anew by a later version."""
    shared = SharedFacts()
    older = a_tool("one")
    newer = replace(older, errors={"assay.v1": "too_deep"})
    assert [read(shared, fact) for fact in (older, newer)] == [replace(f, packed="") for f in (older, newer)]


def test_other_facts_are_read_alike_and_foreign_ones_refused() -> None:
    fact = seen("alice", 1, "one", offset=0)
    shared = SharedFacts()
    assert shared.read(fact.key(), encode_value(fact)) == fact
    with pytest.raises(IntegrityError, match="unknown_fact"):
        shared.read(CATALOGUE.key(), b"[]")
