"""Laws of checking a list without fingerprinting it: what is refused, and why, is the same."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.bindings.offers import Offers, check_offer
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.observation import SnapshotData

LIMITS = replace(
    DEFAULT_LIMITS, identifier_chars_max=4, tool_fields_max=3, field_name_chars_max=5, definition_bytes_max=40
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(("name", "uriTemplate", "x", "fields"))
ITEMS = st.lists(st.dictionaries(FIELDS, JSON, max_size=4), max_size=3)


def a_snapshot(**fields: Any) -> SnapshotData:
    return SnapshotData.model_construct(
        server_id="s", observer_id="o", snapshot_id="l", completeness="complete", server_scoped=False, **fields
    )


def refused(data: SnapshotData, *, in_whole: bool) -> tuple[str, str | None] | None:
    try:
        if in_whole:
            offers = Offers(LIMITS)
            offers.of(data)
            offers.items_of(data)
        else:
            list(check_offer(data, LIMITS))
    except InputError as error:
        return error.code, error.path
    return None


@given(
    tools=ITEMS, prompts=st.none() | ITEMS, templates=st.none() | ITEMS, instructions=st.none() | st.text(max_size=9)
)
def test_a_check_refuses_what_fingerprinting_refuses(
    tools: list[Any], prompts: Any, templates: Any, instructions: str | None
) -> None:
    data = a_snapshot(tools=tools, prompts=prompts, resource_templates=templates, instructions=instructions)
    assert refused(data, in_whole=False) == refused(data, in_whole=True)


@pytest.mark.parametrize("count", [1, 50])
def test_a_check_says_how_much_it_has_looked_at(count: int) -> None:
    """One step for each definition, with its canonical bytes."""
    tools = [{"name": "a", "x": "y"}] * count
    data = a_snapshot(tools=tools, prompts=[{"name": "p"}], resource_templates=None, instructions=None)
    assert list(check_offer(data, LIMITS)) == [len(b'{"name":"a","x":"y"}')] * count + [len(b'{"name":"p"}')]
