"""Indicators of an attack in what is new of a definition: its texts, its schemas and its scripts.

1. The texts of both definitions are listed (``surfaces``). One that is the same in both is not new.
2. Each rule is searched in every other text, as it stands, as it is seen, and as it reads once decoded.
3. A match counts only if it touches a new sentence, and if the old definition gave the same rule no match of the
   same words: moving or editing an old sentence is not new.
4. Instructions address the model, order the use of their server's own tools, and describe its setup: rules about
   these count less there. What they make the model do elsewhere counts as in any text.
5. A script or language that the old definition did not use counts by itself (``languages``), and so does what the
   schemas do with values.

A medium match becomes low if the same rule already matched in the server's earlier list. High matches stay high.

Indicators raise a severity and lower none. They describe what a text resembles, never what its author meant.

1. ``secret_in_header``: ``x-mcp-header`` makes a client send a parameter's value as an HTTP header as well (MCP
   2026-07-28, SEP-2243). Headers pass proxies and logs that never see the body, and no redaction of it.
2. ``annotation_contradicted``: a tool that by its name deletes, sends or writes says that it only reads, or that it
   destroys nothing. Clients skip their confirmation for such a tool (MCP 2025-06-18, ``ToolAnnotations``).
3. ``external_reference``: ``$ref`` leads to another document. Fetching it contacts a host of the server's
   choice, and its content may change at any time (JSON Schema 2020-12, Core, 8.2 and 9.1.2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from heapq import nsmallest
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple
from urllib.parse import urldefrag, urljoin

import orjson

from assay_stream.canonical.digest import is_sensitive_name, redact
from assay_stream.detect.catalog import CATALOG, LEVELS, RULES
from assay_stream.detect.languages import new_languages
from assay_stream.detect.match import LEVEL_LOW, Match, owner_of
from assay_stream.detect.page import shown
from assay_stream.detect.reader import UNITS_PER_INDICATOR, all_matches
from assay_stream.detect.scorer import RULE as STEERING_SCORED
from assay_stream.detect.steering import offered_by
from assay_stream.detect.surfaces import Place, Text, name_words, path_of, required_of, texts_of
from assay_stream.detect.tool_names import NO_TOOLS, OtherTools, ToolNames
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.words import Words
from assay_stream.work import Work, WorkExhaustedError

_SCHEMAS = ("inputSchema", "input_schema", "outputSchema", "output_schema")
_HEADER = "x-mcp-header"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TELLING = tuple(f'"{key}":'.encode() for key in (_HEADER, *_REFERENCES))
_NAMES_TO_SCHEMAS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_CONTAINERS = (dict, list)
_DATA = frozenset(("default", "const", "enum", "examples"))
"""Keywords that hold values, not schemas."""
_NO_TEXT = frozenset(("integer", "number", "boolean", "null"))
_META_SCHEMAS = ("https://json-schema.org/draft", "http://json-schema.org/draft")
"""Bundled with every validator, which never fetches them."""
_UNITS_PER_MEMBER = 5
_BYTES_PER_UNIT = 32
_UNITS_PER_PATTERN_COMPARED = 150
_LEVEL_MEDIUM = 3
_DESTROYING, _REMOVING, _SENDING, _WRITING = (
    frozenset(words.split())
    for words in (CATALOG.words.destroying, CATALOG.words.removing, CATALOG.words.sending, CATALOG.words.writing)
)
_CONTRADICTIONS = (
    ("readOnlyHint", True, _DESTROYING | _SENDING, _REMOVING | _WRITING),
    ("destructiveHint", False, _DESTROYING, _REMOVING),
)
"""A hint and its value, and the first words of names that belie it: gravely, or not beyond doubt."""


def structural_matches(before: Mapping[str, Any] | None, after: Mapping[str, Any], work: Work) -> list[Match]:
    """Return the matches in the schemas of a definition that those of the older one did not have."""
    found = list(_matches(after, work))
    if found and before is not None:
        known = {(match.rule, match.key) for match in _matches(before, work)}
        found = [match for match in found if (match.rule, match.key) not in known]
    return found


def _matches(definition: Mapping[str, Any], work: Work) -> Iterator[Match]:
    yield from _contradicted(definition, work)
    for name in _SCHEMAS:
        root = definition.get(name)
        if isinstance(root, Mapping):
            if not _may_have(_TELLING, root, work):
                continue
            places = list(_schemas(root, (None, name), work))
            base = _text(root.get("$id"))
            documents = _documents(base, places, work)
            for place, schema in places:
                yield from _header(place, schema, work)
                yield from _external(place, schema, base, documents, work)


def _may_have(keys: Sequence[bytes], schema: Mapping[str, Any], work: Work) -> bool:
    """Return False if a schema has none of these keys anywhere, as most have."""
    try:
        written = orjson.dumps(schema)
    except TypeError:
        return True
    work.spend(len(written) // _BYTES_PER_UNIT)
    return any(key in written for key in keys)


def _contradicted(definition: Mapping[str, Any], work: Work) -> Iterator[Match]:
    hints, name = definition.get("annotations"), definition.get("name")
    if not isinstance(hints, Mapping) or not isinstance(name, str):
        return
    work.spend(_UNITS_PER_MEMBER + min(len(name), DEFAULT_LIMITS.tool_name_chars_max))
    words = name_words(name[: DEFAULT_LIMITS.tool_name_chars_max])
    for hint, claim, grave, doubtful in _CONTRADICTIONS:
        if hints.get(hint) is claim and not (grave | doubtful).isdisjoint(words[:1]):
            level = _LEVEL_MEDIUM if grave.isdisjoint(words[:1]) else LEVELS["annotation_contradicted"]
            key, place = (hint, *words), ((None, "annotations"), hint)
            yield Match("annotation_contradicted", level, name, 0, len(name), key, place)


def _schemas(root: Mapping[str, Any], at: Place, work: Work) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield every schema within a schema, with its place."""
    pending: list[tuple[Place, Any, bool]] = [(at, root, True)]
    while pending:
        place, value, is_schema = pending.pop()
        work.spend(_UNITS_PER_MEMBER * (1 + len(value)))
        if isinstance(value, dict):
            if is_schema:
                yield place, value
            for key, inner in value.items():
                if isinstance(inner, _CONTAINERS) and not (is_schema and key in _DATA):
                    pending.append(((place, str(key)), inner, not (is_schema and key in _NAMES_TO_SCHEMAS)))
        else:
            pending.extend(((place, n), each, True) for n, each in enumerate(value) if isinstance(each, _CONTAINERS))


