"""The names of a list's tools, and where a text has one of them.

1. The index is built once for a list and shared by all of its definitions: a list of n new tools costs n, not n².
2. A name counts as its words (``send_email``, ``sendEmail``), as one word (``sendemail``), and as readers see it.
3. A definition's own name is in the index too; ``OtherTools`` excludes it by the owners of each match.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from assay_stream.detect.surfaces import name_words
from assay_stream.detect.symbols import endings_of, families_of, name_key
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.words import Words, as_read
from assay_stream.work import UNLIMITED, Work

_UNITS_PER_NAME = 100
_UNITS_PER_NAME_CHAR = 4
_UNITS_PER_SPAN = 3
_WORD_BITS = 32
_CONTEXTS_KEPT_MAX = 1_024
_CONTEXTS_PER_NAME = 2
"""All changed definitions of a list are searched for what is new, both the new and the old version, and then once
more in full. A list with more contexts than are kept is searched as if it had none."""
_OWNERS_MAX = 2
"""Owners kept of one form: of two, at least one is not the definition's own name."""

Name = tuple[str, ...]
Span = tuple[int, int]
"""Index of the first word of a place in a text, and of the word after its last."""


class Named(NamedTuple):
    """A name in a text: its first word, the word after its last, and its owners as several words and as one word."""

    first: int
    end: int
    owners: Sequence[Name]
    owners_of_one_word: Sequence[Name]


class _Index(NamedTuple):
    """A tree of the numbers of words: from node and word to the next node, and the owners of names that end at one."""

    words: dict[str, int]
    beginnings: set[str]
    nodes: dict[int, int]
    ends: dict[int, tuple[list[Name], list[Name]]]


class ToolNames:
    """An index of a list's tool names, paid for when it is made.

    It is built when it is first used, whole: threads share it.
    """

    def __init__(self, names: Collection[str], work: Work) -> None:
        chars_max = DEFAULT_LIMITS.tool_name_chars_max
        for name in names:
            work.spend(_UNITS_PER_NAME + _UNITS_PER_NAME_CHAR * min(len(name), chars_max))
        self._names = names
        self._contexts: OrderedDict[Hashable, object] = OrderedDict()
        self.identity: Final = object()
        """Identifies the index to what is kept about it."""

    def __bool__(self) -> bool:
        return bool(self._names)

    def context(self, about: Hashable) -> object:
        """Return an object that identifies these names and the other inputs of a search: equal inputs, same object."""
        context = self._contexts.get(about)
        if context is None:
            context = self._contexts[about] = object()
            if len(self._contexts) > min(_CONTEXTS_KEPT_MAX, _CONTEXTS_PER_NAME * (1 + len(self._names))):
                self._contexts.popitem(last=False)
        return context

    @cached_property
    def keys(self) -> Set[str]:
        """The ``name_key`` of each name."""
        chars_max = DEFAULT_LIMITS.tool_name_chars_max
        return frozenset(name_key(name[:chars_max]) for name in self._names)

    @cached_property
    def families(self) -> Mapping[str, Set[str]]:
        """The beginnings of names, of ``families_of``, that are the server's.

        The first two words of a name are one if another name has the first of them. A single word is one if half of
        the names or more have it, and then only in a definition whose own name has it: that is the key, and ``""``
        that of any other. A decoy or two do not establish a prefix of a server. The ends of names are the server's too:
        ``get_cost`` is ``supabase_get_cost``.
        """
        chars_max = DEFAULT_LIMITS.tool_name_chars_max
        listed = [families for name in self._names if (families := families_of(name[:chars_max]))]
        counted = Counter(families[0] for families in listed)
        two_words = frozenset(families[1] for families in listed if len(families) > 1 and counted[families[0]] > 1)
        shared = [first for first, count in counted.items() if count > 1 and count * 2 >= len(self._names)]
        ends = {end for name in self._names for end in endings_of(name[:chars_max])}
        of_any = two_words | ends
        return {"": of_any} | {first: of_any | {first} for first in shared}

    def find(self, forms: Sequence[str], work: Work) -> Iterator[Named]:
        """Yield every name in a text, given as its words in their plain form, by place and length."""
        words, beginnings, nodes, ends = self.index
        if not words:
            return
        work.spend(len(forms))
        for first in [index for index, form in enumerate(forms) if form in beginnings]:
            node: int | None = nodes[words[forms[first]]]
            end = first + 1
            while node is not None:
                work.spend(2)
                if node in ends:
                    yield Named(first, end, *ends[node])
                word = words.get(forms[end]) if end < len(forms) else None
                if word is None:
                    break
                node = nodes.get(node << _WORD_BITS | word)
                end += 1

    @cached_property
    def index(self) -> _Index:
        index = _Index({}, set(), {}, {})
        for name in sorted(set(self._names)):
            _add(name[: DEFAULT_LIMITS.tool_name_chars_max], index)
        return index


