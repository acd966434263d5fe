"""Room that people share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from assay_stream.console.sessions import Session
from assay_stream.console.shares import Shares
from assay_stream.errors import OperatingError
from tests.support.console import ALICE, VICTOR


def test_one_person_leaves_room_for_others() -> None:
    """Whatever session they use; a place is free again once it is left."""
    shares = Shares(2)
    first, second = (Session(operator=VICTOR, csrf_token=token) for token in "ab")
    with ExitStack() as taken:
        taken.enter_context(shares.by(first))
        taken.enter_context(shares.by(second))
        with pytest.raises(OperatingError, match="too many pages"), shares.by(first):
            pass
        with shares.by(Session(operator=ALICE, csrf_token="c")):
            pass
    with shares.by(first):
        pass


def test_where_nobody_is_known_nobody_is_bounded() -> None:
    """All would count as one."""
    shares = Shares(1)
    with shares.by(None), shares.by(None):
        pass
