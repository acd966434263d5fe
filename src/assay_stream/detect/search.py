"""What the rules of ``introduced_rules`` find in one definition's texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay_stream.detect.page import Page, pages_of
from assay_stream.detect.phrase_filter import WordReadings
from assay_stream.detect.placeholders import OtherTools
from assay_stream.detect.reader import FILTER, RULE_NEEDLES, Match, Reader
from assay_stream.detect.rules import LEVELS, NOTE_NAMES, RAISED_LEVEL, RULES
from assay_stream.detect.surfaces import Role, Text, name_words
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work

_NAMED = [(rule, frozenset(tuple(name.split("_")) for name in rule.names)) for rule in RULES if rule.names]
_NOTE_WORDS = frozenset((name,) for name in NOTE_NAMES)
_UNITS_PER_TEXT = 20
_UNITS_PER_NAME = 20
_BATCH_CHARS = 16_384


def all_matches(texts: Iterable[Text], others: OtherTools, required: frozenset[str], work: Work) -> Iterator[Match]:
    """Yield what every text gives, up to the bound on what is read of one definition."""
    listed = []
    left = DEFAULT_LIMITS.introduced_chars_max
    for text in texts:
        if len(text.value) > left:
            yield Match("text_oversized", LEVELS["text_oversized"], "", 0, 0, (), text.place)
            # Both ends are read: what is hidden stands at one of them.
            head, tail = text.value[: left // 2], text.value[len(text.value) - left // 2 :]
            listed += [text._replace(value=part) for part in (head, tail)]
            break
        left -= len(text.value)
        listed.append(text)
    search = _Search(others, required, work)
    for batch in _batches(listed):
        pages = pages_of((text.value for text in batch), RULE_NEEDLES, work)
        for text in batch:
            yield from search.matches(text, pages[text.value])


def _batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield texts that are read together: what the first ones give is found before later ones are read."""
    batch: list[Text] = []
    chars = 0
    for text in texts:
        if text.value:
            batch.append(text)
            chars += len(text.value)
        if chars > _BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    yield batch


class _Search:
    """The search of one definition's texts.

    Args:
        others: the other tools.
        required: the parameters that a call must give.
        work: the budget.
    """

    def __init__(self, others: OtherTools, required: frozenset[str], work: Work) -> None:
        self._others = others
        self._required = required
        self._work = work
        self._readings = WordReadings(FILTER, work)
        self._silent: dict[Page, bool] = {}

    def matches(self, text: Text, page: Page) -> Iterator[Match]:
        """Yield what one text gives."""
        self._work.spend(_UNITS_PER_TEXT)
        if text.role is Role.PARAMETER:
            self._work.spend(_UNITS_PER_NAME + len(text.value))
            yield from _named(text, self._required)
        is_note = _is_note(text)
        is_silent = self._silent.get(page)
        if is_silent and not is_note:
            return
        reader = Reader(self._others, self._readings, self._work, text.place, is_note=is_note)
        readings = self._readings.of(page.forms)
        if is_silent is None:
            is_silent = self._silent[page] = reader.is_silent(page, readings)
        if is_note or not is_silent:
            yield from reader.matches(page, readings)


def _is_note(text: Text) -> bool:
    """Tell whether a text describes a parameter that may hold anything, and so also what the model knows."""
    parameter = text.described_parameter
    return parameter is not None and name_words(parameter)[-1:] in _NOTE_WORDS


def _named(text: Text, required: frozenset[str]) -> Iterator[Match]:
    words = name_words(text.value)
    if not text.is_free or not words:
        return
    for rule, names in _NAMED:
        lengths = [len(words)] if rule.names_are_whole else range(1, min(len(words), 5) + 1)
        if any(words[-length:] in names for length in lengths):
            is_raised = (rule.id == "secret_parameter" and text.value in required) or (
                rule.id == "callback_parameter" and text.has_address
            )
            level = RAISED_LEVEL if is_raised else rule.level
            yield Match(rule.id, level, text.value, 0, len(text.value), words, text.place)
