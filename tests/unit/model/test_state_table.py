"""A table of values in a compacted topic."""

from __future__ import annotations

import pytest

from assay_stream.model.record import Role
from assay_stream.model.state_table import StateTable


def test_the_key_of_the_progress_record_cannot_be_used() -> None:
    table = StateTable(Role.ALERT_STATES, 0, "input")
    with pytest.raises(ValueError, match="'progress' is reserved"):
        table["progress"] = {}
