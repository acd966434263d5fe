"""How far the join has come, as it stands in its topic."""

from __future__ import annotations

import pytest

from assay_stream.errors import IntegrityError
from assay_stream.model.facts import JoinProgress, read_progress, write_progress


def test_progress_is_read_as_it_was_written() -> None:
    progress = JoinProgress(calls=7, rerouted=0)
    assert read_progress(write_progress(progress)) == progress


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b'{"calls":1}', b'{"calls":-1,"rerouted":0}', b'{"calls":"1","rerouted":0}']
)
def test_what_is_not_ours_is_refused(value: bytes | None) -> None:
    """To go on from a made-up offset would skip calls."""
    with pytest.raises(IntegrityError):
        read_progress(value)
