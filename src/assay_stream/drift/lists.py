"""Two lists of a server by meaning: what came, went, changed, or goes by another name.

1. Items are matched by name (resource templates by URI template); the order of a list has no meaning. Instructions are
   a list of one.
2. A name that occurs more than once in the later list, with several definitions that are not those of the earlier
   list, is ambiguous: nothing more is reported about it. Compared with an ambiguous name, a definition that it already
   had is no change; another one is compared with the first in canonical order.
3. Nothing is removed, and so nothing renamed, where the later list is not complete.
4. A removed tool and an added one are one renamed tool where their input schemas are equal and their
   descriptions have at least half of their words in common; where the schema names no parameters, the descriptions
   must have the same words. Of several candidates, the pair with most words in common goes first, then by names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from assay_stream.canonical.digest import canonicalize
from assay_stream.drift.change import Change
from assay_stream.drift.definition import compare_definitions, not_compared
from assay_stream.drift.equality import Values
from assay_stream.drift.values import words_of
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import Subject
from assay_stream.work import Work, WorkExhaustedError

Item = Mapping[str, Any]

_COMMON_WORDS_MIN = 0.5

# Units of work.
_TOOL_UNITS, _PAIR_UNITS, _PAIR_WORD_UNITS, _CANDIDATE_UNITS, _COUNTED_WORD_UNITS = 100, 10, 2, 40, 4
_CHARS_PER_UNIT = 64


class ItemDrift(NamedTuple):
    """The drift of one item.

    Args:
        kind: ``tool_added``, ``tool_removed``, ``tool_changed``, ``tool_renamed``, the like for prompts and
            templates (which are never renamed), or ``definition_ambiguous``.
        name: of the item; the old name of a renamed one.
        changes: of an item that changed or was renamed.
        before: the definition before, ``None`` where there was none.
        after: the definition after, ``None`` where there is none or it is ambiguous.
        renamed_to: the new name of a renamed item.
    """

    kind: str
    name: str
    changes: tuple[Change, ...] = ()
    before: Item | None = None
    after: Item | None = None
    renamed_to: str | None = None


def compare_lists(
    before: Sequence[Item],
    after: Sequence[Item],
    *,
    subject: Subject = Subject.TOOL,
    complete: bool = True,
    work: Work | None = None,
) -> list[ItemDrift]:
    """Return the differences between two lists, sorted by name and kind.

    Where the budget runs out, changed items are still reported, with ``comparison_cut_short`` as their change, and no
    further item is reported as renamed. The caller can check ``work.is_exhausted``.

    Args:
        subject: the kind of items in the lists.
        complete: whether the later list is complete.
        work: the budget to draw on; ``None`` for one of its own.

    Raises:
        InputError: ``missing_field``, or as ``compare_definitions``.
    """
    work = Work(DEFAULT_LIMITS.work_units_max) if work is None else work
    was, now = _by_name(before, subject), _by_name(after, subject)
    found: list[ItemDrift] = []
    for name in sorted(name for name in was.keys() & now.keys() if not now[name].keys() <= was[name].keys()):
        if len(now[name]) > 1:
            found.append(ItemDrift("definition_ambiguous", name))
        else:
            one, other = next(iter(was[name].values())), next(iter(now[name].values()))
            found.append(ItemDrift(f"{subject}_changed", name, tuple(_changes(one, other, work)), one, other))
    gone = {name: next(iter(was[name].values())) for name in was.keys() - now.keys()} if complete else {}
    come: dict[str, Item] = {}
    for name in now.keys() - was.keys():
        if len(now[name]) > 1:
            found.append(ItemDrift("definition_ambiguous", name))
        else:
            come[name] = next(iter(now[name].values()))
    renamed: list[tuple[str, str]] = []
    if subject is Subject.TOOL:
        with suppress(WorkExhaustedError):
            renamed = renames(gone, come, work)
    for old, new in renamed:
        one, other = gone.pop(old), come.pop(new)
        changes = tuple(_changes(one, other, work))
        found.append(ItemDrift("tool_renamed", old, changes, one, other, new))
    found.extend(ItemDrift(f"{subject}_removed", name, before=item) for name, item in gone.items())
    found.extend(ItemDrift(f"{subject}_added", name, after=item) for name, item in come.items())
    return sorted(found, key=lambda drift: (drift.name, drift.kind))


def _by_name(items: Sequence[Item], subject: Subject) -> dict[str, dict[bytes, Item]]:
    """Return the distinct definitions of each name, by the digest and in the order of their canonical form."""
    named: dict[str, dict[bytes, Item]] = {}
    key = subject.key
    for index, item in enumerate(items):
        name = subject.name_of(item)
        if not isinstance(name, str):
            raise InputError("missing_field", f"a {subject} needs a text as its {key}", path=f"$[{index}].{key}")
        named.setdefault(name, {})[sha256(canonicalize(item)).digest()] = item
    for name, several in named.items():
        if len(several) > 1:
            named[name] = dict(sorted(several.items(), key=lambda pair: canonicalize(pair[1])))
    return named


def _changes(before: Item, after: Item, work: Work) -> list[Change]:
    try:
        return compare_definitions(before, after, work)
    except WorkExhaustedError:
        return [not_compared()]


def renames(gone: Mapping[str, Item], come: Mapping[str, Item], work: Work) -> list[tuple[str, str]]:
    """Return the old and new names of renamed tools, each name at most once.

    Args:
        gone: tools that are no longer offered, by name.
        come: tools that were not offered before, by name.
        work: the budget of the record.
    """
    if not gone or not come:
        return []
    candidates: list[tuple[float, str, str]] = []
    for olds, news in _of_one_schema(gone, come, work):
        were, are = {old: gone[old] for old in olds}, {new: come[new] for new in news}
        if _is_without_parameters(gone[olds[0]]) or len(olds) * len(news) > DEFAULT_LIMITS.rename_pairs_max:
            candidates.extend(_with_equal_words(were, are, work))
            continue
        (were_short, were_long), (are_short, are_long) = map(_by_length, (were, are))
        candidates.extend(_with_words_in_common(were_short, are_short, work))
        candidates.extend(_with_equal_words(were_long, are_long, work))
    pairs: dict[str, str] = {}
    taken: set[str] = set()
    # The names in one order whichever is the new one: the opposite comparison finds the same pairs.
    for _, old, new in sorted(candidates, key=lambda pair: (pair[0], *sorted(pair[1:]))):
        if old not in pairs and new not in taken:
            pairs[old] = new
            taken.add(new)
    return sorted(pairs.items())


def _of_one_schema(
    gone: Mapping[str, Item], come: Mapping[str, Item], work: Work
) -> Iterator[tuple[list[str], list[str]]]:
    groups: dict[bytes, tuple[list[str], list[str]]] = {}
    for side, items in enumerate((gone, come)):
        for name, item in items.items():
            work.spend(_TOOL_UNITS + len(name))
            # Values of their own each: what was looked at is not needed any more.
            form = Values(work).form(item.get("inputSchema"))
            groups.setdefault(sha256(form).digest(), ([], []))[side].append(name)
    return ((sorted(olds), sorted(news)) for olds, news in groups.values() if olds and news)


def _with_equal_words(
    gone: Mapping[str, Item], come: Mapping[str, Item], work: Work
) -> Iterator[tuple[float, str, str]]:
    waiting: dict[bytes, list[str]] = {}
    for new in sorted(come, reverse=True):
        waiting.setdefault(_digest_of_words(come[new], work), []).append(new)
    for old in sorted(gone):
        same = waiting.get(_digest_of_words(gone[old], work))
        if same:
            yield -1.0, old, same.pop()


def _with_words_in_common(
    gone: Mapping[str, Item], come: Mapping[str, Item], work: Work
) -> Iterator[tuple[float, str, str]]:
    is_turned = len(gone) > len(come)
    few, many = (come, gone) if is_turned else (gone, come)
    counted = [_Words(name, tool, work) for name, tool in few.items()]
    for each in many.items() if few else ():
        one = _Words(*each, work)
        for other in counted:
            common = one.in_common(other)
            if common >= _COMMON_WORDS_MIN:
                work.spend(_CANDIDATE_UNITS)
                yield (-common, one.name, other.name) if is_turned else (-common, other.name, one.name)


def _is_without_parameters(tool: Item) -> bool:
    schema = tool.get("inputSchema")
    return not isinstance(schema, dict) or not schema.get("properties")


def _by_length(tools: Mapping[str, Item]) -> tuple[dict[str, Item], dict[str, Item]]:
    """Return the tools with a short description, and the others."""
    sides: tuple[dict[str, Item], dict[str, Item]] = {}, {}
    for name, tool in tools.items():
        sides[len(_description(tool)) > DEFAULT_LIMITS.rename_description_chars_max][name] = tool
    return sides


def _description(tool: Item) -> str:
    description = tool.get("description")
    return description if isinstance(description, str) else ""


def _digest_of_words(tool: Item, work: Work) -> bytes:
    # Words hold no white space.
    return sha256(" ".join(words_of(_description(tool), work)).encode()).digest()


class _Words:
    """The words of a tool's description, counted on first use."""

    def __init__(self, name: str, tool: Item, work: Work) -> None:
        self.name = name
        self._description = _description(tool)
        self._work = work

    @cached_property
    def _counts(self) -> Counter[str]:
        words = words_of(self._description, self._work)
        self._work.spend(_COUNTED_WORD_UNITS * len(words))
        return Counter(words)

    @cached_property
    def _total(self) -> int:
        return self._counts.total()

    def in_common(self, other: _Words) -> float:
        """Return the share of words in common, of all words of two texts; two texts without words are alike.

        For texts within the limits, two shares are equal as doubles if and only if they are equal.
        """
        self._work.spend(_PAIR_UNITS + len(self._description) // _CHARS_PER_UNIT)
        if self._description == other._description:
            return 1.0
        fewer, more = (self, other) if self._total <= other._total else (other, self)
        if not more._total:
            return 1.0
        if fewer._total < _COMMON_WORDS_MIN * more._total:
            return 0.0  # Even if all of the fewer were in common.
        self._work.spend(_PAIR_WORD_UNITS * len(fewer._counts))
        counts = more._counts
        common = sum(min(count, counts[word]) for word, count in fewer._counts.items() if word in counts)
        return common / (self._total + other._total - common)
