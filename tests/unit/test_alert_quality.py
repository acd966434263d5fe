"""The labelled corpus and what we reach on it."""

from bench.alert_quality.corpus import Case, load
from bench.alert_quality.judges import HIGH, JUDGES
from bench.alert_quality.score import levels, score
from tests.support.indicators import detect_indicators

CASES = load()
BY_TEXT = [
    case
    for case in CASES
    if case.label == "attack" and case.family not in {"shadow_name", "schema_widened", "annotations"}
]
"""Attacks that stand in words or names, so that signs alone can find them."""

RECALL_OF_SIGNS = 0.85
"""What was reached: 198 of 232. The rest stands in docs/alert-quality.md, each with why."""

FOUND = {"attacks": 145, "held_out": 24, "unseen": 18, "unseen_2": 18}
"""Attacks that reach high, by part of the corpus, as docs/alert-quality.md has them."""

BENIGN_AT_HIGH: list[str] = []
"""Benign cases at high, as docs/alert-quality.md has them."""

BENIGN_PER_1000_MEDIUM = 30.0

NOISE_RATIO = 20
"""How many times fewer benign alerts than "any change" raises; what the project sets itself."""


def found_by_signs(case: Case) -> bool:
    for before, after in zip(case.arrivals, case.arrivals[1:], strict=False):
        older = {tool["name"]: tool for tool in before.tools}
        names = [tool["name"] for tool in after.tools]
        for tool in after.tools:
            signs = detect_indicators(older.get(tool["name"]), tool, tool_names=names)
            if any(sign.level >= HIGH for sign in signs):
                return True
    return False


def test_signs_find_what_they_found() -> None:
    """The recall of signs on attacks in text does not fall."""
    assert sum(map(found_by_signs, BY_TEXT)) / len(BY_TEXT) >= RECALL_OF_SIGNS


def test_no_capture_gives_a_grave_sign() -> None:
    """The real releases, also as tools that are new, bring nothing at high or above."""
    for case in CASES:
        if case.family == "capture":
            for arrival in case.arrivals:
                names = [tool["name"] for tool in arrival.tools]
                for tool in arrival.tools:
                    signs = detect_indicators(None, tool, tool_names=names)
                    assert [sign for sign in signs if sign.level >= HIGH] == []


def test_names_that_are_taken_are_found() -> None:
    """Another server's name, as it is or drawn alike, is high."""
    cases = [case for case in CASES if case.id.startswith("rename-shadow-")]
    assert {case.id.rpartition("-")[2] for case in cases} == {"exact", "confusable", "case"}
    assert [max(levels(case, JUDGES["assay-stream"])) for case in cases] == [HIGH] * len(cases)


def test_noise_is_far_below_any_change() -> None:
    """Benign session starts alert far less often than under a plain comparison."""
    noise = {name: score(CASES, judge)["alerts_per_1000_high"] for name, judge in JUDGES.items()}
    assert noise["assay-stream"] * NOISE_RATIO <= noise["any change"]


def test_judge_reaches_what_is_published() -> None:
    """No part is judged worse than the page says, and nothing benign is at high that it does not name."""
    figures = score(CASES, JUDGES["assay-stream"])
    found = {part: counts["attacks_found"] for part, counts in figures["by_part"].items()}
    assert all(found[part] >= least for part, least in FOUND.items())
    assert figures["benign_at_high"] == BENIGN_AT_HIGH
    assert figures["alerts_per_1000_medium"] <= BENIGN_PER_1000_MEDIUM
