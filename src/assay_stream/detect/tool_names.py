"""The names of a list's tools, and where a text has one of them.

1. The index is made once for a list and shared by all of its definitions: a list of n new tools costs n, not n².
2. A name counts as its words (``send_email``, ``sendEmail``), as one word (``sendemail``), and as readers see it.
3. A definition's own name is in the index too. Whoever asks leaves it out by the owners of what was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple

from assay_stream.detect.surfaces import name_words
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.words import Words, visible
from assay_stream.work import UNLIMITED, Work

_UNITS_PER_NAME = 100
_UNITS_PER_NAME_CHAR = 4
_WORD_BITS = 32
_OWNERS_MAX = 2
"""Owners kept of one form: of two, at least one is not the definition's own name."""

Name = tuple[str, ...]
"""The words of a name."""


class Named(NamedTuple):
    """A name in a text.

    Args:
        first: its first word.
        end: the word after its last.
        owners: the names of several words that are read so.
        owners_of_one_word: the names of one word that are read so.
    """

    first: int
    end: int
    owners: Sequence[Name]
    owners_of_one_word: Sequence[Name]


class ToolNames:
    """An index of tool names. It is built when it is first asked, and paid for when it is made.

    Args:
        names: the names of a list.
        work: the budget of whoever asks for it.

    Raises:
        WorkExhaustedError: where the budget does not suffice.
    """

    def __init__(self, names: Collection[str], work: Work) -> None:
        chars_max = DEFAULT_LIMITS.tool_name_chars_max
        for name in names:
            work.spend(_UNITS_PER_NAME + _UNITS_PER_NAME_CHAR * min(len(name), chars_max))
        self._names = names
        self._words: dict[str, int] | None = None
        self._beginnings: set[str] = set()
        self._nodes: dict[int, int] = {}
        self._ends: dict[int, tuple[list[Name], list[Name]]] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def beginnings(self) -> Set[str]:
        """The first words of the names."""
        self._built()
        return self._beginnings

    def find(self, forms: Sequence[str], work: Work) -> Iterator[Named]:
        """Yield every name that stands in a text, by place and length.

        Args:
            forms: the words of the text in their plain form.
            work: the budget.

        Raises:
            WorkExhaustedError: where the budget does not suffice.
        """
        words = self._built()
        if not words:
            return
        work.spend(len(forms))
        ids = [words.get(form, -1) for form in forms]
        for first, word in enumerate(ids):
            node = self._nodes.get(word) if word >= 0 else None
            end = first + 1
            while node is not None:
                work.spend(2)
                if node in self._ends:
                    yield Named(first, end, *self._ends[node])
                if end == len(ids) or ids[end] < 0:
                    break
                node = self._nodes.get(node << _WORD_BITS | ids[end])
                end += 1

    def _built(self) -> dict[str, int]:
        if self._words is None:
            self._words = {}
            for name in sorted(set(self._names)):
                self._add(name[: DEFAULT_LIMITS.tool_name_chars_max], self._words)
        return self._words

    def _add(self, name: str, ids: dict[str, int]) -> None:
        words = own_words(name)
        if not words:
            return
        shown = visible(name)[: DEFAULT_LIMITS.tool_name_chars_max]
        for form in {words, ("".join(words),), tuple(Words(shown).forms)} - {()}:
            self._beginnings.add(form[0])
            node = 0
            for word in islice(form, DEFAULT_LIMITS.tool_name_words_max):
                key = node << _WORD_BITS | ids.setdefault(word, len(ids))
                node = self._nodes.setdefault(key, len(self._nodes) + 1)
            owners = self._ends.setdefault(node, ([], []))[len(words) == 1]
            if len(owners) < _OWNERS_MAX and words not in owners:
                owners.append(words)


def own_words(name: str) -> Name:
    """Return the words of a name by which its owner is told.

    Args:
        name: a tool's name.
    """
    return name_words(name[: DEFAULT_LIMITS.tool_name_chars_max])


NO_TOOLS: Final = ToolNames((), Work(UNLIMITED))
"""No names: a definition that is looked at by itself."""
