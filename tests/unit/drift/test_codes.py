"""The table of codes."""

from __future__ import annotations

import re

from assay_stream.drift.change import CODES
from assay_stream.drift.severity import Level


def test_the_opposite_of_the_opposite_is_the_code() -> None:
    for code, info in CODES.items():
        opposite = CODES[info.opposite]
        assert opposite.opposite == code
        assert opposite.direction is info.direction.mirrored()


def test_codes_are_stable_words_with_titles() -> None:
    for code, info in CODES.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert info.title
        assert "\n" not in info.title


def test_each_code_has_a_level() -> None:
    assert {info.level for info in CODES.values()} <= {str(level) for level in Level}
