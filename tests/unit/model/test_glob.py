"""Globs over names."""

from __future__ import annotations

import pytest

from assay_stream.errors import InputError
from assay_stream.model.fields import compile_glob


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("*", "anything\nat all", True),
        ("read_*", "read_file", True),
        ("read_*", "unread_file", False),
        ("read_?", "read_", False),
        ("[rw]ead", "read", True),
        ("[!rw]ead", "read", False),
        ("a.b", "aXb", False),
        ("", "", True),
        ("Read", "read", False),
    ],
)
def test_a_glob_matches_whole_names(glob: str, name: str, expected: bool) -> None:
    assert (compile_glob(glob).fullmatch(name) is not None) is expected


@pytest.mark.parametrize("glob", ["[", "a[bc", "[]", "[!]", "a]", "[[a]]"])
def test_a_bad_set_is_refused(glob: str) -> None:
    with pytest.raises(InputError) as caught:
        compile_glob(glob)
    assert caught.value.code == "bad_pattern"


def test_a_long_glob_takes_no_long_time() -> None:
    assert compile_glob("*a" * 25 + "b").fullmatch("a" * 1_000) is None
    with pytest.raises(InputError):
        compile_glob("[a" * 10_000)
