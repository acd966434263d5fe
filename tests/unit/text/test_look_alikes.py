"""Skeletons of tool names: which look alike, and which do not."""

from __future__ import annotations

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.look_alikes import skeleton


@pytest.mark.parametrize(
    "other",
    [
        "read-file",
        "read.file",
        "read file",
        "readFile",
        "READ_FILE",
        "re\u0430d_file",
        "r\u0435ad_file",
        "read\u200b_file",
        "read_fi\u0142e".replace("\u0142", "l"),
        "read_f1le",
        "read_flle",
        "\uff52ead_file",
        "re\u0301ad_file",
        "read_f\u0131le",
    ],
)
def test_names_that_look_alike_have_one_skeleton(other: str) -> None:
    """Separators, case, other scripts, invisible characters, digits and width do not count."""
    assert skeleton(other) == skeleton("read_file")


@pytest.mark.parametrize(
    "pair", [("confirm", "confirrn"), ("go_online", "g0_0nline"), ("view", "vlew"), ("week", "vveek")]
)
def test_letters_drawn_alike_are_equal(pair: tuple[str, str]) -> None:
    """Pairs of letters for one, digits for letters."""
    assert skeleton(pair[0]) == skeleton(pair[1])


@pytest.mark.parametrize("other", ["read_files", "write_file", "file_read", "read", "read_fi1e2"])
def test_other_names_have_another(other: str) -> None:
    """A letter more, or another word, is another name."""
    assert skeleton(other) != skeleton("read_file")


def test_a_name_of_separators_is_its_own() -> None:
    """There is always something to compare."""
    assert skeleton("-") == "-"


def test_a_long_name_is_bounded() -> None:
    """It is a key; names that differ at their ends still differ."""
    long = "a" * 10_000
    assert len(skeleton(long)) <= DEFAULT_LIMITS.skeleton_chars_max
    assert skeleton(long) != skeleton(long + "b")