def _add(name: str, index: _Index) -> None:
    words = _own_words(name)
    if not words:
        return
    shown = as_read(name)[: DEFAULT_LIMITS.tool_name_chars_max]
    for form in {words, ("".join(words),), tuple(Words(shown).forms)} - {()}:
        index.beginnings.add(form[0])
        node = 0
        for word in islice(form, DEFAULT_LIMITS.tool_name_words_max):
            key = node << _WORD_BITS | index.words.setdefault(word, len(index.words))
            node = index.nodes.setdefault(key, len(index.nodes) + 1)
        owners = index.ends.setdefault(node, ([], []))[len(words) == 1]
        if len(owners) < _OWNERS_MAX and words not in owners:
            owners.append(words)


NO_TOOLS: Final = ToolNames((), Work(UNLIMITED))
"""No names: for a definition searched by itself."""


class OtherTools:
    """The tools that a definition may mention: the names of a whole list, without its own."""

    def __init__(self, names: ToolNames, own: Any) -> None:
        self._names = names
        self.own_words = _own_words(own) if isinstance(own, str) else ()
        self.own_key = name_key(own[: DEFAULT_LIMITS.tool_name_chars_max]) if isinstance(own, str) else ""
        """The ``name_key`` of the definition's own name."""

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def identity(self) -> object:
        """Identifies the index of names, which the definitions of a list share."""
        return self._names.identity

    @property
    def keys(self) -> Set[str]:
        """The ``name_key`` of each name of the list."""
        return self._names.keys

    @property
    def families(self) -> Set[str]:
        """The beginnings of names that are the server's, for this definition."""
        families = self._names.families
        return families.get(self.own_words[0] if self.own_words else "", families[""])

    def context(self, about: Hashable) -> object:
        """Return an object that identifies these tools and the other inputs of a search: equal inputs, same object."""
        return self._names.context((self.own_words, about))

    def is_named(self, forms: Sequence[str], work: Work) -> bool:
        """Return True if a text that has the first word of some name, own or other, has all of its words."""
        return next(self._names.find(forms, work), None) is not None

    def have_beginning(self, forms: Collection[str]) -> bool:
        """Return True if some name begins with one of these words, without which none is among them."""
        return not self._names.index.beginnings.isdisjoint(forms)

    def spans(self, words: Words, work: Work) -> list[Span]:
        """Return where a text names another tool. A name of one word must be marked as one."""
        found = []
        # Of each form, whether it is another tool's as it stands, and whether it is where it is marked as a name.
        of_others: dict[int, tuple[bool, bool]] = {}
        for first, end, owners, owners_of_one_word in self._names.find(words.forms, work):
            work.spend(_UNITS_PER_SPAN)
            is_other = of_others.get(id(owners))
            if is_other is None:
                is_other = of_others[id(owners)] = (self._is_of_others(owners), self._is_of_others(owners_of_one_word))
            if is_other[0] or (is_other[1] and _is_marked(words, first)):
                found.append((first, end))
        return found

    def _is_of_others(self, owners: Sequence[Name]) -> bool:
        return any(owner != self.own_words for owner in owners)


def _own_words(name: str) -> Name:
    """Return the words of a name, which identify its owner."""
    return name_words(name[: DEFAULT_LIMITS.tool_name_chars_max])


def _is_marked(words: Words, index: int) -> bool:
    start, end = words.spans[index]
    if words.text[max(0, start - 1) : start] in {"`", "'", '"', "“", "<", "「"}:
        return words.text[end : end + 1] in {"`", "'", '"', "”", ">", "(", "」"}
    neighbours = words.forms[max(0, index - 1) : index] + words.forms[index + 1 : index + 2]
    return words.text[end : end + 1] == "(" or "tool" in neighbours
