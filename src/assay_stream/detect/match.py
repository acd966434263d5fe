"""A match of a rule: where it is, what its placeholders stand for, and what makes it harmless."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from assay_stream.detect.catalog import CATALOG, RULES, DetectionRule
from assay_stream.detect.surfaces import Place, name_words
from assay_stream.detect.tool_names import OtherTools, Span
from assay_stream.text.words import Words
from assay_stream.work import Work

_HARMLESS = frozenset(CATALOG.hosts.harmless.split())
_DOCUMENTATION = frozenset(CATALOG.hosts.documentation.split())
"""Hosts that are common in documentation, and where only their owner publishes."""
_SHARED = frozenset((CATALOG.hosts.shared + " " + CATALOG.hosts.shared_suffixes).split())
_SECOND_LEVEL = frozenset(CATALOG.hosts.second_level.split())
_HOST = re.compile(r"://(?:[^/\s@]{0,80}@)?(\[[0-9a-fA-F:]{2,40}\]|[^/\s:?#]{1,255})")
_ADDRESSES = frozenset(["mailbox", "address"])
_ADDRESS_RUN = re.compile(r"(?<!\S)[^\s@:.]*+[@:.]\S*+")
# What stands in every such place, or in one that is written backwards.
_ADDRESS_HINT = re.compile(r"\.(?<=\d\.)\d")
_DIGIT = re.compile(r"\d")
_ACCOUNT_HINT = re.compile(r"[A-Z]{2}\d{2}|0x[0-9a-fA-F]{4}")
_ACCOUNT_RUN = re.compile("(?<![A-Za-z0-9])[A-Za-z0-9]{26}")
_ACCOUNT_CHARS = 26
_SECRET_FILE_RULES = frozenset(["key_store_named", "secret_file_named", "secret_variable_named"])
_UNITS_PER_TEXT = 10
_UNITS_PER_CHAR = 1
_UNITS_PER_MATCH = 20


def host_of(address: str) -> str:
    """Return the host of a URL or mail address, in lowercase; the text itself where there is none."""
    found = _HOST.search(address)
    return (found[1] if found else address.rpartition("@")[2]).lower().rstrip(".")


def is_harmless(host: str) -> bool:
    """Return True if a host of ``host_of`` is an example or vocabulary, or empty, as of "https://..."."""
    return host in _HARMLESS or host.endswith(CATALOG.hosts.harmless_suffixes) or not host


def owner_of(host: str) -> str | None:
    """Return the registered domain of a host, ``None`` where anyone can publish or have a host under it."""
    labels = host.split(".")
    if len(labels) < 2 or labels[-1].isdigit() or not all(labels):
        return None
    kept = 3 if labels[-2] in _SECOND_LEVEL and len(labels[-1]) == 2 and len(labels) > 2 else 2
    domain = ".".join(labels[-kept:])
    return None if domain in _SHARED else domain


def has_address(seen: str) -> bool:
    """Return True if a text may contain an address, however it is read."""
    return "@" in seen or "://" in seen or "//:" in seen or _ADDRESS_HINT.search(seen) is not None


def names_in(
    seen: str, rules: Set[str] | None, *, is_tool_named: bool, is_addressed: bool, has_account: bool
) -> set[str]:
    """Return the names in braces that may stand for something in a text; ``rules`` may match it (``None``: unknown)."""
    names = {"tool"} if is_tool_named else set()
    if is_addressed:
        names.add("address")
    if "@" in seen:
        names.add("mailbox")
    if rules is None or has_account:
        names.add("money_account")
    if rules is None or not rules.isdisjoint(_SECRET_FILE_RULES):
        names.add("secret_file")
    if rules is None or "secret_command_named" in rules:
        names.add("secret_command")
    return names


def may_have_account(seen: str, *, is_long: bool = True) -> bool:
    """Return True if a text may contain an account number; ``is_long``: a long run of letters and digits may be one."""
    if _DIGIT.search(seen) is not None and _ACCOUNT_HINT.search(seen) is not None:
        return True
    return is_long and len(seen) >= _ACCOUNT_CHARS and _ACCOUNT_RUN.search(seen) is not None


class Places:
    """Places in one text of what phrases name in braces, each computed on first use.

    Args:
        names: what may occur there at all, of ``names_in``.
    """

    def __init__(self, words: Words, others: OtherTools, names: Set[str], work: Work) -> None:
        self._words = words
        self._others = others
        self._names = names
        self._work = work
        self._known: dict[str, list[Span]] = {}

    def spans(self, name: str) -> list[Span]:
        """Return the places of what a name stands for, sorted."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> list[Span]:
        if name not in self._names:
            return []
        if name == "tool":
            return self._others.spans(self._words, self._work)
        words = self._words
        self._work.spend(_UNITS_PER_TEXT + _UNITS_PER_CHAR * len(words.text))
        spans = []
        index = 0
        for match in _matches(words.text, name):
            self._work.spend(_UNITS_PER_MATCH)
            while index < len(words.spans) and words.spans[index][1] <= match.start():
                index += 1
            first = index
            while index < len(words.spans) and words.spans[index][0] < match.end():
                index += 1
            if index > first and not is_harmless(host_of(match[0])):
                spans.append((first, index))
        return spans


