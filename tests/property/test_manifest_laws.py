"""Laws of manifest drift: no drift from oneself, order says nothing, a missing page removes nothing."""

import random
from typing import Any

from hypothesis import given, strategies as st

from assay_stream.schemes.assay_manifest import Completeness, compare_manifests, declare_manifest, observe_manifest

NAMES = st.sampled_from(["search", "x.search", "github.add_deploy_key", "slack.invite", "\U0001f600", "\uff3a"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "description": st.sampled_from(["a", "b", ""]),
        "inputSchema": st.sampled_from([{}, {"type": "object"}]),
        "outputSchema": st.sampled_from([{}, {"type": "object"}]),
        "annotations": st.sampled_from([{}, {"readOnlyHint": True}]),
        "title": st.sampled_from(["T", "U"]),
    },
)
LISTS = st.dictionaries(NAMES, FIELDS, max_size=6).map(
    lambda tools: [{"name": name, **fields} for name, fields in tools.items()]
)
COMPLETENESS: st.SearchStrategy[Completeness] = st.sampled_from(["complete", "partial", "unknown"])
Tools = list[dict[str, Any]]


@given(LISTS, COMPLETENESS, st.randoms(use_true_random=False))
def test_a_list_compared_with_itself_finds_nothing(
    tools: Tools, completeness: Completeness, choose: random.Random
) -> None:
    declared = declare_manifest(observe_manifest("s", tools, "complete"))
    mixed = choose.sample(tools, len(tools))
    drift = compare_manifests(declared, observe_manifest("s", mixed, completeness))
    assert (drift.findings, drift.inconclusive) == ((), ())


@given(LISTS, LISTS, COMPLETENESS, st.randoms(use_true_random=False))
def test_order_changes_nothing(before: Tools, after: Tools, completeness: Completeness, choose: random.Random) -> None:
    declared = [
        declare_manifest(observe_manifest("s", tools, "complete"))
        for tools in (before, choose.sample(before, len(before)))
    ]
    observed = [observe_manifest("s", tools, completeness) for tools in (after, choose.sample(after, len(after)))]
    assert declared[0].digest == declared[1].digest
    assert observed[0].digest() == observed[1].digest()
    assert compare_manifests(declared[0], observed[0]) == compare_manifests(declared[1], observed[1])


@given(LISTS, LISTS, COMPLETENESS)
def test_findings_are_the_difference_of_two_lists(before: Tools, after: Tools, completeness: Completeness) -> None:
    drift = compare_manifests(
        declare_manifest(observe_manifest("s", before, "complete")), observe_manifest("s", after, completeness)
    )
    was, now = {tool["name"] for tool in before}, {tool["name"] for tool in after}
    by_change: dict[str, set[str]] = {}
    for finding in drift.findings:
        by_change.setdefault(finding.change, set()).add(finding.tool_name)
    complete = completeness == "complete"
    assert by_change.get("tool_added", set()) == now - was
    assert by_change.get("tool_removed", set()) == (was - now if complete else set())
    assert bool(drift.inconclusive) == (not complete and bool(was - now))
    changed = by_change.get("tool_changed", set())
    for change, names in by_change.items():
        assert change in ("tool_added", "tool_removed") or names <= changed <= was & now


@given(LISTS, LISTS)
def test_the_digest_agrees_with_the_findings(before: Tools, after: Tools) -> None:
    """A complete list has findings exactly where its manifest digest is not the baseline's."""
    declared = declare_manifest(observe_manifest("s", before, "complete"))
    observed = observe_manifest("s", after, "complete")
    assert (declared.digest != observed.digest()) == bool(compare_manifests(declared, observed).findings)
