"""Two lists of a server by meaning: what came, went, changed, or goes by another name.

1. Items are matched by name (resource templates by URI template); the order of a list says nothing.
2. A name that stands more than once in the later list, with several definitions that are not those of the earlier
   list, is ambiguous: nothing more is told of it. Held against an ambiguous name, a definition that stood there
   already is no change; another one is compared with the first in canonical order.
3. Nothing is removed, and so nothing renamed, where the later list is not complete.
4. A tool that went and one that came are one renamed tool where their input schemas are equal and their
   descriptions hold at least half of their words in common; where the schema names no parameters, the descriptions
   must have the same words. Of several that fit, the pair with most words in common goes first, then by names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from assay_stream.core.digest import canonicalize
from assay_stream.core.errors import InputError
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.meaning.change import Change
from assay_stream.core.meaning.definition import compare_definitions, not_compared
from assay_stream.core.meaning.equality import Values
from assay_stream.core.meaning.text import words_of
from assay_stream.core.work import Work, WorkExhaustedError

Item = Mapping[str, Any]


class Subject(StrEnum):
    """What a list is a list of."""

    TOOL = "tool"
    PROMPT = "prompt"
    TEMPLATE = "template"


_KEYS = {Subject.TOOL: "name", Subject.PROMPT: "name", Subject.TEMPLATE: "uriTemplate"}
_COMMON_WORDS_MIN = 0.5

# Units of work.
_TOOL_UNITS, _PAIR_UNITS, _PAIR_WORD_UNITS, _CANDIDATE_UNITS, _COUNTED_WORD_UNITS = 100, 10, 2, 40, 20


class ItemDrift(NamedTuple):
    """What became of one item.

    Args:
        kind: ``tool_added``, ``tool_removed``, ``tool_changed``, ``tool_renamed``, the like for prompts and
            templates (which are never renamed), or ``definition_ambiguous``.
        name: of the item; of a renamed one the name it had.
        changes: what changed, of an item that changed or was renamed.
        before: the definition before, ``None`` where there was none.
        after: the definition after, ``None`` where there is none or it cannot be told.
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
    """Return what differs between two lists, in the order of names and kinds.

    Where the budget runs out, what changed is still told, with ``comparison_cut_short`` as its change, and nothing
    more is called renamed. Whoever owns the budget sees that by ``work.is_exhausted``.

    Args:
        before: the earlier list.
        after: the later list.
        subject: what they are lists of.
        complete: whether the later list is complete.
        work: the budget to draw on, one of its own without it.

    Raises:
        InputError: ``missing_field``, or as ``compare_definitions``.
    """
    work = Work(DEFAULT_LIMITS.work_units_max) if work is None else work
    was, now = _by_name(before, subject), _by_name(after, subject)
    found: list[ItemDrift] = []
    for name in sorted(was.keys() & now.keys()):
        found.extend(_compare_named(subject, name, was[name], now[name], work))
    gone = {name: next(iter(was[name].values())) for name in was.keys() - now.keys()} if complete else {}
    come: dict[str, Item] = {}
    for name in now.keys() - was.keys():
        if len(now[name]) > 1:
            found.append(ItemDrift("definition_ambiguous", name))
        else:
            come[name] = next(iter(now[name].values()))
    for old, new in _renamed(gone, come, work) if subject is Subject.TOOL else ():
        one, other = gone.pop(old), come.pop(new)
        changes = tuple(_changes(one, other, work))
        found.append(ItemDrift("tool_renamed", old, changes, one, other, new))
    found.extend(ItemDrift(f"{subject}_removed", name, before=item) for name, item in gone.items())
    found.extend(ItemDrift(f"{subject}_added", name, after=item) for name, item in come.items())
    return sorted(found, key=lambda drift: (drift.name, drift.kind))


