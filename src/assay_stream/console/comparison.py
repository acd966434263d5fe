"""Two definitions side by side: each column has what its version says, with the words that went or came marked."""

from __future__ import annotations

from dataclasses import dataclass

from assay_stream.drift.definition_diff import DefinitionDiff, PlaceDiff
from assay_stream.text.word_diff import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesOfPlace:
    """One place of two definitions.

    Args:
        path: where, from the definition's root.
        what: whether it changed, came or went.
        before: the older text, ``()`` where there is none.
        after: the newer text.
    """

    path: str
    what: str
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


def side_by_side(diff: DefinitionDiff) -> tuple[SidesOfPlace, ...]:
    """Return the places that differ, each in two columns; notes on what is left out stand in both."""
    return tuple(
        SidesOfPlace(path=place.path, what=place.what, before=_side(place, "come"), after=_side(place, "gone"))
        for place in diff.places
    )


def _side(place: PlaceDiff, without: str) -> tuple[Piece, ...]:
    kept = tuple(piece for piece in place.pieces if piece.op != without)
    return kept if any(piece.op != "note" for piece in kept) else ()
