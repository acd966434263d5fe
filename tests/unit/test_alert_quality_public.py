"""Alert quality on corpora in the public format: what is read, how it is judged, and what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay_stream.cli.app import app
from assay_stream.drift.severity import Level
from bench.alert_quality.corpus import Case, load
from bench.alert_quality.public import PublicCorpus, read_public
from bench.alert_quality.public_judges import Verdict, Verdicts, assay_stream
from bench.alert_quality.public_score import Share, measure


def tool(name: str, description: str = "Adds two numbers.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


CASES = load()
ADD, ECHO = tool("add"), tool("echo", "Repeats a text.")
POISONED = tool("add", "POISON")
ALARMING = tool("echo", "POISON, it seems.")

ATTACKS = {
    "source": "lab",
    "cases": [
        {"id": "lab-1", "technique": "loud", "tool": "add", "before": [ADD], "after": [POISONED]},
        {"id": "lab-2", "technique": "quiet", "tool": "add", "before": [ADD], "after": [tool("add", "Sums.")]},
        {"id": "lab-3", "technique": "loud", "tool": "add", "before": [], "after": [POISONED, ECHO]},
    ],
}
OTHER_ATTACKS = {
    "source": "blog",
    "cases": [{"id": "blog-1", "technique": "loud", "tool": "add", "before": [ADD], "after": [POISONED]}],
}
RELEASES = {
    "source": "npm:x",
    "first": {"version": "1.0.0", "tools": [ADD]},
    "cases": [
        {
            "id": "npm:x 1.0.0->1.0.1",
            "before_version": "1.0.0",
            "after_version": "1.0.1",
            "before": [ADD],
            "after": [ADD],
        },
        {
            "id": "npm:x 1.0.1->1.1.0",
            "before_version": "1.0.1",
            "after_version": "1.1.0",
            "before": [ADD],
            "after": [ADD, ALARMING],
        },
    ],
}
RESTARTS = {
    "source": "npm:x",
    "cases": [
        {
            "id": "npm:x 1.1.0->1.1.0",
            "before_version": "1.1.0",
            "after_version": "1.1.0",
            "before": [ADD],
            "after": [ADD],
        }
    ],
}


@pytest.fixture
def corpus(tmp_path: Path) -> PublicCorpus:
    for name, content in {"lab": ATTACKS, "blog": OTHER_ATTACKS, "x": RELEASES, "restarts/x": RESTARTS}.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return read_public([tmp_path])


def alarmed(before: Any, after: Any) -> Verdicts:
    return {
        each["name"]: Verdict(level=Level.HIGH, codes=("word",))
        for each in after
        if "POISON" in each["description"] and each not in before
    }


def test_figures_count_what_they_say(corpus: PublicCorpus) -> None:
    """Shares of attacks, sources, releases, tools, first lists and restarts."""
    figures = measure(corpus, alarmed)
    assert figures.attacks == Share(found=3, of=4)
    assert figures.by_source == {"lab": Share(found=2, of=3), "blog": Share(found=1, of=1)}
    assert figures.mean_of_sources == pytest.approx((2 / 3 + 1) / 2)
    assert figures.by_technique == {"loud": Share(found=3, of=3), "quiet": Share(found=0, of=1)}
    assert figures.releases == Share(found=1, of=2)
    assert figures.changed_tools == Share(found=1, of=1)
    assert figures.first_poisoned == Share(found=3, of=4)
    assert (figures.first_benign, figures.first_benign_tools) == (Share(found=1, of=2), Share(found=1, of=3))
    assert figures.restarts == Share(found=0, of=1)
    assert [(miss.id, miss.cause) for miss in figures.misses] == [("lab-2", "no indicator")]
    assert figures.false_alarms == {"word": ["npm:x 1.0.1->1.1.0: echo", "npm:x 1.1.0: echo"]}


@pytest.mark.parametrize("case", [*CASES[:4], *CASES[-4:]], ids=lambda case: case.id)
def test_ours_judges_as_the_command_does(case: Case, tmp_path: Path) -> None:
    """The bench and ``assay-stream drift`` give the same tools, levels and codes."""
    before, after = case.arrivals[0].tools, case.arrivals[1].tools
    assert assay_stream(before, after) == command(before, after, tmp_path)


def command(before: Any, after: Any, folder: Path) -> Verdicts:
    paths = []
    for name, tools in {"before": before, "after": after}.items():
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps({"tools": tools}), encoding="utf-8")
    ran = CliRunner().invoke(app, ["drift", *map(str, paths), "--format", "json"])
    found: dict[str, Verdict] = {}
    for finding in json.loads(ran.stdout)["findings"]:
        old = found.get(finding["tool"], Verdict(level=0))
        found[finding["tool"]] = Verdict(
            level=max(old.level, Level.parse(finding["severity"])), codes=tuple(sorted({*old.codes, *finding["codes"]}))
        )
    return found
