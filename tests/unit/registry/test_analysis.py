"""The budget of one record, and the finding that says what it did not suffice for."""

from __future__ import annotations

import pytest

from assay_stream.alerts.rules import severity_under
from assay_stream.drift.severity import PROFILES, Level
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import decode_finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin
from assay_stream.registry.analysis import Analysis, CutReason

ORIGIN = Origin(topic="mcp.tools.list", partition=0, offset=1)


def test_what_was_paid_for_is_kept() -> None:
    analysis = Analysis(25)
    assert list(analysis.paid(range(9), 10, LeftOut.RESOLUTIONS)) == [0, 1]
    assert analysis.left_out == {LeftOut.RESOLUTIONS}
    assert analysis.work.is_exhausted


def test_nothing_is_found_where_nothing_was_left_out() -> None:
    analysis = Analysis(20)
    assert list(analysis.paid(range(2), 10, LeftOut.TEXT)) == [0, 1]
    assert list(analysis.finding("s", ORIGIN, 1, catalogue="c", cut=CutReason.BUDGET)) == []


def test_a_list_that_was_cut_short_is_found_by_its_catalogue() -> None:
    analysis = Analysis(1)
    analysis.left_out |= {LeftOut.TEXT, LeftOut.COMPARISON}
    [one] = analysis.finding("s", ORIGIN, 1, catalogue="one", cut=CutReason.BUDGET)
    [other] = analysis.finding("s", ORIGIN, 1, catalogue="other", cut=CutReason.BUDGET)
    assert one.uid() != other.uid()
    assert one.left_out == ("comparison", "text")
    assert decode_finding(one.encode()) == one
    counted = {Kind.TOOL_ADDED: 50}
    [rationed] = analysis.finding("s", ORIGIN, 1, catalogue="one", cut=CutReason.RATIONED, counted=counted)
    assert rationed.counted == (("tool_added", 50),)
    assert decode_finding(rationed.encode()) == rationed
    [again] = analysis.finding("s", ORIGIN, 1, catalogue="other", cut=CutReason.RATIONED)
    assert rationed.uid() == again.uid() != one.uid()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_it_is_high(profile: object) -> None:
    analysis = Analysis(1)
    analysis.left_out.add(LeftOut.TEXT)
    [finding] = analysis.finding("s", ORIGIN, 1, catalogue="one", cut=CutReason.BUDGET)
    assert severity_under(profile)(finding) == Level.HIGH  # type: ignore[arg-type]
