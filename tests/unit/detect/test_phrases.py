"""Phrases and where they are found."""

from __future__ import annotations

import pytest

from assay_stream.detect.phrases import PhraseBook
from assay_stream.text.words import Words
from assay_stream.work import UNLIMITED, Work


def found(phrase: str, text: str, **given: list[tuple[int, int]]) -> list[str]:
    words = Words(text)
    return [
        " ".join(words.forms[first:end])
        for _, (first, end) in PhraseBook([("key", phrase)]).search(
            words, lambda name: given.get(name, []), Work(UNLIMITED)
        )
    ]


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("a|b c", "a c", ["a c"]),
        ("a|b c", "a x c", []),
        ("a ~1 c", "a x c", ["a x c"]),
        ("a ~1 c", "a x x c", []),
        ("stem* end", "Stemming end", ["stemming end"]),
        ("two_words|one next", "two words next", ["two words next"]),
        ("two_words next", "two other words next", []),
        ("a ~2 c", "a. c", []),
        ("a ~3 c", "a. c", ["a c"]),
        ("忽略 ~3 指令", "忽略之前指令", ["忽 略 之 前 指 令"]),
        ("a b", "a a b b", ["a b"]),
    ],
)
def test_phrase(phrase: str, text: str, expected: list[str]) -> None:
    assert found(phrase, text) == expected


def test_given_places() -> None:
    assert found("use {tool}", "use my tool", tool=[(1, 3)]) == ["use my tool"]
    assert found("use {tool}", "use my tool") == []
    assert found("{tool} first", "x first", tool=[(0, 1)]) == ["x first"]
