"""Pages of many texts at once: read in a few passes over all of them, and kept for the next definition."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from assay_stream.detect.catalog import RULES
from assay_stream.detect.decoders import GATES, gates_of
from assay_stream.detect.needles import CHARS_PER_UNIT, UNITS_PER_HIT, Joined, Needles, gated
from assay_stream.detect.page import SHORT_CHARS_MAX, Page, PageHints
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.text.normalization import units_to_normalize
from assay_stream.text.words import as_read
from assay_stream.work import Work

RULE_NEEDLES: Final = Needles({rule.id: rule.needles for rule in RULES})
"""The needles of all patterns."""
_NULL = "\x00"
_UNITS_PER_PAGE = 40
_UNITS_PER_PAGE_CHAR = 1

# Texts without any of these stand as their reader sees them.
_DRESSED = re.compile("[^\\n\\r\\t -~\\x00]")
_UNSEEN = re.compile(
    "[\\x01-\\x08\\x0e-\\x1f\\x9b\u00ad\u034f\u115f\u1160\u180e\u200b-\u200d\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]"
)
_WIDE = re.compile("[ \t\u00a0\u2000-\u200a\u3000]{80}")
_BLANKS = " " * 80
_EMPTY_LINES = re.compile("\n[ \t]{0,40}\r?\n[ \t]{0,40}\r?\n")


class _Kept:
    """Pages of texts that were read of late.

    Nothing in them depends on what was read before, so what is kept changes no finding and no unit.

    Args:
        pages_max: how many.
        chars_max: how many characters their texts have together.
    """

    def __init__(self, pages_max: int, chars_max: int) -> None:
        self._pages: dict[str, Page] = {}
        self._pages_max = pages_max
        self._chars_max = chars_max
        self._chars_left = chars_max
        self.get = self._pages.get

    def put(self, page: Page) -> None:
        """Keep a page, and forget all others where there is no room."""
        chars = len(page.raw) + len(page.seen)
        if self._chars_left < chars or len(self._pages) >= self._pages_max:
            self.forget()
        if chars <= self._chars_max:
            self._pages[page.raw] = page
            self._chars_left -= chars

    def forget(self) -> None:
        """Forget all pages."""
        self._pages.clear()
        self._chars_left = self._chars_max


# Lists share their short texts. A longer one is met again where a definition that changed is searched in whole.
_SHORT = _Kept(DEFAULT_LIMITS.short_pages_max, DEFAULT_LIMITS.short_pages_max * SHORT_CHARS_MAX)
_LONG = _Kept(DEFAULT_LIMITS.long_pages_max, DEFAULT_LIMITS.long_pages_chars_max)


def forget() -> None:
    """Forget all pages that are kept: what was found out about them holds for one set of rules."""
    _SHORT.forget()
    _LONG.forget()


def _kept(raw: str) -> Page | None:
    return (_SHORT if len(raw) <= SHORT_CHARS_MAX else _LONG).get(raw)


def _keep(page: Page) -> None:
    (_SHORT if page.is_short else _LONG).put(page)


def pages_of(texts: Iterable[str], work: Work) -> dict[str, Page]:
    """Return a page for each text. One that stands in many places is read once."""
    found = {text: _kept(text) for text in texts}
    if not found:
        return {}
    chars = sum(map(len, found))
    work.spend(_UNITS_PER_PAGE * len(found) + _UNITS_PER_PAGE_CHAR * chars)
    work.spend((chars + len(found) - 1) // CHARS_PER_UNIT)
    new = [raw for raw, page in found.items() if page is None]
    joined = Joined(new)
    dressed = gated(_DRESSED, joined) | _with_null(joined, new)
    made = [_dressed_page(raw, work) if index in dressed else _bare_page(raw) for index, raw in enumerate(new)]
    work.spend(sum(page.units for page in found.values() if page is not None and page.is_dressed))
    for page in made:
        found[page.raw] = page
    pages = {raw: page for raw, page in found.items() if page is not None}
    _give_hints(made, pages.values(), work, is_dressed=any(page.is_dressed for page in pages.values()))
    return pages


def decoded_page(text: str, work: Work) -> Page:
    """Return a page for what a text says once it is decoded."""
    page = _kept(text)
    if page is not None:
        work.spend(page.units)
        _give_hints([], [page], work, is_dressed=True)
        return page
    is_dressed = _DRESSED.search(text) is not None or _NULL in text
    page = _dressed_page(text, work, is_dressed=is_dressed)
    _give_hints([page], [page], work, is_dressed=True)
    return page


def _bare_page(raw: str) -> Page:
    return Page(raw, raw, is_dressed=False, units=units_to_normalize(raw))


def _dressed_page(raw: str, work: Work, *, is_dressed: bool = True) -> Page:
    before = work.spent
    seen = shown(raw, work)
    return Page(raw, seen, is_dressed=is_dressed, units=work.spent - before)


def shown(raw: str, work: Work) -> str:
    """Return a text as its reader sees it."""
    work.spend(units_to_normalize(raw))
    seen = as_read(raw)
    # Compatibility forms can be eighteen times as long as what they stand for, and their words are normalised too.
    work.spend(units_to_normalize(seen) if seen != raw else 0)
    return seen


def _give_hints(new: Sequence[Page], pages: Collection[Page], work: Work, *, is_dressed: bool) -> None:
    """Find out what can stand in new pages, in a few passes over all of them together. The work is spent for all.

    Args:
        new: pages that have no hints yet.
        pages: these, and those that had been read before.
        work: the budget.
        is_dressed: whether characters that a reader does not see are looked for.
    """
    between = len(pages) - 1
    work.spend((sum(page.lowered_chars for page in pages) + between) // CHARS_PER_UNIT)
    passes = len(GATES) + 3 if is_dressed else len(GATES) + 2
    work.spend(passes * ((sum(len(page.raw) for page in pages) + between) // CHARS_PER_UNIT))
    if new:
        raws = Joined([page.raw for page in new])
        rules, hits = RULE_NEEDLES.found_in(Joined([page.lowered for page in new]))
        unseen: set[int] = set()
        if is_dressed:
            unseen = gated(_UNSEEN, raws) | _with_null(raws, [page.raw for page in new])
        wide = _wide(raws) | gated(_EMPTY_LINES, raws)
        views: dict[int, set[str]] = {}
        for view, indexes in gates_of(raws).items():
            for index in indexes:
                views.setdefault(index, set()).add(view)
        for index in rules.keys() | unseen | wide | views.keys():
            new[index].hints = PageHints(
                rules=rules.get(index, frozenset()),
                is_unseen=index in unseen,
                is_wide=index in wide,
                views=views.get(index, frozenset()),
            )
        for index, count in hits.items():
            new[index].hits = count
        for page in new:
            _keep(page)
    work.spend(UNITS_PER_HIT * sum(page.hits for page in pages))


def _with_null(joined: Joined, raws: Sequence[str]) -> set[int]:
    if joined.text.count(_NULL) < len(raws):
        return set()
    return {index for index, raw in enumerate(raws) if _NULL in raw}


def _wide(raws: Joined) -> set[int]:
    """Return the indexes of the texts with a long run of white space."""
    text = raws.text
    return set() if text.isascii() and "\t" not in text and _BLANKS not in text else gated(_WIDE, raws)
