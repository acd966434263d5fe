"""The audit of dependencies."""

import json
from typing import Any

import pytest

from deploy.supply_chain import NOT_AUDITED, verdict

SOUND: dict[str, Any] = {"name": "sound", "version": "1.0", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "unknown", "skip_reason": "Dependency not found"}
FLAWED: dict[str, Any] = {"name": "flawed", "version": "2.0", "vulns": [{"id": "GHSA-1", "fix_versions": ["2.1"]}]}


@pytest.mark.parametrize(
    ("audited", "code", "line"),
    [
        ([SOUND, FLAWED, UNKNOWN], 1, "flawed 2.0: GHSA-1, mended in 2.1"),
        ([SOUND], 0, "1 packages audited, 0 advisories"),
        ([UNKNOWN, UNKNOWN], NOT_AUDITED, "NOT AUDITED"),
    ],
)
def test_an_advisory_fails_and_no_answer_is_not_good_news(audited: list[Any], code: int, line: str) -> None:
    """pip-audit itself reports no known vulnerabilities where its service knows nothing."""
    found = verdict(json.dumps({"dependencies": audited, "fixes": []}), "No known vulnerabilities found")
    assert found.code == code
    assert any(each.startswith(line) for each in found.lines), found.lines


def test_an_audit_that_failed_by_itself_does() -> None:
    """A malformed lock must not pass for an outage."""
    assert verdict("", "ERROR:pip_audit._cli:requirement file is invalid").code == 2
