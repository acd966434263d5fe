"""Random histories of a fleet give the bytes that they gave: evidence, facts, findings, alerts, refusals."""

import json

import pytest

from tests.golden.outputs import DIGESTS, HISTORIES, digests_of

_CHUNK = 10
_HINT = "If the change is deliberate, run `python -m tests.golden.outputs` and say in CHANGELOG.md what differs."


@pytest.mark.parametrize("first", HISTORIES[::_CHUNK])
def test_a_history_gives_the_bytes_it_gave(first: int) -> None:
    """To see what differs, write the outputs of two checkouts: ``python -m tests.golden.outputs FOLDER FIRST END``.

    Findings name the digest of ``detect/data/``: any change of a detection rule changes them.
    """
    kept = json.loads(DIGESTS.read_text())
    for seed in HISTORIES[first : first + _CHUNK]:
        assert digests_of(seed) == kept[str(seed)], f"seed {seed}: {_HINT}"