def _header(place: Place, schema: Mapping[str, Any], work: Work) -> Iterator[Match]:
    header = schema.get(_HEADER)
    if not isinstance(header, str) or place is None:
        return
    work.spend(_UNITS_PER_PATTERN_COMPARED)
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _NO_TEXT:
        return
    named = any(is_sensitive_name(name) for name in (str(place[1]), header))
    if named or schema.get("writeOnly") is True or schema.get("format") == "password":
        key = (str(place[1]), header)
        level = LEVELS["secret_in_header"]
        yield Match("secret_in_header", level, header, 0, len(header), key, (place, _HEADER))


def _documents(base: str, places: Sequence[tuple[Place, Mapping[str, Any]]], work: Work) -> frozenset[str]:
    """Return the addresses of a schema and of its parts, as set by ``$id``; ``""`` where there is none."""
    own = [name for _, schema in places if (name := _text(schema.get("$id")))]
    work.spend(sum(len(base) + len(name) for name in own))
    return frozenset(_resolved(base, name) for name in own) | {base}


def _external(
    place: Place, schema: Mapping[str, Any], base: str, documents: frozenset[str], work: Work
) -> Iterator[Match]:
    for keyword in _REFERENCES:
        target = schema.get(keyword)
        if not isinstance(target, str) or target.startswith(("#", *_META_SCHEMAS)):
            continue
        work.spend(_UNITS_PER_PATTERN_COMPARED + len(base) + len(target))
        if _resolved(base, target) not in documents:
            level = LEVELS["external_reference"]
            yield Match("external_reference", level, target, 0, len(target), (target,), (place, keyword))


def _resolved(base: str, reference: str) -> str:
    """Return the address of the document that a reference leads to."""
    try:
        return urldefrag(urljoin(base, reference)).url
    except ValueError:
        return reference  # No address at all, so not that of a part.


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_EXCERPT_CHARS = 80
_CONTEXT_CHARS = 24
_WORDS_ADDED_MAX = 2
_UNITS_PER_MATCH = 10
_UNITS_PER_CHAR = 3
_LEVEL_MAX = 5
_EVIDENCE_LEVEL = 3
_SECONDED = frozenset(rule.id for rule in RULES if rule.needs_second)
_SUFFICIENT = frozenset(rule.id for rule in RULES if rule.is_sufficient)
_PARAMETERS = frozenset(rule.id for rule in RULES if rule.names)
_ORDINARY = _PARAMETERS | {"url_introduced", "address_introduced", "secret_file_named", "secret_command_named"}
"""Rules on what honest definitions have as well: they are a second sign only where they are high."""
_PART_CHARS = 100
"""Signs in the same or neighbouring parts of a text are near each other."""
_NO_RULES: Final[frozenset[str]] = frozenset()


