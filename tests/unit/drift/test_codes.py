"""The table of codes."""

from __future__ import annotations

import re

from assay_stream.drift.codes import CODES, MIRRORS
from assay_stream.drift.severity import Level
from assay_stream.drift.severity_by_code import BY_CODE


def test_the_mirror_of_the_mirror_is_the_code() -> None:
    """Mirrors come in pairs, with opposite directions."""
    for code, mirror in MIRRORS.items():
        assert MIRRORS[mirror] == code
        assert CODES[mirror].direction is CODES[code].direction.mirrored()


def test_codes_are_stable_words_with_titles() -> None:
    """Codes are snake_case, titles are one line."""
    for code, info in CODES.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert info.title
        assert "\n" not in info.title


def test_each_code_has_a_level() -> None:
    """The profile that goes by codes knows each of them, and no other."""
    assert BY_CODE.keys() == CODES.keys()
    assert set(BY_CODE.values()) <= {str(level) for level in Level}
