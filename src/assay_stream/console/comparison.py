"""Two definitions side by side: one column per version, with removed and added words marked."""

from __future__ import annotations

from dataclasses import dataclass

from assay_stream.drift.definition_diff import DefinitionDiff, PlaceDiff
from assay_stream.text.word_diff import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesOfPlace:
    """One place that differs.

    Args:
        path: path from the definition's root.
        what: changed, added or removed.
        before: the older text, ``()`` if there is none.
        after: the newer text.
    """

    path: str
    what: str
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


def side_by_side(diff: DefinitionDiff) -> tuple[SidesOfPlace, ...]:
    """Return the places that differ, in two columns; notes on omitted text appear in both."""
    return tuple(
        SidesOfPlace(path=place.path, what=place.what, before=_side(place, "come"), after=_side(place, "gone"))
        for place in diff.places
    )


def _side(place: PlaceDiff, without: str) -> tuple[Piece, ...]:
    kept = tuple(piece for piece in place.pieces if piece.op != without)
    return kept if any(piece.op != "note" for piece in kept) else ()
