"""Semantic versions: what is one, and which comes first. The examples are those of semver.org 2.0.0."""

from __future__ import annotations

from itertools import pairwise

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.members import is_plain, parse_version


def test_all_parts_are_read() -> None:
    assert parse_version("1.22.3-rc.1+exp.5").to_tuple() == (1, 22, 3, "rc.1", "exp.5")


@pytest.mark.parametrize(
    "text",
    ["0.0.4", "10.20.30", "1.0.0-alpha.0valid", "1.0.0-0A.is.legal", "1.0.0+001", "1.0.0--", "1.0.0-alpha-a.b-c+build"],
)
def test_what_the_specification_calls_valid(text: str) -> None:
    assert parse_version(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1.2", "1.2.3.4", "01.1.1", "1.01.1", "1.1.01", "v1.2.3", " 1.2.3", "1.2.3\n", "1.2.3-", "1.2.3+"),
        *("1.2.3-0123", "1.2.3-a..b", "1.2.3-é", "1.2.3+a+b", "-1.0.0", "١.0.0", "1.1.2+.123", "1.2-SNAPSHOT"),
    ],
)
def test_what_the_specification_calls_invalid(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_version(text)
    assert caught.value.code == "bad_format"


def test_a_version_has_a_length() -> None:
    assert parse_version("1.0." + "9" * 60).patch == int("9" * 60)
    with pytest.raises(InputError) as caught:
        parse_version("1.0." + "9" * 61)
    assert caught.value.code == "too_long"


def test_the_order_is_that_of_the_specification() -> None:
    """Clauses 11.2 and 11.4: each precedes the next, and none the one before."""
    order = (
        *("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"),
        *("1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1", "10.0.0"),
    )
    for lower, higher in pairwise(order):
        assert parse_version(lower) < parse_version(higher)
        assert not parse_version(higher) < parse_version(lower)


def test_builds_have_no_order() -> None:
    """Clause 10: neither of two builds of one version precedes the other."""
    one, other = parse_version("1.0.0+1"), parse_version("1.0.0+2")
    assert not one < other
    assert not other < one


@pytest.mark.parametrize(("text", "plain"), [("1.0.0", True), ("1.0.0-rc", False), ("1.0.0+b", False)])
def test_a_plain_version_has_no_labels(text: str, plain: bool) -> None:
    assert is_plain(parse_version(text)) is plain
