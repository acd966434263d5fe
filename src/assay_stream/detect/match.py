"""What a rule found in a text."""

from __future__ import annotations

from typing import NamedTuple

from assay_stream.detect.catalog import DetectionRule
from assay_stream.detect.places import host_of
from assay_stream.detect.surfaces import Place

Key = tuple[str, ...]
"""What distinguishes matches of one rule: words, or the host of an address, or the match itself."""


class Match(NamedTuple):
    """A match of a rule in one reading of a text.

    Args:
        level: OCSF severity id that it raises to.
        text: the reading.
        start: where the match begins in it.
        end: where it ends, exclusive.
        key: what must not have matched before: words, or the host of an address, or the match itself.
        place: where the text stands in its definition.
        how: the disguises that were undone to read it, outermost first: ``base64 > hex``.
    """

    rule: str
    level: int
    text: str
    start: int
    end: int
    key: Key
    place: Place
    how: str = ""


def key_of(rule: DetectionRule, matched: str) -> Key:
    if rule.id == "url_introduced":
        return (host_of(matched),)
    return (" ".join(matched.split()).lower() if rule.searched_in == "seen" else matched,)
