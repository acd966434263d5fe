"""The kinds of finding, as data."""

from __future__ import annotations

import re

import pytest

from assay_stream.model.kinds import KINDS, Kind


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_explained(kind: Kind) -> None:
    info = KINDS[kind]
    assert info.title
    assert not info.title.endswith(".")
    assert 1 <= info.severity_id <= 5
    assert info.explanation.endswith(".")
    assert info.next_step.endswith(".")


@pytest.mark.parametrize("kind", list(Kind))
def test_references_have_the_form_of_their_lists(kind: Kind) -> None:
    info = KINDS[kind]
    assert all(re.fullmatch(r"AML\.T\d{4}(\.\d{3})?", technique) for technique in info.atlas)
    assert all(re.fullmatch(r"MCP(0[1-9]|10)|ASI(0[1-9]|10)", entry) for entry in info.owasp)
    assert len(set(info.owasp)) == len(info.owasp)


def test_no_kind_is_missing() -> None:
    assert set(KINDS) == set(Kind)
