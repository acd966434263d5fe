"""The figures of alert quality as Markdown tables, for a terminal and for docs/alert-quality.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from bench.alert_quality.corpus import Case
from bench.alert_quality.public import PublicCorpus
from bench.alert_quality.public_judges import differing
from bench.alert_quality.public_score import Figures, Share
from bench.alert_quality.unseen import all_first, first_figures, rows
from bench.tables import markdown

OURS = "assay-stream"
_IDS_SHOWN = 8

_ROWS: Sequence[tuple[str, str]] = (
    ("attacks at high", "attacks"),
    ("attacks at medium or above", "attacks_medium"),
    ("poisoned tools at high in a first list", "first_poisoned"),
    ("benign releases with anything at high", "releases"),
    ("the same at medium or above", "releases_medium"),
    ("changed tools of benign releases at high", "changed_tools"),
    ("benign servers with any first list at high", "servers"),
    ("benign first lists with anything at high", "first_benign"),
    ("tools of benign first lists at high", "first_benign_tools"),
    ("restarts with anything at high", "restarts"),
    ("the same at medium or above", "restarts_medium"),
    ("openly offensive tools at high, counted apart", "overt"),
)


def public_tables(corpus: PublicCorpus, scores: Mapping[str, Figures]) -> dict[str, str]:
    """Return the tables on texts by others, by name.

    Args:
        corpus: what was judged.
        scores: figures by judge; ours under ``assay-stream``.
    """
    ours = scores[OURS]
    return {
        "public_sizes": _sizes(corpus),
        "public_figures": _figures(scores),
        "public_sources": _groups("source", {name: one.by_source for name, one in scores.items()}),
        "public_techniques": _groups("technique", {name: one.by_technique for name, one in scores.items()}),
        "public_misses": _grouped(
            "what was seen", ((miss.cause, f"{miss.id} ({miss.technique})") for miss in ours.misses), "misses"
        ),
        "public_false_alarms": _grouped(
            "indicators", ((codes, case) for codes, cases in ours.false_alarms.items() for case in cases), "alerts"
        ),
    }


def unseen_table(materials: Mapping[str, Figures]) -> str:
    """Return the table on material that no rule was made with.

    Args:
        materials: what each gives now, by name.
    """
    shares = [(name, title, _share(first), _share(now)) for name, title, first, now in rows(materials)]
    means = [
        (name, "attacks at high, mean of sources", f"{first.mean_of_sources:.3f}", f"{now.mean_of_sources:.3f}")
        for name, now in materials.items()
        if (first := first_figures(name, now)).by_source
    ]
    return markdown(["material", "what", "first measured", "this version"], [*shares, *means])


def first_table() -> str:
    """Return the table of first figures, a row for each material."""
    columns = ("attacks", "attacks_medium", "servers", "servers_medium", "releases", "releases_medium")
    return markdown(
        ["material", "attacks at high", "at medium", "servers at high", "at medium", "releases at high", "at medium"],
        (
            (name, *(_share(Share(found=found, of=of)) for found, of in map(first.shares.get, columns, repeat((0, 0)))))
            for name, first in all_first().items()
        ),
    )


def own_tables(cases: Sequence[Case], scores: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the tables on our own corpus, by name.

    Args:
        cases: the corpus.
        scores: figures by judge, as ``score.score`` returns them; ours under ``assay-stream``.
    """
    ours = scores[OURS]
    by_id = {case.id: case for case in cases}
    return {
        "own_figures": markdown(
            ["judge", "recall", "benign alerts per 1,000 session starts, high", "the same, medium"],
            (
                (
                    name,
                    f"{one['recall']:.3f}",
                    f"{one['alerts_per_1000_high']:.1f}",
                    f"{one['alerts_per_1000_medium']:.1f}",
                )
                for name, one in scores.items()
            ),
        ),
        "own_parts": markdown(
            ["part", "attacks", "found", "benign cases", "at high"],
            (
                (f"`{part}`", one["attacks"], one["attacks_found"], one["benign"], one["benign_at_high"])
                for part, one in ours["by_part"].items()
            ),
        ),
        "own_misses": _or_none(
            ["case", "label", "family"],
            [
                (f"`{name}`", by_id[name].label, by_id[name].family)
                for name in [*ours["missed"], *ours["benign_at_high"]]
            ],
        ),
    }


def _sizes(corpus: PublicCorpus) -> str:
    first = corpus.benign_first_lists()
    return markdown(
        ["what", "how many", "of"],
        [
            ("attacks", len(corpus.attacks), f"{len({pair.source for pair in corpus.attacks})} sources"),
            ("pairs of releases", len(corpus.releases), f"{len({pair.source for pair in corpus.releases})} packages"),
            ("of them with any change", sum(bool(differing(p.before, p.after)) for p in corpus.releases), ""),
            ("distinct first lists", len(first), f"{len({one.source for one in first})} packages"),
            ("tools in them", sum(len(one.tools) for one in first), ""),
            ("restarts", len(corpus.restarts), f"{len({pair.source for pair in corpus.restarts})} packages"),
        ],
    )


def _figures(scores: Mapping[str, Figures]) -> str:
    lines: list[list[str]] = [
        [title, *(_share(getattr(one, field)) for one in scores.values())]
        for title, field in _ROWS
        if any(getattr(one, field).of for one in scores.values())
    ]
    if lines[0][0] == _ROWS[0][0]:
        lines.insert(1, ["the same, mean of sources", *(f"{one.mean_of_sources:.3f}" for one in scores.values())])
    return markdown(["", *scores], lines)


def _groups(title: str, groups: Mapping[str, Mapping[str, Share]]) -> str:
    names = next(iter(groups.values()))
    return _or_none([title, *groups], [[name, *(_share(one[name]) for one in groups.values())] for name in names])


def _share(share: Share) -> str:
    low, high = share.interval
    return f"{share.value:.3f} ({share.found} of {share.of}; {low:.3f}–{high:.3f})" if share.of else "–"


def _grouped(title: str, items: Iterable[tuple[str, str]], what: str) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, case in items:
        groups[name].append(case)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return _or_none([title, what, "cases"], [(name, len(cases), _first(cases)) for name, cases in ordered])


def _first(cases: Sequence[str]) -> str:
    further = len(cases) - _IDS_SHOWN
    return ", ".join(cases[:_IDS_SHOWN]) + (f" and {further} more (`--json` names all)" if further > 0 else "")


def _or_none(header: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    return markdown(header, rows) if rows else "None.\n"
