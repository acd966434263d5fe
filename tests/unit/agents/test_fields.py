"""Keys declared by field names."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.agents import Event, Fields, Origin


@pytest.mark.parametrize(("data", "key"), [({"tool": "t", "trace_id": "1"}, ("1", "t")), ({"tool": "t"}, None)])
def test_a_key_is_the_values_of_fields_or_none_where_one_is_missing(data: dict[str, str], key: Any) -> None:
    """An agent by trace does not read calls without one."""
    assert Fields("trace_id", "tool")(Event({"data": data}, 0, Origin("t", 0, 0), "s")) == key
