"""What the rules find in all texts of one definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from assay_stream.detect.catalog import CATALOG, LEVELS, RULES
from assay_stream.detect.match import Match
from assay_stream.detect.page import Visit, pages_of
from assay_stream.detect.phrase_filter import WordReadings
from assay_stream.detect.reader import Reader, phrase_filter
from assay_stream.detect.surfaces import Text, TextRole, name_words
from assay_stream.detect.symbols import OfferedNames
from assay_stream.detect.tool_names import OtherTools
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.work import Work

_NAMED = [(rule, frozenset(tuple(name.split("_")) for name in rule.names.split())) for rule in RULES if rule.names]
_LAST_WORDS = frozenset(name[-1] for _, names in _NAMED for name in names)
_PARAMETER_RULES = frozenset(rule.id for rule, _ in _NAMED)
_NAME_WORDS_MAX = 5
_NOTE_WORDS = frozenset((name,) for name in CATALOG.words.notes.split())
_FIRST_SIGHT_LEVEL_MAX = 3
_UNITS_PER_TEXT = 20
_UNITS_PER_NAME = 20
_BATCH_CHARS = 16_384


def all_matches(
    texts: Iterable[Text], others: OtherTools, offered: OfferedNames, required: frozenset[str] | None, work: Work
) -> Iterator[Match]:
    """Yield the matches of every text, up to the bound on what is read of one definition.

    Args:
        offered: what the definition and its list offer.
        required: names of the required parameters, ``None`` for a definition seen for the first time.
    """
    listed = []
    left = DEFAULT_LIMITS.introduced_chars_max
    for text in texts:
        if len(text.value) > left:
            yield Match("text_oversized", LEVELS["text_oversized"], "", 0, 0, (), text.place)
            # Both ends are read: what is hidden stands at one of them.
            head, tail = text.value[: left // 2], text.value[len(text.value) - left // 2 :]
            listed += [msgspec.structs.replace(text, value=part) for part in (head, tail)]
            break
        left -= len(text.value)
        listed.append(text)
    readings = WordReadings(phrase_filter(), work)
    reader = Reader(others, offered, readings, work, is_changed=required is not None)
    for batch in _batches(listed):
        visits = {raw: Visit(page) for raw, page in pages_of((text.value for text in batch), work).items()}
        for text in batch:
            work.spend(_UNITS_PER_TEXT)
            if text.role is TextRole.PARAMETER:
                work.spend(_UNITS_PER_NAME + len(text.value))
                yield from _weighed(_named(text, required), is_first_sight=required is None)
            visit, is_note = visits[text.value], _is_note(text)
            if not is_note and (visit.is_silent or (visit.is_silent is None and reader.passes_over(visit))):
                continue
            found = reader.search(visit, text.place, is_note=is_note)
            yield from _weighed(found, is_first_sight=required is None)


def _weighed(matches: Iterable[Match], *, is_first_sight: bool) -> Iterator[Match]:
    """Yield matches at their level. A tool's parameters are not suspicious at first sight: a shell takes a script."""
    for match in matches:
        is_lower = is_first_sight and match.rule in _PARAMETER_RULES and match.level > _FIRST_SIGHT_LEVEL_MAX
        yield match._replace(level=_FIRST_SIGHT_LEVEL_MAX) if is_lower else match


def _batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield texts that are read together: matches in the first ones are found before later ones are read."""
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


def _is_note(text: Text) -> bool:
    """Return True if a text describes a parameter that may hold anything, and so also what the model knows."""
    parameter = text.described_parameter
    return parameter is not None and name_words(parameter)[-1:] in _NOTE_WORDS


def _named(text: Text, required: frozenset[str] | None) -> Iterator[Match]:
    """Yield the matches of the name of a parameter."""
    words = name_words(text.value)
    if not text.is_free or not words or words[-1] not in _LAST_WORDS:
        return
    raised = {"required": required is not None and text.value in required, "address": text.has_address, None: False}
    for rule, names in _NAMED:
        lengths = [len(words)] if rule.names_are_whole else range(1, min(len(words), _NAME_WORDS_MAX) + 1)
        if any(words[-length:] in names for length in lengths):
            level = rule.raised_to if rule.raised_to is not None and raised[rule.raised_when] else rule.level
            yield Match(rule.id, level, text.value, 0, len(text.value), words, text.place)