_INSTRUCTIONS_LEVELS = {rule.id: rule.instructions_level or _LEVEL_MAX for rule in RULES}


class Indicator(NamedTuple):
    """One suspicious feature of new text.

    Args:
        level: OCSF severity id that it raises to, 1 to 5.
        path: JSON path of the text, ``$.description``.
        excerpt: the match and a little context, after the disguises that were undone to read it: at most 80
            characters, escaped and redacted. It is the server's text and has no place in evidence.
        mark: start and end of the match in the excerpt.
        words: the match itself, and its start in the text; empty where it is disguised.
        place: of the text; ``path`` cuts long names.
    """

    rule: str
    level: int
    path: str
    excerpt: str
    mark: tuple[int, int] = (0, 0)
    words: tuple[int, str] = (0, "")
    place: Place = None


CUT_SHORT: Final = Indicator("text_oversized", LEVELS["text_oversized"], "$", "")
"""The indicator of a definition that was not searched in full."""


def detect_indicators(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], *, tool_names: ToolNames = NO_TOOLS, work: Work
) -> list[Indicator]:
    """Return the indicators of a definition's new text, most severe first, one for each rule and path.

    A definition that would cost more than its share is searched until the share is used up, and ``CUT_SHORT`` is
    among its indicators.

    Args:
        before: the older definition, ``None`` where there was none: then every text is new.
        after: the newer definition: a tool, a prompt, a resource template, or ``{"instructions": text}``.
        tool_names: names of the other tools that the agent may call, with or without the definition's own.
        work: the budget of the record that brought the definition.
    """
    share = work.part(DEFAULT_LIMITS.definition_work_units_max)
    matches: list[Match] = []
    structure: list[Match] = []
    is_cut_short = False
    try:
        structure = structural_matches(before, after, share)
        _search(before, after, OtherTools(tool_names, after.get("name")), share, matches)
    except WorkExhaustedError:
        if work.left < DEFAULT_LIMITS.definition_work_units_max:
            # The share was all that is left of the record's budget.
            work.spend(work.left + 1)
        is_cut_short = True
    work.spend(share.spent)
    if after.keys() == {"instructions"}:
        matches = [match._replace(level=min(match.level, _INSTRUCTIONS_LEVELS[match.rule])) for match in matches]
    return _indicators(_supported([*structure, *matches]), is_cut_short)


def rules_shown(definitions: Iterable[Mapping[str, Any]], names: ToolNames, work: Work) -> frozenset[str]:
    """Return the rules that a list of definitions shows, at medium or above but for names of parameters.

    Args:
        definitions: read one after the other, so that no more of them are unpacked than the budget allows to search.
        names: of the tools of the list.
        work: the budget.
    """
    found = chain.from_iterable(detect_indicators(None, each, tool_names=names, work=work) for each in definitions)
    # Text that was not read may say anything, whatever else was not.
    shown = {sign.rule for sign in found if sign.level >= _EVIDENCE_LEVEL or sign.rule in _PARAMETERS}
    return frozenset(shown - {CUT_SHORT.rule})


class _Signs:
    """The rules of which a sign is in each part of a text."""

    def __init__(self) -> None:
        self.rules: dict[tuple[Place, int], set[str]] = {}
        self._noted: dict[tuple[str, Place], int] = {}

    def note(self, match: Match) -> None:
        """Add one, in the order of their starts: those of a rule may all reach to the end of a text."""
        key, parts = (match.rule, match.place), _parts(match)
        for part in range(max(parts.start, self._noted.get(key, 0)), parts.stop):
            self.rules.setdefault((match.place, part), set()).add(match.rule)
        self._noted[key] = max(parts.stop, self._noted.get(key, 0))


def level_beside(rules: Set[str], rule: str, level: int) -> int:
    """Return the level of a sign beside an earlier list that shows rules of ``rules_shown``."""
    return LEVEL_LOW if level == _EVIDENCE_LEVEL and rule in rules else level


