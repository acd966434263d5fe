"""Requests that only some servers read as a call, sent to real servers directly and through taps, in both eras."""

from pathlib import Path

import pytest

from tests.support.misread_outcomes import SERVERS, differences, run_at

pytestmark = [pytest.mark.servers, pytest.mark.tier(name="peers")]
DOCUMENTED = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.mark.parametrize("server", SERVERS)
async def test_no_call_passes_a_tap_or_its_record(server: str) -> None:
    """And docs/security.md says what came of each try (python -m tests.support.misread_outcomes)."""
    run = await run_at(server)
    assert run.outcomes["as it should be"].is_carried_out
    assert len(run.named(lambda each: each.is_carried_out)) >= 40
    assert run.named(lambda each: each.is_passed) == []
    assert run.named(lambda each: each.is_unrecorded) == []
    assert differences(run, DOCUMENTED.read_text(encoding="utf-8")) == []
