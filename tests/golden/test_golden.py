"""What the golden commit wrote is what today's code writes, reads and verifies, but for the deliberate changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import live, restored, store
from tests.golden.difference import differences
from tests.golden.outputs import Scenario, all_outputs
from tests.golden.scenarios import HISTORIES, outputs_of_captures, outputs_of_history, published, scenarios
from tests.golden.then import decisions_of_then

HINT = "If the change is deliberate, list it in tests/data/golden/changes.toml and in CHANGELOG.md."
SCENARIOS = {scenario.name: scenario for scenario in scenarios()}


@pytest.fixture(autouse=True)
def _then() -> Iterator[None]:
    with decisions_of_then():
        yield


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_output_is_byte_for_byte_what_it_was(name: str, tmp_path: Path) -> None:
    """Replays are made anew; comparison, verification, reports and exports read the golden results."""
    golden = store.read(name)
    scenario: Scenario = SCENARIOS[name]
    outputs = all_outputs(scenario, golden.pop(store.ARCHIVE), tmp_path, recorded=golden)
    found = differences(golden, outputs)
    assert not found, "\n".join([*found, HINT])


def test_captured_traffic_is_published_as_it_was() -> None:
    """The archive of the captures is what ``publish`` made of the recorded traffic."""
    found = differences({"published": store.read("captures")[store.ARCHIVE]}, {"published": published()})
    assert not found, "\n".join([*found, HINT])


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


def test_the_golden_deployment_is_reported_as_it_was(tmp_path: Path) -> None:
    """A real worker's evidence, archive, seals, proofs and bundles are read, verified and compared as they were."""
    golden = store.read(live.REPORTS)
    found = differences(golden, live.reports(tmp_path))
    assert not found, "\n".join([*found, HINT])


def test_the_golden_seals_hold() -> None:
    """What the reports above say: nothing is wrong, every checkpoint and proof holds."""
    golden = store.read(live.REPORTS)
    summary = json.loads(golden["verify.json"].splitlines()[-1])["summary"]
    assert (summary["wrong"], summary["gone"], summary["missing"]) == (0, 0, 0)
    assert json.loads(golden["seal-verify.json"])["result"] == "holds"
    checked = [content for name, content in golden.items() if name.endswith((".checked", ".verified.json"))]
    assert [json.loads(content)["valid"] for content in checked] == [True] * 6


def test_stages_go_on_from_golden_topics() -> None:
    """Facts and alert states that the old worker wrote are restored, and what follows is what it wrote."""
    files = store.read(live.NAME)
    found = differences(restored.written_by_the_old_worker(files), restored.written_by_restored_stages(files))
    assert not found, "\n".join([*found, HINT])