def _supported(matches: Sequence[Match]) -> list[Match]:
    """Return matches with those that need a second sign at medium, unless one of another rule stands near.

    Long honest texts have one sign here and another one there by chance, so both have to stand in the same passage.
    A rule that is high alone is so on at most one of 540 public servers that no rule was made with, and the score on
    four of 2,919 others; one that needs a second was on up to 17. Beside a score that is barely high a phrase will do.
    Phrases in other languages count as they are: the score knows less of these, and of 673 honest texts in them 3 had
    one.
    """
    signs, faint, claims = _Signs(), _Signs(), _Signs()
    for match in sorted(matches, key=lambda match: match.start):
        if match.is_faint or _is_sign(match):
            (faint if match.is_faint else signs).note(match)
        elif match.level >= _EVIDENCE_LEVEL and match.rule not in _ORDINARY:
            claims.note(match)

    def is_alone(match: Match) -> bool:
        near = range(_parts(match).start - 1, _parts(match).stop + 1)
        # Honest texts have relations in faint passages as well, but hardly ever a phrase.
        looked_at = [signs] if match.rule in _SECONDED else [signs, faint]
        if match.rule == STEERING_SCORED:
            looked_at.append(claims)
        return all(
            each.rules.get((match.place, part), _NO_RULES) <= {match.rule} for each in looked_at for part in near
        )

    return [
        match._replace(level=_EVIDENCE_LEVEL)
        if match.level > _EVIDENCE_LEVEL and _needs_second(match) and is_alone(match)
        else match
        for match in matches
    ]


def _parts(match: Match) -> range:
    """Return the numbers of the parts of its text that a match touches."""
    return range(match.start // _PART_CHARS, match.end // _PART_CHARS + 1)


def _is_sign(match: Match) -> bool:
    """Return True if a match may be the second sign of another: what tells nothing by itself is none."""
    return match.level >= _EVIDENCE_LEVEL + (match.rule in _ORDINARY or _needs_second(match))


def _needs_second(match: Match) -> bool:
    if match.is_sufficient and match.level > _EVIDENCE_LEVEL:
        return False
    return (match.needs_second and match.rule not in _SUFFICIENT) or match.rule in _SECONDED


def _indicators(matches: Iterable[Match], is_cut_short: bool) -> list[Indicator]:
    best: dict[tuple[str, Place], Match] = {}
    for match in matches:
        found = best.get((match.rule, match.place))
        if found is None or match.level > found.level:
            best[(match.rule, match.place)] = match
    reported = list(best.values())
    if len(reported) > DEFAULT_LIMITS.indicators_max:
        reported = nsmallest(DEFAULT_LIMITS.indicators_max, reported, key=lambda match: (-match.level, match.rule))
        is_cut_short = True
    indicators = [Indicator(each.rule, each.level, path_of(each.place), *_excerpt(each)) for each in reported]
    if is_cut_short:
        indicators.append(CUT_SHORT)
    return sorted(indicators, key=lambda indicator: (-indicator.level, indicator.rule, indicator.path))


def _search(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], others: OtherTools, work: Work, found: list[Match]
) -> None:
    """Add the matches in new text to ``found``. If the budget runs out, it may still hold matches in old text."""
    old_texts = [] if before is None else texts_of(before, work)
    required = None if before is None else required_of(after)
    spent = work.spent
    texts = texts_of(after, work)
    units = work.spent - spent
    known = {(text.role, text.value) for text in old_texts}
    new_texts = [text for text in texts if (text.role, text.value) not in known]
    for match in all_matches(new_texts, others, offered_by(others, texts), required, work):
        # Each of those that are reported takes a path and an excerpt.
        work.spend(UNITS_PER_INDICATOR if len(found) < DEFAULT_LIMITS.indicators_max else _UNITS_PER_MATCH)
        found.append(match)
    if found and old_texts:
        found[:] = list(_new_ones(found, old_texts, others, work))
    if new_texts and old_texts:
        work.spend(units)
    for match in new_languages(old_texts, texts, new_texts, work):
        found.append(match)  # noqa: PERF402 - what was found before the budget runs out stays


