"""Two texts held against each other word by word, in bounded time: Myers' greedy algorithm with a limit.

Source: E. W. Myers, "An O(ND) difference algorithm and its variations", 1986, figure 2.
"""

import re
import string
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice, pairwise
from typing import Literal, NamedTuple

from assay_stream.work import Work, WorkExhaustedError

_SINGLE = "぀-ヿ㐀-䶿一-鿿豈-﫿가-힣"
_TOKEN = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}]+\s?|[^\w\s]\s?|\s")
_ENDS_WORD = re.compile(rf"[\s{_SINGLE}]")
_TOKENS_MAX = 8_000
"""Words of both texts between what they begin and end with alike; beyond, all of that is shown as replaced."""

_EDITS_MAX = 400
"""Words gone and come; beyond, two texts have too little in common for a comparison to be read."""

_UNITS_PER_CHAR, _UNITS_PER_DIAGONAL = 2, 8
_CONTEXT_CHARS = 80
_HEAD_CHARS, _TAIL_CHARS = 4_000, 1_000

_JOINTS = frozenset(string.punctuation + " ")
_JOINT_CHARS_MAX = 2
"""As much punctuation between two changes as is no reason to show them as two."""

Op = Literal["same", "gone", "come", "note"]
_CHANGED: tuple[Op, ...] = ("gone", "come")


class Piece(NamedTuple):
    """A piece of a comparison.

    Args:
        op: whether it is in both texts, went, came, or is a note of ours on what is left out.
        is_marked: whether its reader is pointed to it.
    """

    op: Op
    text: str
    is_marked: bool = False


