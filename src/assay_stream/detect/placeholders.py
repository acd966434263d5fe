"""What phrases name in braces, and where it stands in a text: tools, secrets, addresses and accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

from assay_stream.detect.phrases import Span
from assay_stream.detect.places import (
    ADDRESS,
    EMAIL,
    HARMLESS_HOSTS,
    MONEY_ACCOUNT,
    REVEALING_COMMAND,
    SECRET_FILE,
    host_of,
)
from assay_stream.detect.tool_names import ToolNames, own_words
from assay_stream.text.words import Words
from assay_stream.work import Work

_GIVEN = {
    "secret_file": re.compile(SECRET_FILE, re.IGNORECASE),
    "secret_command": re.compile(REVEALING_COMMAND, re.IGNORECASE),
    "money_account": re.compile(MONEY_ACCOUNT),
    "mailbox": re.compile(EMAIL, re.IGNORECASE),
    "address": re.compile(ADDRESS, re.IGNORECASE),
}
_ADDRESSES = frozenset([_GIVEN["mailbox"], _GIVEN["address"]])
_ADDRESS_RUN = re.compile(r"(?<!\S)[^\s@:.]*+[@:.]\S*+")
# What stands in every such place, or in one that is written backwards.
_ADDRESS_HINT = re.compile(r"@|://|//:|\d\.\d")
_ACCOUNT_HINT = re.compile(r"[A-Z]{2}\d{2}|0x[0-9a-fA-F]{4}|[A-Za-z0-9]{26}")
_SECRET_FILE_RULES = frozenset(["key_store_named", "secret_file_named", "secret_variable_named"])
_UNITS_PER_TEXT = 10
_UNITS_PER_CHAR = 1
_UNITS_PER_MATCH = 20


class OtherTools:
    """The names of the tools that a definition may speak of, without its own.

    Args:
        names: the names of a whole list.
        own: the name of the tool at hand, which is no other one.
    """

    def __init__(self, names: ToolNames, own: Any) -> None:
        self._names = names
        self._own = own_words(own) if isinstance(own, str) else ()

    def __bool__(self) -> bool:
        return bool(self._names)

    def may_be_named(self, forms: Sequence[str], work: Work) -> bool:
        """Return whether a text has the words of some name, be it the definition's own.

        Args:
            forms: the words of the text in their plain form.
            work: the budget.

        Raises:
            WorkExhaustedError: where the budget does not suffice.
        """
        if self._names.beginnings.isdisjoint(forms):
            return False
        return next(self._names.find(forms, work), None) is not None

    def spans(self, words: Words, work: Work) -> list[Span]:
        """Return where a text names one of them. A name of one word must be marked as one.

        Args:
            words: the text.
            work: the budget.

        Raises:
            WorkExhaustedError: where the budget does not suffice.
        """
        found = set()
        for named in self._names.find(words.forms, work):
            if any(owner != self._own for owner in named.owners) or (
                any(owner != self._own for owner in named.owners_of_one_word) and _is_marked(words, named.first)
            ):
                found.add((named.first, named.end))
        return sorted(found)


def _is_marked(words: Words, index: int) -> bool:
    start, end = words.spans[index]
    if words.text[max(0, start - 1) : start] in {"`", "'", '"', "“", "<", "「"}:
        return words.text[end : end + 1] in {"`", "'", '"', "”", ">", "(", "」"}
    neighbours = words.forms[max(0, index - 1) : index] + words.forms[index + 1 : index + 2]
    return words.text[end : end + 1] == "(" or "tool" in neighbours


def given_in(seen: str, rules: Set[str] | None, *, is_tool_named: bool) -> set[str]:
    """Return what may stand in a text of that which phrases name in braces.

    Args:
        seen: the text, as it is read.
        rules: ids of the rules whose pattern may match it, ``None`` where that is not known.
        is_tool_named: whether a tool may be named in it.
    """
    given = {"tool"} if is_tool_named else set()
    if has_address(seen):
        given.add("address")
    if "@" in seen:
        given.add("mailbox")
    if rules is None or _ACCOUNT_HINT.search(seen):
        given.add("money_account")
    if rules is None or not rules.isdisjoint(_SECRET_FILE_RULES):
        given.add("secret_file")
    if rules is None or "secret_command_named" in rules:
        given.add("secret_command")
    return given


def has_address(seen: str) -> bool:
    """Return whether a text may hold an address, in whatever way it is read.

    Args:
        seen: the text.
    """
    return _ADDRESS_HINT.search(seen) is not None


class Given:
    """Places in one text of what phrases name in braces, each looked for when a phrase asks for it.

    Args:
        words: the text.
        others: the other tools.
        names: what may stand there at all.
        work: the budget.
    """

    def __init__(self, words: Words, others: OtherTools, names: Set[str], work: Work) -> None:
        self._words = words
        self._others = others
        self._names = names
        self._work = work
        self._known: dict[str, list[Span]] = {}

    def spans(self, name: str) -> list[Span]:
        """Return the places of what a name in braces stands for, sorted."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> list[Span]:
        if name not in self._names:
            return []
        if name == "tool":
            return self._others.spans(self._words, self._work)
        self._work.spend(_UNITS_PER_TEXT + _UNITS_PER_CHAR * len(self._words.text))
        return _spans(self._words, _GIVEN[name], self._work)


def _found_in(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern. An address has no blanks, so only runs that can hold one are searched."""
    if pattern not in _ADDRESSES:
        yield from pattern.finditer(text)
        return
    for run in _ADDRESS_RUN.finditer(text):
        yield from pattern.finditer(text, run.start(), run.end())


def _spans(words: Words, pattern: re.Pattern[str], work: Work) -> list[Span]:
    """Return the words that each match of a pattern covers."""
    spans = []
    index = 0
    for match in _found_in(words.text, pattern):
        work.spend(_UNITS_PER_MATCH)
        while index < len(words.spans) and words.spans[index][1] <= match.start():
            index += 1
        first = index
        while index < len(words.spans) and words.spans[index][0] < match.end():
            index += 1
        if index > first and host_of(match[0]) not in HARMLESS_HOSTS:
            spans.append((first, index))
    return spans