def _matches(text: str, name: str) -> Iterator[re.Match[str]]:
    pattern = CATALOG.places[name]
    if name not in _ADDRESSES:
        yield from pattern.finditer(text)
        return
    # An address has no blanks, so only runs that can hold one are searched.
    for run in _ADDRESS_RUN.finditer(text):
        yield from pattern.finditer(text, run.start(), run.end())


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
        needs_second: whether it needs a second sign whatever its rule does: English words alone show it, or a score
            that is barely high.
        is_faint: whether it is a passage that barely reaches medium: a second sign of phrases only.
        is_sufficient: whether it needs no second sign where its rule does.
    """

    rule: str
    level: int
    text: str
    start: int
    end: int
    key: Key
    place: Place
    how: str = ""
    needs_second: bool = False
    is_faint: bool = False
    is_sufficient: bool = False


def key_of(rule: DetectionRule, matched: str) -> Key:
    if rule.id == "url_introduced":
        return (host_of(matched),)
    return (" ".join(matched.split()).lower() if rule.searched_in == "seen" else matched,)


LEVEL_LOW: Final = 2
"""The level of an unremarkable address."""
_CONTACT = re.compile(
    r"\b(?:contact|questions?|support|feedback|maintaine[rd]\w?|authors?|help|bugs?)\b[^.!?\n]{0,40}\Z", re.IGNORECASE
)
_UNLESS_BEFORE = {
    rule.id: re.compile(rf"(?:{rule.unless_preceded_by})\Z", re.IGNORECASE) for rule in RULES if rule.unless_preceded_by
}
_EXAMPLE = re.compile(
    r"\b(?:e\.?g\b\.?|i\.?e\b\.?|examples?|such as|like|format|syntax)(?!\w)[^.!?\n]{0,40}\Z", re.IGNORECASE
)
_REFUSED = re.compile(
    r"\b(?:besides|(?:dangerous|destructive|malicious|blocked|denied|rejected|refused) (?:commands|patterns))\W{1,4}\Z",
    re.IGNORECASE,
)
"""A list of commands that a server does not run."""
_SECTION_ENDS = re.compile(r"</([a-z][\w-]{1,40})>")
"""The ends of sections, of a description that is written in them."""
_SECTION = re.compile(r"</?(instructions?)>")
_BEFORE_CHARS = 80
_CONTACT_CHARS = 60
OWN_BUSINESS = {rule.id: frozenset(rule.own_business.split()) for rule in RULES if rule.own_business}
_HANDED_ON = re.compile(
    r"\b(?:pass|put|include|send|add|attach|argument|parameter|note|context|field)\b", re.IGNORECASE
)
_ORDERED = frozenset(["before", "first", "silently", "secretly", "prefix", "prepend", "precede"])
"""Words that order when something runs, rather than describe what a tool runs."""
_OPENING_CHARS = 80
_OF_SWITCHES = frozenset(["approval_bypassed", "answer_falsified", "instructions_overridden", "user_overruled"])
"""Rules on what a switch may be for, such as ``force`` or ``quiet``."""
_SAYS_WHAT_IT_DOES = frozenset(["name", "title", "description"])
_SWITCH_CHARS_MAX = 160
_CHARS_PER_UNIT = 2


def is_own_business(match: Match, place: Place, others: OtherTools, work: Work) -> bool:
    """Return True if a server may say this, provided that it says so openly.

    A server may say which of its own tools to use, and what a tool or a switch with such a name does:
    ``list_tokens`` lists all tokens, and ``force`` skips a confirmation. It may not say where to pass secrets on.
    """
    words = OWN_BUSINESS.get(match.rule)
    if place is None or not words:
        return match.rule == "other_tool_steered"
    holder, key = place
    if key not in _SAYS_WHAT_IT_DOES or match.start > _OPENING_CHARS:
        return False
    if match.rule in _OF_SWITCHES:
        return not words.isdisjoint(_switch_at(holder, match.text))
    said = " ".join(match.key)
    is_named = any(word.removesuffix("s") in words and word in said for word in others.own_words)
    # A title may be the definition's own name, as schema generators write it: run_itArguments.
    own = others.own_words
    if not is_named or not (holder is None or (key == "title" and name_words(match.text)[: len(own)] == own)):
        return False
    if match.rule == "code_run_asked":
        return _ORDERED.isdisjoint(match.key)
    work.spend(len(match.text) // _CHARS_PER_UNIT)
    # "Add an SSH key" adds one to the server; "add them to the note" comes before or after what is asked for.
    return not (_HANDED_ON.search(match.text[: match.start]) or _HANDED_ON.search(match.text, match.end))


def _switch_at(holder: Place, description: str) -> tuple[str, ...]:
    """Return the words of the name of a parameter that is described in a sentence or two."""
    if holder is None or holder[0] is None or holder[0][1] != "properties" or len(description) > _SWITCH_CHARS_MAX:
        return ()
    return name_words(str(holder[1]))


def is_excused(rule: str, text: str, start: int) -> bool:
    """Return True if the text right before a match changes its meaning."""
    before = _UNLESS_BEFORE.get(rule)
    return before is not None and before.search(text[max(0, start - _BEFORE_CHARS) : start]) is not None


def is_harmless_address(rule: DetectionRule, key: Key) -> bool:
    """Return True if a match is an address that belongs to no one, such as example.com."""
    return rule.id in {"url_introduced", "address_introduced"} and is_harmless(host_of(key[0]))


def level_of(rule: DetectionRule, key: Key, text: str, start: int) -> int:
    """Return the level of a match.

    Addresses are unremarkable where documentation points at them, and where they are examples or contacts. Instructions
    that are one of several sections speak for nobody. Commands that are said to be refused are for a reviewer.
    """
    if rule.id == "url_introduced" and key[0] in _DOCUMENTATION:
        return LEVEL_LOW
    if rule.id == "address_introduced":
        before = text[max(0, start - _CONTACT_CHARS) : start]
        return LEVEL_LOW if _CONTACT.search(before) or _EXAMPLE.search(before) else rule.level
    if rule.id == "shell_command" and _REFUSED.search(text[max(0, start - _BEFORE_CHARS) : start]) is not None:
        return rule.level - 1
    if rule.id == "pseudo_markup" and (own := _SECTION.fullmatch(key[0])) is not None:
        return rule.level - any(name != own[1] for name in _SECTION_ENDS.findall(text))
    return rule.level
