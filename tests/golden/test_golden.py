"""What the golden commit wrote is what today's code writes, reads and verifies, but for the deliberate changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden import store
from tests.golden.difference import differences
from tests.golden.outputs import Scenario, all_outputs
from tests.golden.scenarios import HISTORIES, outputs_of_captures, outputs_of_history, published, scenarios

SCENARIOS = {scenario.name: scenario for scenario in scenarios()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_output_is_byte_for_byte_what_it_was(name: str, tmp_path: Path) -> None:
    """Replays are made anew; comparison, verification, reports and exports read the golden results."""
    golden = store.read(name)
    scenario: Scenario = SCENARIOS[name]
    outputs = all_outputs(scenario, golden.pop(store.ARCHIVE), tmp_path, recorded=golden)
    found = differences(golden, outputs)
    assert not found, "\n".join(found)


def test_captured_traffic_is_published_as_it_was() -> None:
    """The archive of the captures is what ``publish`` made of the recorded traffic."""
    found = differences({"published": store.read("captures")[store.ARCHIVE]}, {"published": published()})
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", SCENARIOS)
def test_golden_results_are_sound(name: str) -> None:
    """What the reports above say of them: no evidence is wrong or missing, nothing differs, the bundle holds."""
    golden = store.read(name)
    assert b'"differences":0' in golden["compare.json"]
    summary = json.loads(golden["verify.json"].splitlines()[-1])["summary"]
    assert summary["records"] == summary["holds"] + summary["late"] == golden["replay/evidence.ndjson"].count(b"\n")
    assert (summary["wrong"], summary["gone"], summary["missing"]) == (0, 0, 0)
    if "bundle.tar.gz" in golden:
        assert json.loads(golden["bundle-verify.json"])["valid"]


_CHUNK = 20


@pytest.mark.parametrize("first", HISTORIES[::_CHUNK])
def test_random_histories_give_what_they_gave(first: int, tmp_path: Path) -> None:
    """Replays and stages, facts and verdicts included. `python -m tests.golden.against` shows what differs."""
    digests = store.digests()
    for seed in HISTORIES[first : first + _CHUNK]:
        made = store.digests_of(outputs_of_history(seed, tmp_path))
        assert made == digests[str(seed)], f"seed {seed}"


def test_captured_lists_give_what_they_gave() -> None:
    """Fingerprints, conformance, drift under every profile, SARIF."""
    assert store.digests_of(outputs_of_captures()) == store.digests()["captures"]
