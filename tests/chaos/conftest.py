"""One cluster for all tests of faults."""

from collections.abc import Iterator

import pytest

from tests.chaos.world import Ground, standing_ground


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """Three brokers on loopback with relays in front of them, started on first use."""
    with standing_ground() as made:
        yield made