def marked(pieces: Iterable[Piece], spans: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """Yield a comparison with some places of the newer text marked; places that touch are one."""
    places: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if places and first <= places[-1][1]:
            first, last = places[-1][0], max(places.pop()[1], last)
        places.append((first, last))
    at = 0
    for piece in pieces:
        if piece.op not in ("same", "come"):
            yield piece
            continue
        end = at + len(piece.text)
        for start, stop in pairwise(sorted({at, end, *(cut for place in places for cut in place if at < cut < end)})):
            is_marked = any(first <= start < last for first, last in places)
            yield Piece(piece.op, piece.text[start - at : stop - at], is_marked)
        at = end


def word_diff(before: str, after: str, work: Work) -> list[Piece]:
    """Return two texts as one sequence of pieces; those gone stand before those that came in their place.

    Without enough work left, what lies between their common beginning and end is shown as replaced.
    """
    head, tail = _in_common(before, after)
    was, now = (text[head : len(text) - tail] for text in (before, after))
    try:
        work.spend(_UNITS_PER_CHAR * (len(was) + len(now)))
        middle = _words(was, now, work)
    except WorkExhaustedError:
        middle = [Piece("gone", was), Piece("come", now)]
    pieces = [Piece("same", before[:head]), *middle, Piece("same", before[len(before) - tail :])]
    return _joined([piece for piece in pieces if piece.text])


def _in_common(before: str, after: str) -> tuple[int, int]:
    """Return how many characters of whole words two texts begin with alike, and how many they end with alike."""
    limit = min(len(before), len(after))
    head = _longest(limit, lambda length: before[:length] == after[:length])
    while head and not _ENDS_WORD.match(before, head - 1):
        head -= 1
    limit -= head
    tail = _longest(limit, lambda length: before[len(before) - length :] == after[len(after) - length :])
    if tail < len(before) or tail < len(after):
        # The first word of it may be torn: what stands before it differs.
        torn = _ENDS_WORD.search(before, len(before) - tail)
        tail = 0 if torn is None else len(before) - torn.end()
    return head, tail


def _longest(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to a limit for which a monotone predicate holds."""
    return bisect_left(range(1, limit + 1), True, key=lambda length: not holds(length))


def _words(before: str, after: str, work: Work) -> list[Piece]:
    was, now = ([token[0] for token in islice(_TOKEN.finditer(text), 2 * _TOKENS_MAX + 1)] for text in (before, after))
    if max(len(was), len(now)) > 2 * _TOKENS_MAX:
        return [Piece("gone", before), Piece("come", after)]
    start, limit = 0, min(len(was), len(now))
    while start < limit and was[start] == now[start]:
        start += 1
    end = 0
    while end < limit - start and was[-1 - end] == now[-1 - end]:
        end += 1
    was_middle, now_middle = was[start : len(was) - end], now[start : len(now) - end]
    pieces: list[Piece] = [Piece("same", word) for word in was[:start]]
    pieces += _middle(was_middle, now_middle, work)
    pieces += [Piece("same", word) for word in was[len(was) - end :]]
    return pieces


def shortened(pieces: Sequence[Piece], *, full: bool = False) -> list[Piece]:
    """Return a comparison without most of what is the same, and without the middle of what is very long."""
    short: list[Piece] = []
    for index, piece in enumerate(pieces):
        if piece.op == "same":
            head = _CONTEXT_CHARS if index else 0
            tail = _CONTEXT_CHARS if index + 1 < len(pieces) else 0
            short += _cut(piece, head, tail, "… {:,} characters unchanged …")
        elif full:
            short.append(piece)
        else:
            short += _cut(piece, _HEAD_CHARS, _TAIL_CHARS, "… {:,} characters more, shown with --full …")
    return short


def _cut(piece: Piece, head: int, tail: int, note: str) -> list[Piece]:
    left_out = len(piece.text) - head - tail
    if left_out <= len(note):
        return [piece]
    kept = [
        piece._replace(text=piece.text[:head]),
        Piece("note", note.format(left_out)),
        piece._replace(text=piece.text[len(piece.text) - tail :]),
    ]
    return [each for each in kept if each.text]


def _middle(was: list[str], now: list[str], work: Work) -> list[Piece]:
    replaced = [*(Piece("gone", word) for word in was), *(Piece("come", word) for word in now)]
    if not was or not now or len(was) + len(now) > _TOKENS_MAX:
        return replaced
    numbers: dict[str, int] = {}
    one = [numbers.setdefault(word, len(numbers)) for word in was]
    other = [numbers.setdefault(word, len(numbers)) for word in now]
    trace = _trace(one, other, work)
    return replaced if trace is None else _walk_back(trace, was, now)


def _trace(one: list[int], other: list[int], work: Work) -> list[dict[int, int]] | None:
    """Return, for each number of edits, how far each diagonal was reached before it; ``None`` beyond the limit."""
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(min(_EDITS_MAX, len(one) + len(other)) + 1):
        trace.append(dict(furthest))
        work.spend(_UNITS_PER_DIAGONAL * len(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            start, _ = _entered(furthest, diagonal, edits)
            x, y = start, start - diagonal
            while x < len(one) and y < len(other) and one[x] == other[y]:
                x, y = x + 1, y + 1
            work.spend(x - start)
            furthest[diagonal] = x
            if x >= len(one) and y >= len(other):
                return trace
    return None


def _entered(furthest: dict[int, int], diagonal: int, edits: int) -> tuple[int, bool]:
    """Return where a diagonal is entered, and whether by a word that came."""
    if diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1]):
        return furthest[diagonal + 1], True
    return furthest[diagonal - 1] + 1, False


def _walk_back(trace: list[dict[int, int]], was: list[str], now: list[str]) -> list[Piece]:
    x, y = len(was), len(now)
    backwards: list[Piece] = []
    for edits in range(len(trace) - 1, -1, -1):
        furthest, diagonal = trace[edits], x - y
        start, has_come = _entered(furthest, diagonal, edits)
        while x > start and y > start - diagonal:
            x, y = x - 1, y - 1
            backwards.append(Piece("same", was[x]))
        if edits:
            if has_come:
                y -= 1
                backwards.append(Piece("come", now[y]))
            else:
                x -= 1
                backwards.append(Piece("gone", was[x]))
    return backwards[::-1]


def _joined(pieces: list[Piece]) -> list[Piece]:
    runs = [(is_same, list(group)) for is_same, group in groupby(pieces, key=lambda piece: piece.op == "same")]
    untorn: list[Piece] = []
    for index, (is_same, run) in enumerate(runs):
        text = "".join(piece.text for piece in run)
        is_joint = len(text) <= _JOINT_CHARS_MAX and _JOINTS.issuperset(text)
        if is_same and 0 < index < len(runs) - 1 and is_joint:
            # A full stop that both texts have somewhere would tear the path in two that the other dot stands in.
            untorn += [Piece(op, piece.text) for piece in run for op in _CHANGED]
        else:
            untorn += run
    return _grouped(untorn)


def _grouped(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for is_same, group in groupby(pieces, key=lambda piece: piece.op == "same"):
        run = list(group)
        ops: tuple[Op, ...] = ("same",) if is_same else _CHANGED
        for op in ops:
            text = "".join(piece.text for piece in run if piece.op == op)
            if text:
                joined.append(Piece(op, text))
    return joined
