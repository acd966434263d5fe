"""Two texts: what of them changed."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.change import ABSENT
from assay_stream.drift.text import compare_texts, words_of
from assay_stream.work import UNLIMITED, Work


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("Reads a file", "Reads a file", None),
        (ABSENT, "Reads", "description_added"),
        ("Reads", ABSENT, "description_removed"),
        ("Reads a file\n* one", "Reads  a file \r\n  * one ", "description_whitespace_changed"),
        ("Reads “a” file - now", "reads 'a' FILE — now.", "description_typography_changed"),
        ("cafe\u0301", "café", "description_typography_changed"),
        ("a b", "a\u00a0b", "description_typography_changed"),
        ("Reads a file", "Reads a file from disk", "description_words_added"),
        ("Reads a file from disk", "Reads a file", "description_words_removed"),
        ("in a specific timezones", "in a specific timezone", "description_spelling_changed"),
        ("recieve mail", "receive mail", "description_spelling_changed"),
        ("Reads a file", "Writes a file", "description_words_changed"),
        # One letter is no spelling where it is another word, a digit, an address, or of another script.
        ("do now", "do not", "description_words_changed"),
        ("see https://example.com", "see https://examp1e.com", "description_words_changed"),
        ("admin only", "\u0430dmin only", "description_words_changed"),
        # What nobody sees is no white space.
        ("Reads a file", "Reads a\u200b file", "description_words_changed"),
        ("Reads a file", "Reads a file\U000e0041\U000e0042", "description_words_changed"),
        ("Reads a file", "Reads a file \u202eelif", "description_words_added"),
        # Punctuation within a word makes names and paths.
        ("next_thought", "nextThought", "description_words_changed"),
        ("Reads", 3, "field_changed"),
        (None, None, None),
    ],
)
def test_what_changed(before: Any, after: Any, code: str | None) -> None:
    assert [change.code for change in compare_texts("description", "$.d", before, after)] == ([code] if code else [])


def test_four_spellings_are_a_change_of_words() -> None:
    """A text in which many words differ by a letter was rewritten."""
    before, after = "houses gardens streets rivers", "house garden street river"
    assert [c.code for c in compare_texts("title", "$", before, after)] == ["title_words_changed"]


def test_the_words_of_a_text() -> None:
    assert words_of("“Read” the, FILE: a_b/c.", Work(UNLIMITED)) == ["read", "the", "file", "a_b/c"]
