"""Decisions that changed on purpose since the golden files were written.

They are set back while today's code is held against those files: a level or a code has consequences in every alert,
report and order of lines, which no change of one field takes back. So ``tests/data/golden/changes.toml`` names the
levels of then and what the code did in the place of what it does now (``former``), the rules that came since are put
out of force, and everything else must be what it was.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from assay_stream.detect import catalog, decoders, pages, reader, rule_search, search
from assay_stream.detect.decoders import View
from assay_stream.detect.match import Match
from assay_stream.detect.page import Page, Visit
from assay_stream.detect.phrase_filter import PhraseFilter
from assay_stream.detect.phrases import PhraseBook
from assay_stream.drift import severity
from assay_stream.model.kinds import KINDS, Kind, KindInfo
from assay_stream.registry import comparison
from assay_stream.report.drift import KIND_TITLES
from assay_stream.schemes.fingerprint import ContentCache
from assay_stream.work import Work
from tests.golden import former
from tests.golden.changes import CHANGES


def _views_of_then(text: str, work: Work, **options: Any) -> Iterator[View]:
    return (
        view for view in decoders._layer(text, options["gates"], work, is_unseen=options["is_unseen"]) if view.is_said
    )


def _decoded_of_then(self: Any, page: Page, *, is_blob: bool) -> Iterator[Match]:
    visit = self._read(page)
    if is_blob:
        seen, level = page.seen, catalog.LEVELS["encoded_text"]
        yield Match("encoded_text", level, seen, 0, len(seen), (page.raw,), self._rules.place)
        yield from self._rules.as_it_stands(visit)
    else:
        yield from self._rules._by_words(visit)


_as_it_stands = rule_search.RuleSearch.as_it_stands


def _as_it_stood(self: Any, visit: Visit, *, is_raw: bool = True) -> Iterator[Match]:
    return _as_it_stands(self, visit) if is_raw else self._by_words(visit)


_RULES: dict[str, Any] = {
    # A disguise was undone once, what was respelt was held against words alone, and a search for blobs cost more.
    "assay_stream.detect.reader.hidden_views": _views_of_then,
    "assay_stream.detect.reader.Reader._decoded": _decoded_of_then,
    "assay_stream.detect.rule_search.RuleSearch.as_it_stands": _as_it_stood,
    "assay_stream.detect.reader._TELLTALES": dict.fromkeys(reader._WHOLE_VIEWS, frozenset()),
    "assay_stream.detect.decoders._RESPELT_BLOBS": {},
    "assay_stream.detect.decoders._UNITS_PER_BLOB": 0,
    "assay_stream.detect.decoders._UNITS_PER_BLOB_CHAR": 5,
    # Names that stand within names were found for less than that takes.
    "assay_stream.detect.tool_names._UNITS_PER_SPAN": 0,
    # Only what generators decide changed in a schema: each change of it had its own code.
    "assay_stream.drift.json_schema.folded": lambda _path, changes: changes,
    # Null was one alternative, or one type, among others.
    "assay_stream.drift.json_schema.without_null": lambda before, after: (("", before), ("", after)),
    # Lists in another order were other defaults and other words.
    "assay_stream.drift.values.is_reordered": lambda *_: False,
    "assay_stream.drift.text.is_text_reordered": lambda *_: False,
    # What a schema does with secrets and other documents was no indicator, and cost nothing.
    "assay_stream.detect.indicators.structural_matches": lambda *_: [],
    # Sentences were held against phrases alone, and cost nothing more.
    "assay_stream.detect.page.steering_in": lambda *_: (),
}


def _phrases_of_then() -> PhraseFilter:
    """The phrases as they were; which stand where decides what a search costs, and so what is left of an allowance."""
    pairs: list[tuple[str, str]] = []
    for name in tomllib.loads((catalog.DATA / "lists.toml").read_text(encoding="utf-8"))["phrase_files"]:
        older = CHANGES.parent / "phrases" / f"{name}.toml"
        file = older if older.exists() else catalog.DATA / "phrases" / f"{name}.toml"
        pairs += catalog._written_out(file.name, catalog._read(file, catalog._Phrases))
    return PhraseFilter(PhraseBook(pairs))


def _kinds_of_then() -> dict[Kind, KindInfo]:
    """Titles, explanations and next steps as they read before they were reworded."""
    texts = tomllib.loads((CHANGES.parent / "kinds.toml").read_text(encoding="utf-8"))
    return {
        Kind(kind): replace(KINDS[Kind(kind)], **{name: row[name] for name in ("title", "explanation", "next_step")})
        for kind, row in texts.items()
    }


@contextlib.contextmanager
def decisions_of_then() -> Iterator[None]:
    """Compare and judge as at the golden commit."""
    listed = tomllib.loads(CHANGES.read_text(encoding="utf-8"))
    levels = {code: severity.Level.parse(level) for code, level in listed["levels"].items()}
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(severity._BY_CODE, levels))
        stack.enter_context(patch.dict(KINDS, _kinds_of_then()))
        # Answers are kept across tests, and those of today are others.
        stack.enter_context(patch.object(comparison, "_ANSWERS", ContentCache(4_096)))
        stack.callback(pages.forget)
        pages.forget()
        # SARIF lists every kind that a report can have.
        stack.enter_context(patch.dict(KIND_TITLES))
        for kind in ("list_cached_long", "instructions_added", "instructions_removed", "instructions_changed"):
            cast("dict[str, str]", KIND_TITLES).pop(kind)
        phrases = _phrases_of_then()
        for module in (rule_search, search):
            stack.enter_context(patch.object(module, "phrase_filter", lambda: phrases))
        for place, rule in _RULES.items():
            stack.enter_context(patch(place, rule))
        for change in listed["former"]:
            stack.enter_context(patch(change["target"], getattr(former, change["was"])))
        yield