def _new_ones(matches: Iterable[Match], old_texts: Sequence[Text], others: OtherTools, work: Work) -> Iterator[Match]:
    old: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    rules: set[str] = set()
    owners: set[str | None] = set()
    sentences: set[str] = set()
    old_words: set[str] = set()
    known: list[str] = []
    for text in old_texts:
        work.spend(_UNITS_PER_CHAR * len(text.value))
        words = Words(shown(text.value, work))
        sentences.update(words.sentence_keys())
        old_words.update(words.forms)
        known.append(f" {' '.join(words.forms)} ")
    old_chars = sum(map(len, known))
    for match in all_matches(old_texts, others, offered_by(others, old_texts), frozenset(), work):
        old.setdefault(_ends(match), set()).add(match.key)
        rules.add(match.rule)
        if match.rule == "url_introduced":
            owners.add(owner_of(match.key[0]))
    read: dict[str, _Sentences] = {}
    for match in matches:
        alike = old.get(_ends(match), set())
        work.spend(_UNITS_PER_MATCH + len(alike) * len(match.key))
        if match.rule == STEERING_SCORED:
            # A touched word can shift where the best passage begins, so its words may be those of any old sentence, and
            # can lift a score that was just too low. Nor is medium news where one word was put between old ones.
            work.spend(sum(map(len, alike)))
            said = [word.removeprefix("-") for word in match.key]
            added = {word for word in said if word not in old_words}
            if (alike or match.is_faint) and len(added.difference(*alike)) <= _WORDS_ADDED_MAX:
                continue
            if len(added) == 1 and match.level <= _EVIDENCE_LEVEL:
                work.spend(old_chars)
                rest = " ".join(word for word in said if word not in added)
                if any(f" {rest} " in text for text in known):
                    continue
        elif match.key in alike or any(_is_same(key, match.key) for key in alike):
            continue
        if match.text not in read:
            work.spend(_UNITS_PER_CHAR * len(match.text))
            read[match.text] = _Sentences(match.text, sentences)
        if read[match.text].is_touched(match):
            is_of_old_owner = match.rule == "url_introduced" and owner_of(match.key[0]) in owners - {None}
            # A tool that took code before gains nothing by taking it under another name.
            is_known = match.rule in rules & _PARAMETERS and match.level <= _EVIDENCE_LEVEL
            yield match._replace(level=min(match.level, LEVEL_LOW)) if is_of_old_owner or is_known else match


def _ends(match: Match) -> tuple[str, ...]:
    """Return what a match shares with one that has more words between its ends; a passage may have them anywhere."""
    if match.rule == STEERING_SCORED:
        return (match.rule,)
    return (match.rule, *match.key[:1], *match.key[-1:])


def _is_same(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Return True if the new words are the old ones with at most two inserted."""
    if not 0 <= len(new) - len(old) <= _WORDS_ADDED_MAX:
        return False
    rest = iter(new)
    return all(word in rest for word in old)


class _Sentences:
    """The sentences of a text, and which of them are new."""

    def __init__(self, text: str, old: set[str]) -> None:
        words = Words(text)
        self._starts = [words.spans[first][0] for first, _ in words.sentences]
        self._ends = [words.spans[end - 1][1] for _, end in words.sentences]
        is_new = [sentence not in old for sentence in words.sentence_keys()]
        self._new_before = [0, *accumulate(is_new)]

    def is_touched(self, match: Match) -> bool:
        """Return True if a match touches a new sentence, or none at all."""
        first = bisect_right(self._ends, match.start)
        end = bisect_left(self._starts, match.end)
        return first >= end or self._new_before[end] > self._new_before[first]


def _excerpt(match: Match) -> tuple[str, tuple[int, int], tuple[int, str], Place]:
    """Return the last fields of an indicator."""
    start = max(0, match.start - _CONTEXT_CHARS)
    if start:
        # Half a word could be half a secret, which redaction does not know.
        blank = match.text.find(" ", start, match.start)
        start = blank + 1 if blank >= 0 else match.start
    end = match.start + _EXCERPT_CHARS * 3
    text = f"{match.how}: " * bool(match.how) + _escaped(redact(match.text[start:end]))
    words, excerpt = _escaped(match.text[match.start : min(match.end, end)]), _first_words(text)
    at = text.find(words)
    # What was redacted is found nowhere.
    mark = (at, min(at + len(words), len(excerpt))) if at >= 0 else (0, 0)
    return excerpt, mark, (match.start, "" if match.how else match.text[match.start : match.end]), match.place


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)


def _first_words(text: str) -> str:
    if len(text) <= _EXCERPT_CHARS:
        return text
    blank = text.rfind(" ", 0, _EXCERPT_CHARS)
    # A word that takes up the second half is shown in part: it may be the match itself.
    return f"{text[: blank if blank > _EXCERPT_CHARS // 2 else _EXCERPT_CHARS - 1]}…"