def _by_name(items: Sequence[Item], subject: Subject) -> dict[str, dict[bytes, Item]]:
    """Return the distinct definitions of each name, by and in the order of their canonical form."""
    key = _KEYS[subject]
    named: dict[str, dict[bytes, Item]] = {}
    for index, item in enumerate(items):
        name = item.get(key)
        if not isinstance(name, str):
            raise InputError("missing_field", f"a {subject} needs a text as its {key}", path=f"$[{index}].{key}")
        named.setdefault(name, {})[canonicalize(item)] = item
    return {name: dict(sorted(forms.items())) for name, forms in named.items()}


def _compare_named(
    subject: Subject, name: str, was: dict[bytes, Item], now: dict[bytes, Item], work: Work
) -> Iterator[ItemDrift]:
    if now.keys() <= was.keys():
        return
    if len(now) > 1:
        yield ItemDrift("definition_ambiguous", name)
        return
    before, after = next(iter(was.values())), next(iter(now.values()))
    yield ItemDrift(f"{subject}_changed", name, tuple(_changes(before, after, work)), before, after)


def _changes(before: Item, after: Item, work: Work) -> list[Change]:
    try:
        return compare_definitions(before, after, work)
    except WorkExhaustedError:
        return [not_compared()]


def _renamed(gone: Mapping[str, Item], come: Mapping[str, Item], work: Work) -> list[tuple[str, str]]:
    try:
        return renames(gone, come, work)
    except WorkExhaustedError:
        return []


def renames(gone: Mapping[str, Item], come: Mapping[str, Item], work: Work | None = None) -> list[tuple[str, str]]:
    """Return the old and new names of tools that go by another name, each name at most once.

    Args:
        gone: tools that are not offered any more, by name.
        come: tools that were not offered before, by name.
        work: the budget of the record, one of its own without it.

    Raises:
        WorkExhaustedError: where ``work`` holds less than this takes.
    """
    if not gone or not come:
        return []
    work = Work(DEFAULT_LIMITS.work_units_max) if work is None else work
    candidates: list[tuple[float, str, str]] = []
    for olds, news in _of_one_schema(gone, come, work):
        by_words = _is_without_parameters(gone[olds[0]]) or len(olds) * len(news) > DEFAULT_LIMITS.rename_pairs_max
        compare = _with_equal_words if by_words else _with_words_in_common
        candidates.extend(compare({old: gone[old] for old in olds}, {new: come[new] for new in news}, work))
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
    were = {old: _counted_words(tool, work) for old, tool in gone.items()}
    for new, tool in come.items():
        words = _counted_words(tool, work)
        for old, had in were.items():
            common = _in_common(had, words, work)
            if common >= _COMMON_WORDS_MIN:
                work.spend(_CANDIDATE_UNITS)
                yield -common, old, new


def _is_without_parameters(tool: Item) -> bool:
    schema = tool.get("inputSchema")
    return not isinstance(schema, dict) or not schema.get("properties")


def _words(tool: Item, work: Work) -> list[str]:
    description = tool.get("description")
    return words_of(description, work) if isinstance(description, str) else []


def _digest_of_words(tool: Item, work: Work) -> bytes:
    # Words hold no white space.
    return sha256(" ".join(_words(tool, work)).encode()).digest()


class _Counted(NamedTuple):
    words: Counter[str]
    total: int


def _counted_words(tool: Item, work: Work) -> _Counted:
    words = _words(tool, work)
    work.spend(_COUNTED_WORD_UNITS * len(words))
    return _Counted(Counter(words), len(words))


def _in_common(one: _Counted, other: _Counted, work: Work) -> float:
    """Return the share of words in common, of all words of two texts; two texts without words are alike.

    Of texts within the limits, two shares are equal as doubles where they are equal, and only there.
    """
    work.spend(_PAIR_UNITS)
    fewer, more = (one, other) if one.total <= other.total else (other, one)
    if not more.total:
        return 1.0
    if fewer.total < _COMMON_WORDS_MIN * more.total:
        return 0.0  # Even if all of the fewer were in common.
    work.spend(_PAIR_WORD_UNITS * len(fewer.words))
    common = sum(min(count, more.words[word]) for word, count in fewer.words.items() if word in more.words)
    return common / (one.total + other.total - common)
